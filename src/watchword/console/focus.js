/**
 * Where the keyboard's focus goes.
 */

const STOPS = "a[href], button:enabled, :is(input, select, textarea):enabled, summary, [tabindex='0']";

/**
 * From the last stop of the node Tab leads to the first, and back.
 * @param {Element} node @param {KeyboardEvent} event
 */
export function stayWithin(node, event) {
  const stops = [...node.querySelectorAll(STOPS)].filter(
    (one) => one.getAttribute("tabindex") !== "-1" && one.checkVisibility(),
  );
  const at = document.activeElement ? stops.indexOf(document.activeElement) : -1;
  const next = event.shiftKey ? at <= 0 && stops.at(-1) : at === stops.length - 1 && stops[0];
  if (!(next instanceof HTMLElement)) return;
  event.preventDefault();
  next.focus();
}

/** @param {Element} node what tells it from others of its kind */
const markOf = (node) =>
  node.id ||
  ["href", "datetime", "aria-label"].map((name) => node.getAttribute(name)).find(Boolean) ||
  node.textContent;

/**
 * If the work replaces the focused element of the place, the one like it gets the focus.
 * @param {Element} place @param {() => Promise<void>} work
 */
export async function keepingFocus(place, work) {
  const was = place.contains(document.activeElement) ? document.activeElement : null;
  await work();
  if (!was || document.activeElement !== document.body) return;
  const same = [...place.querySelectorAll(was.localName)].find((node) => markOf(node) === markOf(was));
  if (same instanceof HTMLElement) same.focus({ preventScroll: true });
}

/** Move the focus that was on something that is gone to the start of the page. */
export function focusPage() {
  if (document.activeElement === document.body) document.getElementById("main")?.focus({ preventScroll: true });
}
