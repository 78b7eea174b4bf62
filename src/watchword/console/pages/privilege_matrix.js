/** A table of privileges, scopes and actors: what active policies grant. */

import { html } from "../html.js";
import { number } from "../format.js";
import { withQuery } from "../router.js";
import { GROUP, actorName } from "./actor_names.js";
import { dangerMark, escalates } from "./policy_effect.js";

/**
 * @typedef {{urn: string, name: string, state: string, privileges: string[], scopes: string[],
 *   actors: import("./policies.js").Actors}} Policy
 * @typedef {import("./policies.js").Privilege} Privilege
 * @typedef {{key: string, label: string, kind: number, held: Map<string, {policies: Set<string>, whole: boolean}>}} Who
 */

const ALL_USERS = "all users";
const MOST_WHO = 12;
const MOST_SCOPES = 50;

/** @param {{state: string, scopes: string[]}[]} policies @returns {string[]} the scopes that they grant */
export const scopesOf = (policies) =>
  [...new Set(policies.filter((one) => one.state === "ACTIVE").flatMap((one) => one.scopes))].sort();

/** @param {string} wildcard @param {string} scope whether the wildcard is another scope and covers this one */
const covers = (wildcard, scope) =>
  wildcard !== scope && wildcard.endsWith("*") && scope.startsWith(wildcard.slice(0, -1));

/**
 * @param {Policy[]} policies @param {Privilege[]} privileges @param {string[]} scopes
 * @param {(urn: string) => string} nameOfGroup
 * @returns {Who[]} all users, then groups, then users
 */
export function grid(policies, privileges, scopes, nameOfGroup) {
  const includes = new Map(privileges.map((one) => [one.name, one.includes]));
  /** @type {Map<string, Who>} */
  const found = new Map();
  const names = new Map(
    policies.flatMap((policy) => policy.actors.resolvedUsers.map((user) => [user.urn, user.displayName])),
  );
  for (const policy of policies) {
    if (policy.state !== "ACTIVE") continue;
    const named = [
      ...(policy.actors.allUsers ? [ALL_USERS] : []),
      ...policy.actors.groups,
      ...policy.actors.resolvedUsers.map((user) => user.urn),
    ];
    for (const key of named) {
      const who = found.get(key) ?? {
        key,
        label: kind(key) === 1 ? nameOfGroup(key) : actorName(key, names.get(key)),
        kind: kind(key),
        held: new Map(),
      };
      found.set(key, who);
      for (const privilege of policy.privileges) {
        hold(who, privilege, policy.name, true);
        for (const one of includes.get(privilege) ?? []) hold(who, one, policy.name, false);
      }
      for (const scope of policy.scopes) {
        hold(who, scope, policy.name, true);
        for (const one of scopes.filter((other) => covers(scope, other))) hold(who, one, policy.name, false);
      }
    }
  }
  return [...found.values()].sort((a, b) => a.kind - b.kind || b.held.size - a.held.size || (a.key < b.key ? -1 : 1));
}

/**
 * @param {Who} who
 * @param {string} privilege @param {string} policy @param {boolean} whole named itself, not included
 */
function hold(who, privilege, policy, whole) {
  const cell = who.held.get(privilege) ?? { policies: new Set(), whole: false };
  cell.policies.add(policy);
  cell.whole ||= whole;
  who.held.set(privilege, cell);
}

/** @param {string} key */
const kind = (key) => (key === ALL_USERS ? 0 : key.startsWith(GROUP) ? 1 : 2);

/**
 * @param {Policy[]} policies @param {Privilege[]} privileges @param {number} total
 * @param {URLSearchParams} query its `who`: the page of actors
 * @param {(urn: string) => string} nameOfGroup
 */
export function matrix(policies, privileges, total, query, nameOfGroup) {
  const scopes = scopesOf(policies);
  const all = grid(policies, privileges, scopes, nameOfGroup);
  /** @type {{name: string, rows: {key: string, label: unknown, title: string}[]}[]} */
  const parts = [
    {
      name: "Privileges here",
      rows: privileges.map((one) => ({ key: one.name, label: one.displayName, title: one.allows })),
    },
    {
      name: "Scopes of other services",
      rows: scopes
        .slice(0, MOST_SCOPES)
        .map((scope) => ({ key: scope, label: html`<code>${scope}</code>`, title: "" })),
    },
  ];
  const last = Math.max(1, Math.ceil(all.length / MOST_WHO));
  const page = Math.min(last, Math.max(1, Number.parseInt(query.get("who") ?? "1", 10) || 1));
  const shown = all.slice((page - 1) * MOST_WHO, page * MOST_WHO);
  /** @param {number} to */
  const to = (to) => withQuery({ who: to === 1 ? null : to, page: query.get("page") });
  if (!shown.length) return null;
  return html`<section class="matrix-part" aria-labelledby="matrix-title"><h2 id="matrix-title">Privileges and scopes by
    actor</h2>
    <p class="quiet small">● granted, ○ included in another privilege or wildcard. A group applies to its members.
      ${dangerMark()}: its holder
      can get more.${shown.length > 4 ? html` <span class="scroll-cue">Scroll sideways for more.</span>` : null}</p>
    <div class="table-box matrix-box" tabindex="0" role="region"
      aria-label="Privileges and scopes, and who has them"><table class="matrix">
      <thead><tr><th scope="col">Privilege or scope</th>${shown.map(
        (who) =>
          html`<th scope="col" title="${who.key}"><span>${
            who.kind === 1 ? html`<small>group</small> ` : null
          }${who.label}</span></th>`,
      )}</tr></thead>
      ${parts
        .filter((part) => part.rows.length)
        .map(
          (
            part,
          ) => html`<tbody><tr class="part"><th scope="rowgroup" colspan="${shown.length + 1}">${part.name}</th></tr>
        ${part.rows.map(
          (row) =>
            html`<tr><th scope="row" title="${row.title}">${row.label}${
              escalates(privileges, row.key)
                ? html` <span class="danger-mark" title="Its holder can get more."><span
                  aria-hidden="true">▲</span><span class="unseen">can grant more to itself</span></span>`
                : null
            }</th>${shown.map((who) => {
              const cell = who.held.get(row.key);
              if (!cell) return html`<td></td>`;
              const by = [...cell.policies].join(", ");
              return html`<td title="${by}"><span aria-hidden="true">${cell.whole ? "●" : "○"}</span><span
                class="unseen">by ${by}</span></td>`;
            })}</tr>`,
        )}</tbody>`,
        )}</table></div>
    ${
      last > 1
        ? html`<nav class="pager" aria-label="Pages of actors and groups"><span
          role="status">${number((page - 1) * MOST_WHO + 1)}–${number(
            (page - 1) * MOST_WHO + shown.length,
          )} of ${number(all.length)} actors and groups</span><span
            class="pages">${
              page > 1 ? html`<a id="matrix-previous" href="${to(page - 1)}" rel="prev">‹ Previous</a>` : null
            }
      ${page < last ? html`<a id="matrix-next" href="${to(page + 1)}" rel="next">Next ›</a>` : null}</span></nav>`
        : null
    }
    ${
      scopes.length > MOST_SCOPES
        ? html`<p class="quiet small">Only the first ${number(MOST_SCOPES)} scopes are shown.</p>`
        : null
    }
    ${
      total > policies.length
        ? html`<p class="quiet small">Only the first ${number(policies.length)} policies by name are shown.</p>`
        : null
    }</section>`;
}
