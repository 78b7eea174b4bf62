/**
 * How tokens are shown, and which actions the caller may take.
 */

import { html, svg } from "./html.js";
import { DAY, idToPath, time, tokenPath } from "./format.js";
import { status } from "./components.js";

/**
 * @typedef {object} Token
 * @property {string} id
 * @property {string} urn
 * @property {string} name
 * @property {string | null} description
 * @property {string} actorUrn
 * @property {string | null} actorName
 * @property {string} ownerUrn
 * @property {string | null} ownerName
 * @property {"PERSONAL" | "SERVICE_ACCOUNT"} tokenType
 * @property {"ACTIVE" | "EXPIRED" | "REVOKED"} status
 * @property {"ACTIVE" | "EXPIRED" | "REVOKED" | "SUSPENDED"} effectiveStatus
 * @property {number} createdAt
 * @property {number | null} expiresAt
 * @property {number | null} lastUsedAt
 * @property {number} useCount
 * @property {string | null} lastNetwork
 * @property {number | null} revokedAt
 * @property {string[] | null} scopes
 * @property {string[] | null} audience
 * @property {string[] | null} allowedNetworks
 * @property {string | null} parentId
 * @property {string | null} createdWith
 * @property {string | null} replaces
 * @property {string | null} replacedBy
 * @property {number | null} replacedAt
 * @property {boolean} awaitsFirstUse
 * @property {number | null} expiresAtOnceUsed
 *
 * @typedef {{name: string, displayName: string, allows: string, includes: string[]}} Privilege
 * @typedef {{field: string, value?: string, values?: string[], condition?: string, negated?: boolean}} Filter
 */

export const SOON = 7 * DAY;

/** What a list of tokens shows. */
export const ROW = `id name description actorUrn actorName ownerUrn ownerName tokenType status effectiveStatus createdAt
  expiresAt lastUsedAt revokedAt scopes
  parentId replacedBy replacedAt awaitsFirstUse`;

/** All fields of a token. */
export const WHOLE = `${ROW} urn useCount lastNetwork audience allowedNetworks createdWith replaces expiresAtOnceUsed`;

/** @type {Filter} Live, expired and revoked. Without it a list leaves revoked tokens out. */
export const ANY_STATUS = { field: "status", condition: "IN", values: ["ACTIVE", "EXPIRED", "REVOKED"] };

/** @param {Token} token */
export const endsSoon = (token) =>
  token.effectiveStatus === "ACTIVE" && token.expiresAt !== null && token.expiresAt - Date.now() < SOON;

/** @param {Token} token */
export function statusOf(token) {
  if (token.status === "REVOKED") return status("revoked");
  if (token.status === "EXPIRED") return status("expired");
  if (token.effectiveStatus === "SUSPENDED") return status("revoked", "suspended");
  if (token.awaitsFirstUse) return status("waiting", "not used yet");
  if (token.replacedAt !== null) return status("waiting", "being replaced");
  if (token.replacedBy) return html`${status("live")} <span class="quiet small">has a successor</span>`;
  return status("live");
}

/** When it expires or expired, marked if that is soon. @param {Token} token */
export function endOf(token) {
  if (token.status === "REVOKED") return html`revoked ${time(token.revokedAt)}`;
  if (token.status === "EXPIRED") return html`expired ${time(token.expiresAt)}`;
  if (token.expiresAt === null) return html`<span class="quiet">never</span>`;
  return html`<span class="ends" data-ends>${time(token.expiresAt)}${
    endsSoon(token) ? html` <span class="status soon"><span aria-hidden="true">▲</span> soon</span>` : lifeBar(token)
  }</span>`;
}

/** How much of its lifetime has passed, as a short bar. @param {Token} token */
function lifeBar(token) {
  const length = /** @type {number} */ (token.expiresAt) - token.createdAt;
  const share = Math.min(1, Math.max(0, (Date.now() - token.createdAt) / length));
  return html`<svg class="life" viewBox="0 0 40 4" width="40" height="4"
    aria-hidden="true">${svg`<rect class="rest" width="40"
    height="4" rx="2"></rect><rect class="gone" width="${(share * 40).toFixed(1)}" height="4" rx="2"></rect>`}</svg>`;
}

/** @param {string[] | null} scopes in one short phrase */
export function scopesInShort(scopes) {
  if (scopes === null) return html`<span class="quiet">all of its actor</span>`;
  if (!scopes.length) return html`<span class="quiet">none</span>`;
  const words = scopes.map((scope) => sentenceCase(scope));
  return html`<span title="${scopes.join("\n")}">${words.slice(0, 2).join(", ")}${
    words.length > 2 ? html` <span class="quiet">and ${words.length - 2} more</span>` : null
  }</span>`;
}

/** MANAGE_POLICIES → Manage policies; scopes of other services stay as they are. @param {string} scope */
const sentenceCase = (scope) =>
  /^[A-Z][A-Z0-9_]*$/.test(scope)
    ? (scope.slice(0, 1) + scope.slice(1).toLowerCase()).replaceAll("_", " ").replace(/ privilege$/, "")
    : scope;

/**
 * Where its details are shown: in the list of all tokens, if it acts as another.
 * @param {Token} token @param {import("./shell.js").Me} me
 */
export const detailsPath = (token, me) =>
  token.actorUrn !== me.urn && me.privileges.manageTokens
    ? `/console/all-tokens/${idToPath(token.id)}`
    : tokenPath(token.id);

/** @param {Token} token a link to its details */
export const tokenLink = (token) => html`<a href="${tokenPath(token.id)}">${token.name}</a>`;

/**
 * Whether the caller may create tokens for the actor of this one.
 * @param {Token} token @param {import("./shell.js").Me} me
 */
export function mayCreate(token, { urn, privileges: may }) {
  if (token.actorUrn === urn) return may.generatePersonalAccessTokens;
  return token.tokenType === "SERVICE_ACCOUNT" ? may.manageServiceAccounts : may.manageTokens;
}

/** @param {Token} token @param {import("./shell.js").Me} me */
export const mayRotate = (token, me) =>
  token.effectiveStatus === "ACTIVE" && !token.awaitsFirstUse && token.replacedAt === null && mayCreate(token, me);

/** @param {Token} token @param {import("./shell.js").Me} me */
export function mayRevoke(token, me) {
  const { privileges: may } = me;
  const own = token.actorUrn === me.urn || token.ownerUrn === me.urn;
  return (
    may.manageTokens ||
    (own && may.generatePersonalAccessTokens) ||
    (token.tokenType === "SERVICE_ACCOUNT" && may.manageServiceAccounts)
  );
}
