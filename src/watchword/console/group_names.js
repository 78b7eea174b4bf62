/** The names of groups that a page shows: looked up together, once for the page. */

import { graphql } from "./api.js";
import { html } from "./html.js";
import { groupName } from "./pages/actor_names.js";

const GROUPS = `query GroupNames($start: Int) { listGroups(input: {start: $start, count: 1000}) { total groups {
  urn name } } }`;
const MOST_REQUESTS = 5;

/**
 * @typedef {{look: (urns: string[], signal: AbortSignal) => Promise<void>, name: (urn: string) => string,
 *   shown: (urn: string) => unknown}} GroupNames
 *   `look`: before `name`; asks the server only for groups that it was not asked for yet. `name`: the last part of the
 *   urn if there is no name, or the caller may not see it. `shown`: the name, with the urn on hover
 */

/** @param {import("./shell.js").Me} me @returns {GroupNames} */
export function groupNames(me) {
  /** @type {Map<string, string>} */
  const names = new Map();
  /** @type {Set<string>} */
  const asked = new Set();
  let last = Promise.resolve();

  /** @param {string[]} urns @param {AbortSignal} signal */
  async function ask(urns, signal) {
    const isOpen = () => urns.some((urn) => !asked.has(urn) && !names.has(urn));
    let more = me.privileges.viewPolicies;
    for (let seen = 0, requests = 0; more && isOpen() && requests < MOST_REQUESTS; requests += 1) {
      /** @type {{total: number, groups: {urn: string, name: string}[]}} */
      const { total, groups } = (await graphql(GROUPS, { start: seen }, { signal })).listGroups;
      groups.forEach((one) => names.set(one.urn, one.name));
      seen += groups.length;
      more = groups.length > 0 && seen < total;
    }
    urns.forEach((urn) => asked.add(urn));
  }

  const name = (/** @type {string} */ urn) => names.get(urn) ?? groupName(urn);
  return {
    // One after the other: what one lookup found, the next need not ask for.
    look: (urns, signal) => (last = last.catch(() => undefined).then(() => ask(urns, signal))),
    name,
    shown: (urn) => html`<span title="${urn}">${name(urn)}</span>`,
  };
}
