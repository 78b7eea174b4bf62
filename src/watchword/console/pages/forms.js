/** Forms: an error of the server is shown beside the field that it names. */

import { part, render } from "../html.js";
import { ApiError, isAborted } from "../api.js";
import { errorLine, showErrorAt } from "../components.js";

/**
 * Show an error at its field, which gets the focus, or at the button of the form.
 * @param {HTMLElement} form @param {unknown} error null removes the error
 * @param {Record<string, string>} fields the ids of the controls by the API's names of them
 */
export function showError(form, error, fields = {}) {
  form.querySelectorAll(".field-error, .form-error").forEach((place) => render(place, null));
  if (!error) return;
  const named = error instanceof ApiError && error.field ? fields[error.field] : undefined;
  const place =
    (named && form.querySelector(`[data-field="${named}"] .field-error`)) || form.querySelector(".form-error");
  showErrorAt(place, error);
  const control = named ? form.querySelector(`#${named}`) : null;
  if (control instanceof HTMLElement) control.focus();
}

/**
 * Send a form: its button is disabled meanwhile, an error is shown at its field.
 * @param {Event} event @param {(form: HTMLFormElement) => Promise<unknown>} act
 * @param {Record<string, string>} [fields]
 */
export async function send(event, act, fields) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.currentTarget);
  const button = form.querySelector("button[type=submit]");
  if (!(button instanceof HTMLButtonElement) || button.disabled) return;
  button.disabled = true;
  showError(form, null);
  try {
    await act(form);
  } catch (error) {
    showError(form, error, fields);
  } finally {
    button.disabled = false;
  }
}

/**
 * Move the focus back to the row whose details were closed, unless the user has moved it elsewhere.
 * @param {string | undefined} opened the id of what was open @param {import("../router.js").Context} now
 */
export function backTo(opened, now) {
  const nowhere =
    document.activeElement === document.body || document.activeElement === document.getElementById("main");
  if (nowhere && opened && !now.params[0] && !now.signal.aborted) document.getElementById(opened)?.focus();
}

/**
 * Open the panel that the address names; why it could not be opened stands above the list, with a way to try again.
 * @param {HTMLElement} root @param {() => Promise<unknown>} open
 */
export async function openingPanel(root, open) {
  const place = part(root, "#said-here");
  try {
    await open();
  } catch (error) {
    if (isAborted(error)) return;
    openPanel(root, null);
    const again = () => (render(place, null), openingPanel(root, open));
    render(place, errorLine(error, again));
  }
}

/**
 * Show a panel instead of the one that is there; null closes it.
 * @param {HTMLElement} root @param {HTMLElement | null} node
 */
export function openPanel(root, node) {
  const old = root.querySelector(":scope > .panel");
  // The row keeps the focus by its id when it is redrawn.
  const opener = !node && old?.contains(document.activeElement) ? root.querySelector("tr.here a[id]") : null;
  old?.remove();
  if (opener instanceof HTMLElement) opener.focus();
  if (!node) return;
  root.append(node);
  node.querySelector("h2")?.focus();
}
