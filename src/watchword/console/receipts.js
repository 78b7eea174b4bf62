/**
 * Receipts of bulk revocations, kept in this tab until they are dismissed.
 */

import { html, render } from "./html.js";
import { counted, fullTime } from "./format.js";
import { copyButton, notice } from "./components.js";

/** @typedef {{count: number, digest: string, revokedAt: number, words: string, actorUrn: string}} Receipt */
/** @typedef {Receipt & {path: string}} Kept `path`: the page that made it */

const KEPT = "watchword-receipts";

/**
 * The receipts of this tab, this actor and this page. They stay until they are dismissed, also when the session ends.
 * @param {HTMLElement} place @param {string} actorUrn @param {string} path of the page
 */
export function receipts(place, actorUrn, path) {
  const isHere = (/** @type {Kept} */ one) => one.actorUrn === actorUrn && one.path === path;
  let all = read().filter(isHere);
  const show = () =>
    render(
      place,
      all.map((one) =>
        notice(html`<p><strong>Revoked ${counted(one.count, "token")}</strong>
      (${one.words}) at ${fullTime(one.revokedAt)}. No instance accepts any of them.</p>
    <p class="small">Receipt: SHA-256 of their ids <code class="digest">${one.digest}</code>
      ${copyButton(`${one.count} tokens, ${new Date(one.revokedAt).toISOString()}, ${one.digest}`, "Copy receipt")}
      <button type="button" class="plain" @click=${() =>
        put(all.filter((other) => other !== one))}>Dismiss</button></p>`),
      ),
    );
  /** @param {Kept[]} changed */
  const put = (changed) => {
    all = changed;
    try {
      sessionStorage.setItem(KEPT, JSON.stringify([...all, ...read().filter((one) => !isHere(one))]));
    } catch {
      // Without storage the receipt is shown on this page only.
    }
    show();
  };
  show();
  return { add: (/** @type {Receipt} */ receipt) => put([{ ...receipt, path }, ...all].slice(0, 20)) };
}

/** @returns {Kept[]} */
function read() {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}
