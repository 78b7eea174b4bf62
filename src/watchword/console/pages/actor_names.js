/** Names, urns and addresses of actors and groups. */

import { html } from "../html.js";
import { actor, actorName, nameOf } from "../format.js";
import { copyButton, status } from "../components.js";

export { actorName };
export const GROUP = "urn:li:corpGroup:";

/** @param {string} urn the name of a group */
export const groupName = (urn) => (urn.startsWith(GROUP) ? urn.slice(GROUP.length) : urn);

/** @typedef {{text: string, title?: string}} Named */

/**
 * Whom a policy names, with their urns.
 * @param {import("./policies.js").Actors} actors @param {(urn: string) => string} nameOfGroup @returns {Named[]}
 */
export const whom = (actors, nameOfGroup) => [
  ...(actors.allUsers ? [{ text: "all users" }] : []),
  ...actors.groups.map((urn) => ({ text: `group ${nameOfGroup(urn)}`, title: urn })),
  ...actors.resolvedUsers.map((user) => ({ text: actorName(user.urn, user.displayName), title: user.urn })),
];

/** With commas, the urns on hover. @param {Named[]} named */
export const listed = (named) =>
  named.map(
    ({ text, title }, index) => html`${index ? ", " : ""}${title ? html`<span title="${title}">${text}</span>` : text}`,
  );

/** @param {string} text words with spaces or commas between them */
export const wordsIn = (text) => text.split(/[\s,]+/).filter(Boolean);

/** A whole urn with a button to copy it. @param {string} urn */
export const urnCode = (urn) => html`<span class="urn"><code>${urn}</code> ${copyButton(urn, "Copy urn")}</span>`;

/** The address of an actor's page. @param {string} urn */
export const actorPath = (urn) => `/console/actors/${encodeURIComponent(urn)}`;

/** The address of the page that offboards an actor. @param {string} urn */
export const offboardingPath = (urn) => `${actorPath(urn)}/offboard`;

/** Offboarding needs three privileges. @param {import("../shell.js").Me} me */
export const mayOffboard = ({ privileges }) =>
  privileges.managePolicies && privileges.manageTokens && privileges.manageServiceAccounts;

/**
 * An actor, as a link for callers who may see its page.
 * @param {string} urn @param {import("../shell.js").Me} me @param {string | null} [displayName]
 */
export const actorLink = (urn, me, displayName) =>
  me.privileges.managePolicies && !nameOf(urn).startsWith("__")
    ? html`<a href="${actorPath(urn)}">${actor(urn, displayName)}</a>`
    : actor(urn, displayName);

/** @param {{status: string}} one */
export const actorStatus = (one) =>
  one.status === "SUSPENDED" ? status("revoked", "suspended") : status("live", "active");
