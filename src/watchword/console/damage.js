/** Friction follows damage: what a question about many things shows, and from which number on it must be typed. */

import { html } from "./html.js";
import { number, time } from "./format.js";

/** What to type before `count` things are damaged: nothing below ten, then their number. @param {number} count */
export const typedFrom = (count) => (count < 10 ? undefined : String(count));

/**
 * The tokens that were used last, and how many more there are.
 * @param {{name: string, lastUsedAt: number | null, lastNetwork?: string | null}[]} tokens the last used first
 * @param {number} total of which these are the first
 */
export function lastUsed(tokens, total) {
  const used = tokens.filter((token) => token.lastUsedAt !== null);
  if (!used.length) return html`<p>None of them was ever used.</p>`;
  return html`<p>Used last:</p><ul class="grants">${used.map(
    (token) => html`<li><strong>${token.name}</strong>,
      ${time(token.lastUsedAt)}${token.lastNetwork ? html` from <code>${token.lastNetwork}</code>` : null}</li>`,
  )}</ul>
    ${total > used.length ? html`<p class="quiet small">And ${number(total - used.length)} more.</p>` : null}`;
}
