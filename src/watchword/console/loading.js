/**
 * Loading a part of a page: the latest answer counts, an error is shown with a way to try again.
 */

import { build } from "./html.js";
import { isAborted } from "./api.js";
import { errorLine } from "./error_line.js";
import { keepingFocus } from "./focus.js";

/** @type {WeakMap<Element, AbortController>} */
const coming = new WeakMap();

/**
 * A signal for a request about this place. A new one aborts the one before, so that a late answer does not replace a
 * newer one.
 * @param {Element} place @param {AbortSignal | null} signal of the page; null if the request does not depend on it
 */
export function latestSignal(place, signal) {
  coming.get(place)?.abort();
  const mine = new AbortController();
  coming.set(place, mine);
  if (signal?.aborted) mine.abort();
  signal?.addEventListener("abort", () => mine.abort(), { signal: mine.signal });
  return mine.signal;
}

/**
 * The same, and the place is marked busy until the latest answer is there.
 * @param {Element} place @param {AbortSignal | null} signal @param {(signal: AbortSignal) => Promise<void>} work
 */
export async function whileBusy(place, signal, work) {
  const mine = latestSignal(place, signal);
  place.setAttribute("aria-busy", "true");
  try {
    await work(mine);
  } finally {
    if (coming.get(place)?.signal === mine) place.removeAttribute("aria-busy");
  }
}

/**
 * If the work fails, the content stays and the error is shown before it, with a way to do it again.
 * @param {Element} place @param {() => Promise<void>} work @param {() => unknown} [again]
 */
export async function showingErrors(place, work, again = () => showingErrors(place, work)) {
  const clear = (/** @type {string} */ which) => place.querySelectorAll(which).forEach((old) => old.remove());
  try {
    await work();
    clear(":scope > .error");
  } catch (error) {
    if (isAborted(error)) return;
    clear(":scope > .error, :scope > .loading");
    place.prepend(...build(errorLine(error, again)));
  }
}

/** How to load a list again. @type {WeakMap<Element, () => Promise<void>>} */
const lists = new WeakMap();

/**
 * Load a list: busy until the latest answer is there; if loading fails, the old list stays under the error.
 * @param {Element} place @param {AbortSignal} signal @param {(signal: AbortSignal) => Promise<void>} work
 */
export function loadList(place, signal, work) {
  const again = () => showingErrors(place, () => whileBusy(place, null, work));
  lists.set(place, again);
  place.setAttribute("data-list", "");
  return showingErrors(place, () => whileBusy(place, signal, work), again);
}

/** Load the lists that are shown again, except those in which something is open or typed. The focus stays. */
export async function refreshLists() {
  for (const place of document.querySelectorAll("[data-list]")) {
    const load = lists.get(place);
    if (
      load &&
      !place.querySelector("details[open], :popover-open, :is(input, textarea, select):not([type=checkbox]):focus")
    ) {
      await keepingFocus(place, load);
    }
  }
}

const FIRST_PAUSE = 400;
const LONGEST_PAUSE = 5_000;
const SLOWER = 1.4;

/**
 * Poll with growing pauses, and not while the page is hidden.
 * @param {() => Promise<"over" | "moved" | "still">} look
 * @param {() => boolean} wanted whether the result is still needed
 */
export async function poll(look, wanted) {
  let pause = FIRST_PAUSE;
  for (;;) {
    const seen = await look();
    if (seen === "over") return;
    pause = Math.min(seen === "moved" ? pause * 1.1 : pause * SLOWER, LONGEST_PAUSE);
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (document.hidden) {
      await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
      pause = FIRST_PAUSE;
    }
    if (!wanted()) return;
  }
}
