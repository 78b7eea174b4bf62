/**
 * Tokens that are pasted: recognised before they reach an address, and looked up by POST.
 */

import { ApiError, graphql } from "./api.js";
import { WHOLE } from "./token_display.js";

// A JWT: its first part is JSON, which begins with eyJ in base64. Ids of tokens are shorter and have no dot.
const JWT = String.raw`(?<![\w+/-])eyJ(?:[\w-]{10,}(?:\.[\w-]*)+|[\w-]{45,})`;
// A token whose beginning was not copied, and what else may be one.
const PART = String.raw`[\w-]{20,}(?:\.[\w-]{20,}){2,}|[\w-]{40,}\.[\w-]{30,}`;
const SHAPE = new RegExp(`${JWT}|${PART}`);
const WITH_REST = new RegExp(String.raw`(?:${JWT}|${PART})(?:\s+[\w.-]{20,})*`, "g");

/** Whether the text contains a token, or something that may be one. @param {string} text */
export const looksLikeToken = (text) => SHAPE.test(text) || new RegExp(JWT).test(text.replaceAll(/\s*\n\s*/g, ""));

/** @param {string} text @returns {string} what is left of it without tokens */
export function withoutTokens(text) {
  const rest = text.replaceAll(WITH_REST, "").trim();
  return looksLikeToken(rest) ? "" : rest;
}

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

/** As it stands in the text, and without the spaces and line breaks in it. @param {string} text */
function tokensIn(text) {
  const found = [SHAPE.exec(text), /eyJ[\w-]+(?:\.[\w-]+)*/.exec(text.replaceAll(/\s+/g, ""))];
  return new Set(found.filter((one) => one !== null).map(([token]) => token.replace(/\.+$/, "")));
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
    const text = event instanceof ClipboardEvent ? event.clipboardData?.getData("text") ?? "" : field.value;
    if (!looksLikeToken(text)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (event.type === "input") field.value = withoutTokens(text);
    found(text);
  };
  for (const type of ["paste", "input"]) document.addEventListener(type, guard, { capture: true });
}

/**
 * Remove tokens from an address. @param {URL} at
 * @returns {string | null} the text that contained one
 */
export function takeToken(at) {
  let found = null;
  for (const [name, value] of [...at.searchParams]) {
    if (!looksLikeToken(value)) continue;
    found = value;
    at.searchParams.delete(name);
  }
  if (looksLikeToken(at.hash)) {
    found = at.hash;
    at.hash = "";
  }
  const part = at.pathname.split("/").find(looksLikeToken);
  if (part) {
    found = part;
    at.pathname = "/";
  }
  return found;
}
