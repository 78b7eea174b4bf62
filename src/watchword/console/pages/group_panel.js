/** One group: its members, who joins and who leaves, and its end. */

import { html } from "../html.js";
import { graphql } from "../api.js";
import { counted, number } from "../format.js";
import { ask, field, panel } from "../parts.js";
import { withQuery } from "../router.js";
import { send } from "./forms.js";
import { actorPath, typed, typedGroup, urnCode, urnsIn } from "./people.js";

const GROUP = `query Group($urn: String!, $start: Int) { getGroup(urn: $urn) { urn name description memberCount }
  listGroupMembers(input: {groupUrn: $urn, start: $start, count: 50}) { start count total members { urn } } }`;
const ADD = `mutation Add($input: GroupMembersInput!) { addGroupMembers(input: $input) }`;
const TAKE = `mutation Take($input: GroupMembersInput!) { removeGroupMembers(input: $input) }`;
const REMOVE = `mutation Remove($urn: String!) { removeGroup(urn: $urn) }`;
const COUNT = 50;

/**
 * @param {{urn: string, me: import("../shell.js").Me, close: string, query: URLSearchParams,
 *   signal: AbortSignal, done: (said: unknown, close?: boolean) => Promise<void>}} what
 */
export async function groupPanel({ urn, me, close, query, signal, done }) {
  const at = Math.max(1, Number.parseInt(query.get("members") ?? "1", 10) || 1);
  const { getGroup: group, listGroupMembers: found } = await graphql(GROUP, { urn, start: (at - 1) * COUNT }, { signal });
  const members = /** @type {{urn: string}[]} */ (found.members);

  /** @param {Event} event */
  const add = (event) => send(event, async (form) => {
    const userUrns = urnsIn(String(new FormData(form).get("users")));
    await graphql(ADD, { input: { groupUrn: urn, userUrns } });
    await done(html`Put ${counted(userUrns.length, "actor")} into <strong>${group.name}</strong>.`);
  }, { userUrns: "new-members" });

  /** @param {string} user */
  async function take(user) {
    const sure = await ask({
      title: `Take ${typed(user)} out of ${group.name}?`, danger: true, deed: `Take ${typed(user)} out`,
      content: html`<p>From the next request on ${typed(user)} lacks what policies grant to the group alone. Its tokens stay alive.</p>`,
      act: () => graphql(TAKE, { input: { groupUrn: urn, userUrns: [user] } }),
    });
    if (sure) await done(html`Took <strong>${typed(user)}</strong> out of ${group.name}.`);
  }

  async function remove() {
    const sure = await ask({
      title: `Delete ${group.name}?`, danger: true, deed: `Delete ${group.name}`,
      content: html`<p>Its ${counted(group.memberCount, "member")} no longer ${group.memberCount === 1 ? "has" : "have"} what policies grant to the group. Tokens stay alive.</p>`,
      act: () => graphql(REMOVE, { urn }),
    });
    if (sure) await done(html`Deleted the group <strong>${group.name}</strong>.`, true);
  }

  const last = Math.max(1, Math.ceil(found.total / COUNT));
  return panel({
    title: group.name, close,
    content: html`<dl class="facts"><dt>Id</dt><dd><code>${typedGroup(urn)}</code></dd><dt>Urn</dt><dd>${urnCode(urn)}</dd>
        <dt>Description</dt><dd>${group.description ?? "–"}</dd>
        ${me.privileges.viewAuditLog ? html`<dt>Activity</dt><dd><a href="/console/activity?target=${encodeURIComponent(urn)}">What was done to it</a></dd>` : null}</dl>
      <h3>${counted(found.total, "member")}</h3>
      ${members.length ? html`<ul class="members">${members.map((one) => html`<li><a href="${actorPath(one.urn)}" title="${one.urn}">${typed(one.urn)}</a>
        <button type="button" class="plain" aria-label="Take ${typed(one.urn)} out" @click=${() => take(one.urn)}>Take out…</button></li>`)}</ul>`
        : html`<p class="quiet">Nobody yet: what policies grant to it, nobody has.</p>`}
      ${last > 1 ? html`<p class="row small">Page ${number(at)} of ${number(last)}
        ${at > 1 ? html`<a href="${withQuery({ members: at === 2 ? null : at - 1 })}">‹ Before</a>` : null}
        ${at < last ? html`<a href="${withQuery({ members: at + 1 })}">Next ›</a>` : null}</p>` : null}
      <form @submit=${add}>${field({ id: "new-members", label: "Put in", hint: "Names or urns of users, one a line.",
        control: html`<textarea id="new-members" name="users" required spellcheck="false" aria-describedby="new-members-hint"></textarea>` })}
        <div class="form-error"></div><p class="actions"><button type="submit">Put them in</button>
        <button type="button" class="danger" @click=${remove}>Delete ${group.name}…</button></p></form>`,
  });
}
