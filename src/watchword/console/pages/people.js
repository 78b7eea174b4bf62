/** Naming actors: by their urn, or a user just by name; with those that are known as suggestions. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { USER, called, nameOf, short } from "../format.js";
import { copyButton, newId } from "../parts.js";

const KNOWN = `query Known($prefix: String) { listActors(input: {prefix: $prefix, count: 10}) { actors { urn } } }`;

export const GROUP = "urn:li:corpGroup:";

/** @param {string} text a urn, or what a user is called @returns {string} the urn */
export function userUrn(text) {
  const name = text.trim();
  return !name || name.startsWith("urn:") ? name : USER + name;
}

/** @param {string} urn what people type for it, of which `userUrn` makes the same urn again */
export const typed = (urn) => called(urn);

/** @param {string} urn what people type for a group */
export const typedGroup = (urn) => (urn.startsWith(GROUP) ? urn.slice(GROUP.length) : urn);

/** @param {string} text urns or names of users, one a line */
export const urnsIn = (text) => [...new Set(text.split(/\s+/).filter(Boolean).map(userUrn))];

/** A urn, whole, with what copies it. @param {string} urn */
export const urnCode = (urn) => html`<span class="urn"><code>${urn}</code> ${copyButton(urn, "Copy the urn")}</span>`;

/** Where an actor's own page is. @param {string} urn */
export const actorPath = (urn) => `/console/actors/${encodeURIComponent(urn)}`;

/** An actor, leading to its page for who may see that. @param {string} urn @param {import("../shell.js").Me} me */
export const actorLink = (urn, me) => (me.privileges.managePolicies && !nameOf(urn).startsWith("__")
  ? html`<a href="${actorPath(urn)}" title="${urn}">${short(called(urn), 14)}</a>`
  : html`<span title="${urn}">${short(called(urn), 14)}</span>`);

/**
 * An input for an actor that suggests those that are known, to who may see them.
 * @param {import("../shell.js").Me} me
 * @param {{id: string, name?: string, value?: string, required?: boolean, placeholder?: string, key?: string,
 *   change?: (urn: string) => void, describedby?: string}} how
 */
export function actorInput(me, { id, name = id, value = "", required = false, placeholder = "alice", key, change, describedby }) {
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
      const found = (await graphql(KNOWN, { prefix: input.value.trim() })).listActors.actors;
      if (mine === last) render(place, found.map((/** @type {{urn: string}} */ one) => html`<option value="${typed(one.urn)}"></option>`));
    } catch {
      // Suggestions are a help: without them the name is typed whole.
    }
  };
  return html`<span class="suggests"><input id="${id}" name="${name}" .value=${value} ?required=${required}
    placeholder="${placeholder}" autocomplete="off" spellcheck="false" autocapitalize="off" maxlength="255"
    list="${suggests ? list : null}" data-key="${key ?? null}" aria-describedby="${describedby ?? null}"
    @input=${suggests ? suggest : null}
    @change=${(/** @type {Event} */ event) => change?.(userUrn(/** @type {HTMLInputElement} */ (event.currentTarget).value))}
    >${suggests ? html`<datalist id="${list}"></datalist>` : null}</span>`;
}
