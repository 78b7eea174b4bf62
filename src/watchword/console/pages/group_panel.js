/** One group: add and remove members, delete the group. */

import { html } from "../html.js";
import { graphql } from "../api.js";
import { actor, counted, number } from "../format.js";
import { ask, field, panel } from "../components.js";
import { typedFrom } from "../damage.js";
import { withQuery } from "../router.js";
import { send, showError } from "./forms.js";
import { actorPicker } from "../actor_picker.js";
import { actorPath, actorName, groupName, urnCode } from "./actor_names.js";

const GROUP = `query Group($urn: String!, $start: Int) { getGroup(urn: $urn) { urn name description memberCount }
  listGroupMembers(input: {groupUrn: $urn, start: $start, count: 50}) { start count total members { urn displayName } }
  }`;
const ADD = `mutation Add($input: GroupMembersInput!) { addGroupMembers(input: $input) }`;
const TAKE = `mutation Take($input: GroupMembersInput!) { removeGroupMembers(input: $input) }`;
const REMOVE = `mutation Remove($urn: String!) { removeGroup(urn: $urn) }`;
const POLICIES = `{ listPolicies(input: {count: 1000}) { policies { name state actors { groups } } } }`;
const COUNT = 50;
const NAMED = 5;

/**
 * @param {{urn: string, me: import("../shell.js").Me, close: string, query: URLSearchParams,
 *   signal: AbortSignal, done: (said: unknown, close?: boolean) => Promise<void>}} what
 */
export async function groupPanel({ urn, me, close, query, signal, done }) {
  const at = Math.max(1, Number.parseInt(query.get("members") ?? "1", 10) || 1);
  const { getGroup: group, listGroupMembers: found } = await graphql(
    GROUP,
    { urn, start: (at - 1) * COUNT },
    { signal },
  );
  const members = /** @type {{urn: string, displayName: string | null}[]} */ (found.members);

  const picker = actorPicker(me, {
    id: "new-members",
    name: "users",
    many: true,
    required: true,
    describedby: "new-members-hint",
  });
  /** @param {Event} event */
  const add = (event) =>
    send(
      event,
      async () => {
        picker.check("userUrns");
        const userUrns = picker.urns();
        await graphql(ADD, { input: { groupUrn: urn, userUrns } });
        await done(html`Added ${counted(userUrns.length, "actor")} to <strong>${group.name}</strong>.`);
      },
      { userUrns: "new-members" },
    );

  /** @param {string} user @param {string} name */
  async function take(user, name) {
    const sure = await ask({
      title: `Remove ${name} from ${group.name}?`,
      danger: true,
      action: `Remove ${name}`,
      content: html`<p>From the next request on, ${name} lacks the privileges that policies grant only to the group. Its
        tokens stay valid.</p>`,
      act: () => graphql(TAKE, { input: { groupUrn: urn, userUrns: [user] } }),
    });
    if (sure) await done(html`Removed <strong>${name}</strong> from ${group.name}.`);
  }

  async function remove() {
    /** @type {{name: string, state: string, actors: {groups: string[]}}[]} */
    let named;
    try {
      named = (await graphql(POLICIES, {}, { signal })).listPolicies.policies;
    } catch (error) {
      // Without knowing who loses what, nothing is deleted.
      if (!signal.aborted) showError(node, error);
      return;
    }
    named = named.filter((policy) => policy.state === "ACTIVE" && policy.actors.groups.includes(urn));
    const sure = await ask({
      title: `Delete ${group.name}?`,
      danger: true,
      action: `Delete ${group.name}`,
      typed: named.length ? typedFrom(group.memberCount) : undefined,
      content: named.length
        ? html`<p>Its ${counted(group.memberCount, "member")} ${group.memberCount === 1 ? "loses" : "lose"} what
          ${counted(named.length, "policy grants", "policies grant")} to the group, unless another policy grants it.
          Tokens stay valid.</p>
          <ul class="grants">${named.slice(0, NAMED).map((policy) => html`<li>${policy.name}</li>`)}</ul>
          ${named.length > NAMED ? html`<p class="quiet small">And ${number(named.length - NAMED)} more.</p>` : null}`
        : html`<p>No active policy names it: its ${counted(group.memberCount, "member")}
          ${group.memberCount === 1 ? "loses" : "lose"} no privilege.</p>`,
      act: () => graphql(REMOVE, { urn }),
    });
    if (sure) await done(html`Deleted the group <strong>${group.name}</strong>.`, true);
  }

  const last = Math.max(1, Math.ceil(found.total / COUNT));
  const node = panel({
    title: group.name,
    close,
    content: html`<dl class="facts"><dt>Id</dt><dd><code>${groupName(urn)}</code></dd><dt>Urn</dt>
      <dd>${urnCode(urn)}</dd>
        <dt>Description</dt><dd>${group.description ?? "–"}</dd>
        ${
          me.privileges.viewAuditLog
            ? html`<dt>Activity</dt><dd><a href="/console/activity?target=${encodeURIComponent(urn)}">Events about
              it</a></dd>`
            : null
        }</dl>
      <h3>${counted(found.total, "member")}</h3>
      ${
        members.length
          ? html`<ul class="members">${members.map(
              (one) => html`<li><a href="${actorPath(one.urn)}">${actor(one.urn, one.displayName)}</a>
        <button type="button" class="plain" aria-label="Remove ${actorName(one.urn, one.displayName)}"
          @click=${() => take(one.urn, actorName(one.urn, one.displayName))}>Remove…</button></li>`,
            )}</ul>`
          : html`<p class="quiet">No members: the privileges of the group apply to no one.</p>`
      }
      ${
        last > 1
          ? html`<p class="row small">Page ${number(at)} of ${number(last)}
        ${at > 1 ? html`<a href="${withQuery({ members: at === 2 ? null : at - 1 })}">‹ Previous</a>` : null}
        ${at < last ? html`<a href="${withQuery({ members: at + 1 })}">Next ›</a>` : null}</p>`
          : null
      }
      <form @submit=${add}>${field({
        id: "new-members",
        label: "Add members",
        hint: "Type a part of a name and choose. Several names, ids or urns may be pasted, one per line.",
        control: picker.node,
      })}
        <div class="form-error"></div><p class="actions"><button type="submit">Add</button>
        <button type="button" class="danger" @click=${remove}>Delete ${group.name}…</button></p></form>`,
  });
  return node;
}
