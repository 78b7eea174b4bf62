/** Finds tokens in texts and addresses. */

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

/** As it stands in the text, and without the spaces and line breaks in it. @param {string} text */
export function tokensIn(text) {
  const found = [SHAPE.exec(text), /eyJ[\w-]+(?:\.[\w-]+)*/.exec(text.replaceAll(/\s+/g, ""))];
  return new Set(found.filter((one) => one !== null).map(([token]) => token.replace(/\.+$/, "")));
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
