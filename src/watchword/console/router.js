/**
 * Addresses: each view has one that works with reload, back, forward and sharing. Filters, sort and page are in its
 * query.
 *
 * A page is a module that exports `page(context)`. Before it loads data, it may call `setHooks(root, {again, leave})`:
 * `again(context)` is called instead of a new page when the address changes but the page is the same; `leave()` is
 * called before the page is left and returns whether it may be.
 *
 * A token never stays in an address: it is taken out before the address is set, and at once if it was opened.
 */

import { takeToken } from "./token_text.js";

/**
 * @typedef {object} Context
 * @property {HTMLElement} root where the page renders itself
 * @property {string[]} params what the address has after the view's name
 * @property {URLSearchParams} query
 * @property {string} path
 * @property {import("./shell.js").Me} me who is signed in, with privileges
 * @property {AbortSignal} signal aborted when the page is left
 * @property {(text: string) => void} title
 *
 * @typedef {{again?: (context: Context) => unknown, leave?: () => boolean | Promise<boolean>}} Kept
 * @typedef {{page: (context: Context) => Promise<void> | void}} Page
 * @typedef {{pattern: RegExp, load: () => Promise<Page>, name: string}} Route
 */

/** @typedef {"shown" | "stayed" | "overtaken"} Outcome `stayed`: the page before is still shown, with the error */
/**
 * The last page that was shown.
 * @typedef {{href: string, place: number, current: Kept | undefined, shown: string | null}} Before
 */

/** @type {Route[]} */
const routes = [];
/**
 * Shows a page; `mayStay`: if it cannot be loaded, the page before may stay.
 * @type {(route: Route | null, at: URL, params: string[], mayStay: boolean) => Promise<Outcome>}
 */
let show = async () => "overtaken";
/** @type {Kept | undefined} */
let current;
let place = 0;
let returning = false;
/** Where the page is that is shown. @type {{href: string, place: number} | null} */
let here = null;
/** The page that stays if the next one cannot be shown. @type {Before | null} */
let before = null;

/** @param {string} name @param {string} pattern such as `/console/tokens/:id?` @param {() => Promise<Page>} load */
export function route(name, pattern, load) {
  const text = pattern.replaceAll(/\/:\w+\?/g, "(?:/([^/]+))?").replaceAll(/\/:\w+/g, "/([^/]+)");
  routes.push({ name, load, pattern: new RegExp(`^${text}/?$`) });
}

/** @param {URL} at @returns {[Route | null, string[]]} */
export function find(at) {
  for (const candidate of routes) {
    const found = candidate.pattern.exec(at.pathname);
    if (found) return [candidate, found.slice(1).map((part) => part && decode(part))];
  }
  return [null, []];
}

/** @param {string} address @param {{replace?: boolean, sure?: boolean}} [how] `sure`: without asking the page */
export async function go(address, { replace = false, sure = false } = {}) {
  const at = new URL(address, location.href);
  if (at.origin !== location.origin) throw new Error("The address is of another origin.");
  tell(takeToken(at));
  if (!sure && !(await mayLeave())) return;
  if (at.href === location.href) replace = true;
  if (!replace) place += 1;
  const elsewhere = find(at)[0]?.name !== shown;
  history[replace ? "replaceState" : "pushState"]({ place }, "", at);
  if ((await arrive()) && elsewhere) scrollTo(0, 0);
}

/**
 * The same view with other values in its query; null and "" remove a value. Changing a filter goes back to page 1.
 * @param {Record<string, string | number | null | undefined>} changes
 * @param {{replace?: boolean}} [how]
 */
export const goQuery = (changes, how) => go(withQuery(changes), how);

/** @type {WeakMap<HTMLInputElement | HTMLSelectElement, string>} */
const shownValues = new WeakMap();

/**
 * Show in a field what the query says. Where the query's value stays the same, so does what was typed since.
 * @param {HTMLInputElement | HTMLSelectElement} field @param {string | null} value
 */
export function showQuery(field, value) {
  if (shownValues.get(field) !== (value ?? "")) field.value = value ?? "";
  shownValues.set(field, value ?? "");
}

/** @param {Record<string, string | number | null | undefined>} changes @param {string} [path] */
export function withQuery(changes, path = location.pathname) {
  const query = new URLSearchParams(location.search);
  if (!("page" in changes)) query.delete("page");
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  return path + (text ? `?${text}` : "");
}

/** Another view with the same query: filters, order and page stay. @param {string} path */
export const withSameQuery = (path) => path + location.search;

/** Whether the page may be left. It may ask the user. */
export const mayLeave = async () => !current?.leave || current.leave();

/** Remove the page, without asking: nothing of it may be seen any more. */
export function clearPage() {
  current = undefined;
  here = before = null;
  document.getElementById("main")?.replaceChildren();
}

/** Load the page of the current address again. */
export async function reload() {
  await arrive(true);
}

/** @param {typeof show} shower */
export async function start(shower) {
  show = shower;
  place = history.state?.place ?? 0;
  history.replaceState({ place }, "");
  document.addEventListener("click", follow);
  addEventListener("popstate", back);
  addEventListener("beforeunload", (event) => {
    if (current?.leave) event.preventDefault();
  });
  // A browser may restore a page when the user goes back. By then another user may be signed in, or none: clear it.
  addEventListener("pagehide", (event) => {
    if (!event.persisted) return;
    current = undefined;
    document.body.replaceChildren();
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });
  await arrive();
}

/** @type {(text: string, opened: boolean) => void} */
let listener = () => {};
/** @param {typeof listener} called with the text that contained a token, and whether the address was opened with it */
export const onTokenInAddress = (called) => {
  listener = called;
};

/** @param {string | null} text @param {boolean} [opened] */
const tell = (text, opened = false) => text && listener(text, opened);

/** @type {string | null} */
let shown = null;

/** Whether the page is shown. */
async function arrive(afresh = false) {
  const at = new URL(location.href);
  const token = takeToken(at);
  if (token) history.replaceState(history.state, "", at);
  tell(token, true);
  const [found, params] = find(at);
  if (afresh) here = before = null;
  if (current?.again && !afresh && found?.name === shown) {
    here = { href: at.href, place };
    await again(current, at, params);
    return true;
  }
  before ??= here && { ...here, current, shown };
  here = null;
  current = undefined;
  shown = found?.name ?? null;
  const outcome = await show(found, at, params, before !== null);
  if (outcome === "overtaken") return false;
  if (outcome === "stayed") takeBack();
  else here = { href: at.href, place };
  before = null;
  return outcome === "shown";
}

/** The page before is still there: so is its address. */
function takeBack() {
  if (!before) return;
  const distance = before.place - place;
  ({ current, shown, place } = before);
  here = { href: before.href, place };
  if (distance) {
    returning = true;
    history.go(distance);
  } else history.replaceState({ place }, "", before.href);
}

/** @type {(kept: Kept, at: URL, params: string[]) => unknown} */
let again = () => undefined;
/** @param {typeof again} caller */
export const onAgain = (caller) => {
  again = caller;
};

/** Set how the page is updated and left, if it is still shown. @param {HTMLElement} root @param {Kept} kept */
export const setHooks = (root, kept) => {
  if (root.isConnected) current = kept;
};

/**
 * Ask before this page is left, until the returned function is called.
 * @param {HTMLElement} root @param {() => boolean | Promise<boolean>} leave
 */
export function confirmLeave(root, leave) {
  const before = current;
  setHooks(root, { ...before, leave });
  return () => setHooks(root, before ?? {});
}

/** @param {PopStateEvent} event */
async function back(event) {
  if (returning) {
    returning = false;
    return;
  }
  const target = event.state?.place ?? 0;
  if (current?.leave && target !== place) {
    // The browser has moved already: move back, ask, and go there only after a yes.
    const distance = target - place;
    returning = true;
    history.go(-distance);
    if (await current.leave()) {
      current = undefined;
      history.go(distance);
    }
    return;
  }
  place = target;
  await arrive();
}

/** @param {MouseEvent} event */
async function follow(event) {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
    return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
  const at = new URL(link.href);
  if (at.origin !== location.origin || !(at.pathname === "/" || at.pathname.startsWith("/console"))) return;
  if (at.hash && at.pathname === location.pathname) return;
  event.preventDefault();
  const list = link.closest(".pager")?.closest("[data-list]");
  await go(at.href);
  // The next page of a list starts at its top.
  if (list && list.getBoundingClientRect().top < 0) list.scrollIntoView();
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
