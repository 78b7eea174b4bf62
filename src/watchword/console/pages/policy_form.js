/** The form of one policy, with each privilege explained; read-only for policies of the service. */

import { html } from "../html.js";
import { graphql } from "../api.js";
import { counted } from "../format.js";
import { ask, field, panel, status, warning } from "../components.js";
import { keepDraft } from "../drafts.js";
import { typedFrom } from "../damage.js";
import { send } from "./forms.js";
import { actorName, groupName, urnCode, urnsIn, wordsIn } from "./actor_names.js";

/** @typedef {import("./policies.js").Policy} Policy @typedef {import("./policies.js").Privilege} Privilege */

const GROUPS = `{ listGroups(input: {count: 200}) { total groups { urn name memberCount } } }`;
const CREATE = `mutation Create($input: PolicyUpdateInput!) { createPolicy(input: $input) }`;
const UPDATE = `mutation Update($urn: String!, $input: PolicyUpdateInput!) { updatePolicy(urn: $urn, input: $input) }`;
const DELETE = `mutation Delete($urn: String!) { deletePolicy(urn: $urn) }`;
const FIELDS = {
  name: "policy-name", description: "policy-description", privileges: "policy-privileges", scopes: "policy-scopes",
  "actors.users": "policy-users", "actors.groups": "policy-groups", actors: "policy-users",
};

/**
 * @param {{policy: Policy | null, privileges: Privilege[], me: import("../shell.js").Me, close: string,
 *   signal: AbortSignal, done: (said: unknown) => Promise<void>}} what without a policy: a new one
 */
export async function policyPanel({ policy, privileges, me, close, signal, done }) {
  if (policy && !policy.editable) return kept(policy, privileges, close);
  /** @type {{urn: string, name: string, memberCount: number}[]} */
  const known = (await graphql(GROUPS, {}, { signal })).listGroups.groups;
  const groups = [...known, ...(policy?.actors.groups ?? []).filter((urn) => !known.some((one) => one.urn === urn))
    .map((urn) => ({ urn, name: groupName(urn), memberCount: -1 }))];

  /** @param {Event} event */
  const save = (event) => send(event, async (form) => {
    const given = new FormData(form);
    const input = {
      type: "PLATFORM",
      name: String(given.get("name")),
      description: String(given.get("description")) || null,
      state: given.has("active") ? "ACTIVE" : "INACTIVE",
      privileges: given.getAll("privilege"),
      scopes: wordsIn(String(given.get("scopes"))),
      actors: { users: urnsIn(String(given.get("users"))), groups: given.getAll("group"), allUsers: given.has("everybody") },
    };
    if (policy) await graphql(UPDATE, { urn: policy.urn, input });
    else await graphql(CREATE, { input });
    saved();
    await done(html`${policy ? "Changed" : "Created"} the policy <strong>${input.name}</strong>. It applies from the next request on.`);
  }, FIELDS);

  async function remove() {
    if (!policy) return;
    const { resolvedUsers: users, groups: named, allUsers } = policy.actors;
    const people = groups.filter((one) => named.includes(one.urn)).reduce((sum, one) => sum + Math.max(0, one.memberCount), users.length);
    const sure = await ask({
      title: `Delete ${policy.name}?`, danger: true, action: `Delete ${policy.name}`,
      typed: policy.state !== "ACTIVE" ? undefined : allUsers ? policy.name : typedFrom(people),
      content: html`<p>From the next request on, ${allUsers ? "all users, " : ""}${counted(named.length, "group")}
          and ${counted(users.length, "user")} lose ${counted(policy.privileges.length, "privilege")} and
          ${counted(policy.scopes.length, "scope")}, unless another policy grants them.</p>
        <p>Their tokens stay valid. To stop them, revoke the tokens or suspend the actor.</p>
        ${policy.source === "FILE" ? warning("It comes from a policy file and returns when the file is applied again.") : null}`,
      act: () => graphql(DELETE, { urn: policy.urn }),
    });
    if (sure) await done(html`Deleted the policy <strong>${policy.name}</strong>.`);
  }

  const node = panel({
    title: policy ? policy.name : "New policy", close,
    content: html`${policy?.source === "FILE" ? warning(html`It comes from a policy file: the next time the file is applied, it
        overwrites your changes. Change the file too.`) : null}
      <form id="policy-form" @submit=${save}>
      ${field({ id: "policy-name", label: "Name", control: html`<input id="policy-name" name="name" required maxlength="200"
        autocomplete="off" .value=${policy?.name ?? ""}>` })}
      ${field({ id: "policy-description", label: "Description", optional: true, control: html`<textarea id="policy-description"
        name="description" maxlength="1000" .value=${policy?.description ?? ""}></textarea>` })}
      <fieldset data-field="policy-privileges" id="policy-privileges" tabindex="-1"><legend>Privileges</legend>
        ${privileges.map((one) => html`<label class="choice"><input type="checkbox" name="privilege" value="${one.name}"
          .checked=${policy?.privileges.includes(one.name) ?? false}><span>${one.displayName}<small>${one.allows}${one.includes.length
            ? ` Includes: ${one.includes.map((word) => privileges.find((other) => other.name === word)?.displayName ?? word).join(", ")}.` : ""}</small></span></label>`)}
        <div class="field-error"></div></fieldset>
      ${field({ id: "policy-scopes", label: "Scopes of other services", optional: true,
        hint: "Separated by spaces. orders:* grants all that begin with orders:.",
        control: html`<textarea id="policy-scopes" name="scopes" class="mono" rows="2" spellcheck="false" placeholder="reports:read orders:*"
          aria-describedby="policy-scopes-hint" .value=${(policy?.scopes ?? []).join("\n")}></textarea>` })}
      <fieldset data-field="policy-groups" id="policy-groups" tabindex="-1"><legend>Actors</legend>
        <label class="choice"><input type="checkbox" name="everybody" .checked=${policy?.actors.allUsers ?? false}><span>All users<small>Every actor
          with a valid token.</small></span></label>
        ${groups.map((one) => html`<label class="choice"><input type="checkbox" name="group" value="${one.urn}"
          .checked=${policy?.actors.groups.includes(one.urn) ?? false}><span>Group ${one.name}<small>${one.memberCount < 0
            ? "This group does not exist." : counted(one.memberCount, "member")}</small></span></label>`)}
        <div class="field-error"></div></fieldset>
      ${field({ id: "policy-users", label: "Users", optional: true, hint: "Names or urns, one per line. For many users, create a group.",
        control: html`<textarea id="policy-users" name="users" spellcheck="false" aria-describedby="policy-users-hint"
          .value=${(policy?.actors.resolvedUsers ?? []).map((user) => actorName(user.urn)).join("\n")}></textarea>` })}
      <label class="choice spaced"><input type="checkbox" name="active" .checked=${policy ? policy.state === "ACTIVE" : true}><span>Active<small>An
        inactive policy grants nothing.</small></span></label>
      <div class="form-error"></div>
      <p class="actions"><button type="submit" class="primary">${policy ? "Save policy" : "Create policy"}</button>
        ${policy ? html`<button type="button" class="danger" @click=${remove}>Delete ${policy.name}…</button>` : null}</p></form>
      ${policy ? html`<p class="quiet small">${urnCode(policy.urn)}${me.privileges.viewAuditLog
        ? html` · <a href="/console/activity?target=${encodeURIComponent(policy.urn)}">Activity</a>` : null}</p>` : null}`,
  });
  const saved = keepDraft(/** @type {HTMLFormElement} */ (node.querySelector("form")), `policy ${policy?.urn ?? "new"}`);
  return node;
}

/** A policy that the service manages. @param {Policy} policy @param {Privilege[]} privileges @param {string} close */
const kept = (policy, privileges, close) => panel({
  title: policy.name, close,
  content: html`<p>The service writes this policy at each start, from the setting <code>WATCHWORD_ROOT_ACTOR</code>. It cannot be changed
      or deleted here; change the setting and restart.</p>
    <dl class="facts"><dt>Status</dt><dd>${policy.state === "ACTIVE" ? status("live", "active") : status("off", "inactive")}</dd>
      <dt>Description</dt><dd>${policy.description ?? "–"}</dd>
      <dt>To</dt><dd>${policy.actors.resolvedUsers.map((user) => actorName(user.urn, user.displayName)).join(", ") || "–"}</dd>
      <dt>Grants</dt><dd><ul class="grants">${privileges.filter((one) => policy.privileges.includes(one.name))
        .map((one) => html`<li>${one.displayName}: <span class="quiet">${one.allows}</span></li>`)}
        ${policy.scopes.map((scope) => html`<li>Scope <code>${scope}</code></li>`)}</ul></dd>
      <dt>Urn</dt><dd>${urnCode(policy.urn)}</dd></dl>`,
});
