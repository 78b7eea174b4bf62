/**
 * Tokens that are pasted: looked up by POST, and kept out of fields.
 */

import { ApiError, graphql } from "./api.js";
import { WHOLE } from "./token_display.js";
import { looksLikeToken, tokensIn, withoutTokens } from "./token_text.js";

/**
 * Look a token up by its text, also in a header, in quotes or with line breaks. Only the token is sent.
 * @param {string} text @param {AbortSignal} [signal]
 * @returns {Promise<import("./token_display.js").Token | null>} null: there is none that the caller may see
 */
export async function findToken(text, signal) {
  const query = `query FindToken($token: String!) { getAccessTokenMetadata(token: $token) { ${WHOLE} } }`;
  for (const token of tokensIn(text)) {
    try {
      return (await graphql(query, { token }, { signal })).getAccessTokenMetadata;
    } catch (error) {
      if (!(error instanceof ApiError && [400, 404].includes(error.status))) throw error;
    }
  }
  return null;
}

const FIELDS = "input:not([type=password], [type=checkbox], [type=radio], [data-secret]), textarea:not([data-secret])";

/**
 * Take tokens out of every field, before a page puts the text into its address or saves it. A field that is for a token
 * has the attribute `data-secret`.
 * @param {(text: string) => void} found called with the text that contains the token
 */
export function guardFields(found) {
  /** @param {Event} event */
  const guard = (event) => {
    const field = event.target;
    if (!(field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement) || !field.matches(FIELDS)) return;
    // What is pasted is longer than what the field would take of it.
    const text = event instanceof ClipboardEvent ? (event.clipboardData?.getData("text") ?? "") : field.value;
    if (!looksLikeToken(text)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (event.type === "input") field.value = withoutTokens(text);
    found(text);
  };
  for (const type of ["paste", "input"]) document.addEventListener(type, guard, { capture: true });
}
