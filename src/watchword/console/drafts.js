/**
 * Drafts: what is typed into a form is kept in session storage until it is saved or discarded. So it survives Esc,
 * leaving the page, a reload and the end of a session.
 *
 * A draft belongs to one actor. A sign-in removes the drafts of other actors, and a sign-out removes all drafts.
 * Passwords, fields marked `data-secret` and texts that contain a token are never kept.
 */

import { element, html } from "./html.js";
import { looksLikeToken } from "./token_text.js";

const PREFIX = "watchword-draft:";

let actor = "";

/** Keep drafts for this actor, and remove those of others. @param {string} urn */
export function keepDraftsOf(urn) {
  actor = urn;
  remove((key) => !key.startsWith(storageKey("")));
}

/** Remove every draft: the user has signed out. */
export const forgetDrafts = () => remove(() => true);

/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Control */
/** @typedef {Record<string, string[]>} Values the values of controls by name; of boxes those that are checked */

/**
 * Keep what is typed into the form, and restore what was kept before. A restored control gets the events `input` and
 * `change`, as if the user had typed.
 * @param {HTMLFormElement} form @param {string} key what the form is about, such as "group" or a policy's urn
 * @returns {() => void} call it when the form is saved: the draft is removed
 */
export function keepDraft(form, key) {
  const first = read(form);
  const place = storageKey(key);
  let saved = false;

  const keep = () => {
    if (saved) return;
    const now = read(form);
    const changed = Object.entries(now).filter(([name, values]) => values.join("\n") !== first[name]?.join("\n"));
    store(place, changed.length ? JSON.stringify(Object.fromEntries(changed)) : null);
  };
  const forget = () => {
    saved = true;
    store(place, null);
    form.querySelector(".draft")?.remove();
  };

  const kept = load(place);
  if (kept) {
    write(form, kept);
    const line = element(html`<p class="draft quiet small" role="status">Restored what you had typed.
      <button type="button" class="plain" @click=${discard}>Discard</button></p>`);
    (form.querySelector(".dialog-body") ?? form).prepend(line);
  }
  form.addEventListener("input", keep);
  form.addEventListener("change", keep);
  return forget;

  function discard() {
    store(place, null);
    form.querySelector(".draft")?.remove();
    write(form, first);
    controls(form)[0]?.focus();
  }
}

/** @param {string} key */
const storageKey = (key) => `${PREFIX}${actor} ${key}`;

/** The controls that may be kept. @param {HTMLFormElement} form */
const controls = (form) =>
  /** @type {Control[]} */ (
    [...form.elements].filter((node) => {
      if (
        !(node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement || node instanceof HTMLSelectElement)
      )
        return false;
      return (
        node.name &&
        !["password", "file", "hidden", "submit", "button"].includes(node.type) &&
        !node.closest("[data-secret]")
      );
    })
  );

/** @param {Control} control */
const isBox = (control) => control instanceof HTMLInputElement && ["checkbox", "radio"].includes(control.type);

/** @param {HTMLFormElement} form @returns {Values} */
function read(form) {
  /** @type {Values} */
  const values = {};
  for (const control of controls(form)) {
    const here = (values[control.name] ??= []);
    if (isBox(control) ? /** @type {HTMLInputElement} */ (control).checked : !looksLikeToken(control.value))
      here.push(control.value);
  }
  return values;
}

/** @param {HTMLFormElement} form @param {Values} values */
function write(form, values) {
  /** @type {Record<string, number>} */
  const used = {};
  for (const control of controls(form)) {
    const here = values[control.name];
    if (!here) continue;
    if (isBox(control)) {
      const box = /** @type {HTMLInputElement} */ (control);
      if (box.checked === here.includes(box.value)) continue;
      box.checked = !box.checked;
    } else {
      const at = (used[control.name] = (used[control.name] ?? -1) + 1);
      if (here[at] === undefined || control.value === here[at]) continue;
      control.value = here[at];
    }
    control.dispatchEvent(new Event("input", { bubbles: true }));
    control.dispatchEvent(new Event("change", { bubbles: true }));
  }
}

/** @param {string} place @returns {Values | null} */
function load(place) {
  try {
    return JSON.parse(sessionStorage.getItem(place) ?? "null");
  } catch {
    return null;
  }
}

/** @param {string} place @param {string | null} text */
function store(place, text) {
  try {
    if (text === null) sessionStorage.removeItem(place);
    else sessionStorage.setItem(place, text);
  } catch {
    // Without storage nothing is kept.
  }
}

/** @param {(key: string) => boolean} which */
function remove(which) {
  try {
    const mine = Object.keys(sessionStorage).filter((key) => key.startsWith(PREFIX) && which(key));
    mine.forEach((key) => sessionStorage.removeItem(key));
  } catch {
    // Without storage nothing was kept.
  }
}
