/** Actors by urn or user name, with known actors as suggestions. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { USER, actor, actorName, nameOf } from "../format.js";
import { copyButton, newId } from "../components.js";

const KNOWN = `query Known($query: String) { listActors(input: {query: $query, count: 10}) { actors { urn displayName } } }`;

export { actorName };
export const GROUP = "urn:li:corpGroup:";

/** @param {string} text a urn or a user's name @returns {string} the urn */
export function userUrn(text) {
  const name = text.trim();
  return !name || name.startsWith("urn:") ? name : USER + name;
}

/** @param {string} urn the name of a group */
export const groupName = (urn) => (urn.startsWith(GROUP) ? urn.slice(GROUP.length) : urn);

/** @param {string} text words with spaces or commas between them */
export const wordsIn = (text) => text.split(/[\s,]+/).filter(Boolean);

/** @param {string} text urns or names of users, one per line */
export const urnsIn = (text) => [...new Set(text.split(/\s+/).filter(Boolean).map(userUrn))];

/** A whole urn with a button to copy it. @param {string} urn */
export const urnCode = (urn) => html`<span class="urn"><code>${urn}</code> ${copyButton(urn, "Copy urn")}</span>`;

/** The address of an actor's page. @param {string} urn */
export const actorPath = (urn) => `/console/actors/${encodeURIComponent(urn)}`;

/** The address of the page that offboards an actor. @param {string} urn */
export const offboardingPath = (urn) => `${actorPath(urn)}/offboard`;

/** Offboarding needs three privileges. @param {import("../shell.js").Me} me */
export const mayOffboard = ({ privileges }) => privileges.managePolicies && privileges.manageTokens && privileges.manageServiceAccounts;

/**
 * An actor, as a link for callers who may see its page.
 * @param {string} urn @param {import("../shell.js").Me} me @param {string | null} [displayName]
 */
export const actorLink = (urn, me, displayName) => (me.privileges.managePolicies && !nameOf(urn).startsWith("__")
  ? html`<a href="${actorPath(urn)}">${actor(urn, displayName)}</a>` : actor(urn, displayName));

/**
 * An input for an actor, with suggestions for callers who may list actors.
 * @param {import("../shell.js").Me} me
 * @param {{id: string, name?: string, value?: string, required?: boolean, placeholder?: string,
 *   change?: (urn: string) => void, describedby?: string}} how
 */
export function actorInput(me, { id, name = id, value = "", required = false, placeholder = "alice", change, describedby }) {
  const list = newId("known");
  const suggests = me.privileges.managePolicies || me.privileges.manageTokens;
  let last = 0;
  /** @param {Event} event */
  const suggest = async (event) => {
    const input = /** @type {HTMLInputElement} */ (event.currentTarget);
    const place = input.parentElement?.querySelector(`#${list}`);
    const mine = (last += 1);
    await new Promise((resolve) => setTimeout(resolve, 150));
    if (mine !== last || !place || !input.value.trim()) return;
    try {
      const found = (await graphql(KNOWN, { query: input.value.trim() })).listActors.actors;
      if (mine === last) render(place, found.map((/** @type {{urn: string, displayName: string | null}} */ one) => html`<option
        value="${actorName(one.urn)}" label="${one.displayName ?? null}"></option>`));
    } catch {
      // Without suggestions the whole name is typed.
    }
  };
  return html`<span class="suggests"><input id="${id}" name="${name}" .value=${value} ?required=${required}
    placeholder="${placeholder}" autocomplete="off" spellcheck="false" autocapitalize="off" maxlength="255"
    list="${suggests ? list : null}" aria-describedby="${describedby ?? null}"
    @input=${suggests ? suggest : null}
    @change=${(/** @type {Event} */ event) => change?.(userUrn(/** @type {HTMLInputElement} */ (event.currentTarget).value))}
    >${suggests ? html`<datalist id="${list}"></datalist>` : null}</span>`;
}
