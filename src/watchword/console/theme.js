// Runs before anything is drawn, so that no page flashes in the other theme.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage the theme of the system is used.
}
