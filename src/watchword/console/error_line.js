/** How an error is shown: the server's message, its reason code and a way to do again what failed. */

import { html, render } from "./html.js";
import { ApiError } from "./api.js";
import { focusPage } from "./focus.js";

/**
 * The server's message, with its reason code and request id in small type.
 * @param {unknown} error @param {() => unknown} [retry] does again what failed; not offered for wrong input
 */
export function errorLine(error, retry) {
  if (!error) return null;
  const known = error instanceof ApiError ? error : null;
  const sentence = error instanceof Error ? error.message : String(error);
  const small = known ? [known.reason, known.requestId && `request ${known.requestId}`].filter(Boolean) : [];
  return html`<div class="error" role="alert">
    <span class="mark" aria-hidden="true">▲</span>
    <div><p>${sentence}</p>${small.length ? html`<p class="small mono">${small.join(" · ")}</p>` : null}
      ${
        retry && known?.status !== 400
          ? html`<p><button type="button" @click=${retrying(retry)}>Retry</button></p>`
          : null
      }</div>
  </div>`;
}

/**
 * Show an error where the user looks: at what was done, scrolled into view. @param {Element | null | undefined} place
 * @param {unknown} error @param {() => unknown} [retry]
 */
export function showErrorAt(place, error, retry) {
  if (!place) return;
  render(place, errorLine(error, retry));
  place.scrollIntoView({ block: "nearest" });
}

/** @param {() => unknown} retry */
const retrying = (retry) => async (/** @type {Event} */ event) => {
  /** @type {HTMLButtonElement} */ (event.currentTarget).disabled = true;
  await retry();
  focusPage();
};
