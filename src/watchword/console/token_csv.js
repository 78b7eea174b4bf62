/**
 * Tokens as a CSV file.
 */

import { actorName } from "./format.js";
import { csvText, csvTime, saveCsv } from "./csv.js";

/** @typedef {import("./token_display.js").Token} Token */

/** @type {[string, (token: Token) => import("./csv.js").Cell][]} */
const COLUMNS = [
  ["id", (token) => token.id],
  ["name", (token) => token.name],
  ["description", (token) => token.description],
  ["status", (token) => token.effectiveStatus],
  ["kind", (token) => token.tokenType],
  ["actor", (token) => actorName(token.actorUrn, token.actorName)],
  ["actor urn", (token) => token.actorUrn],
  ["owner", (token) => actorName(token.ownerUrn, token.ownerName)],
  ["owner urn", (token) => token.ownerUrn],
  ["scopes", (token) => (token.scopes === null ? "all of its actor" : token.scopes.join(" "))],
  ["created", (token) => csvTime(token.createdAt)],
  ["expires", (token) => csvTime(token.expiresAt)],
  ["last used", (token) => csvTime(token.lastUsedAt)],
  ["uses", (token) => token.useCount],
  ["last network", (token) => token.lastNetwork],
  ["revoked", (token) => csvTime(token.revokedAt)],
];

/** @param {Token[]} tokens */
export const saveTokens = (tokens) =>
  saveCsv(
    `tokens-${new Date().toISOString().slice(0, 10)}.csv`,
    csvText(
      COLUMNS.map(([name]) => name),
      tokens.map((token) => COLUMNS.map(([, cell]) => cell(token))),
    ),
  );
