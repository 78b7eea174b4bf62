/**
 * The form of one policy, with each privilege explained; read-only for policies of the service, and for who may only
 * view them.
 */

import { html, render } from "../html.js";
import { ApiError, graphql } from "../api.js";
import { ask, errorLine, field, latestSignal, panel, showErrorAt, status, warning } from "../components.js";
import { actorPicker, subjectsIn } from "../actor_picker.js";
import { keepDraft } from "../drafts.js";
import { typedFrom } from "../damage.js";
import { send } from "./forms.js";
import { listed, urnCode, whom, wordsIn } from "./actor_names.js";
import { dangerMark, effectOf, effectText, escalates, isGrave, noOne } from "./policy_effect.js";
import { scopesOf } from "./privilege_matrix.js";

/** @typedef {import("./policies.js").Policy} Policy @typedef {import("./policies.js").Privilege} Privilege */

const KNOWN = `query Known { listGroups(input: {count: 1000}) { groups { urn name memberCount } }
  listPolicies(input: {count: 200}) { policies { state scopes } } }`;
const MOST_SCOPES = 12;
const CREATE = `mutation Create($input: PolicyUpdateInput!) { createPolicy(input: $input) }`;
const UPDATE = `mutation Update($urn: String!, $input: PolicyUpdateInput!, $revision: String) {
  updatePolicy(urn: $urn, input: $input, revision: $revision) }`;
const DELETE = `mutation Delete($urn: String!) { deletePolicy(urn: $urn) }`;
const FIELDS = {
  name: "policy-name",
  description: "policy-description",
  privileges: "policy-privileges",
  scopes: "policy-scopes",
  "actors.users": "policy-subjects",
  "actors.groups": "policy-subjects",
  actors: "policy-subjects",
};

/**
 * @param {{policy: Policy | null, privileges: Privilege[], me: import("../shell.js").Me,
 *   named: import("../group_names.js").GroupNames, close: string, signal: AbortSignal, done: (said: unknown) =>
 *   Promise<void>}} what without a policy: a new one
 */
export async function policyPanel({ policy, privileges, me, named, close, signal, done }) {
  if (policy && !(policy.editable && me.privileges.managePolicies)) {
    await named.look(policy.actors.groups, signal);
    return shown(policy, privileges, named, close);
  }
  const known = await graphql(KNOWN, {}, { signal });
  /** @type {{urn: string, name: string, memberCount: number}[]} */
  const groups = known.listGroups.groups;
  const scopes = scopesOf(known.listPolicies.policies).filter(
    (scope) => scope !== "*" && !policy?.scopes.includes(scope),
  );
  const picker = actorPicker(me, {
    id: "policy-subjects",
    name: "subjects",
    kinds: "both",
    many: true,
    describedby: "policy-subjects-hint",
    placeholder: "Name of a person or group",
    chosen: [
      ...(policy?.actors.resolvedUsers ?? []),
      ...(policy?.actors.groups ?? []).map((urn) => groups.find((one) => one.urn === urn) ?? { urn }),
    ],
  });

  /** @param {HTMLFormElement} form */
  function inputOf(form) {
    const given = new FormData(form);
    return {
      type: "PLATFORM",
      name: String(given.get("name")),
      description: String(given.get("description")) || null,
      state: given.has("active") ? "ACTIVE" : "INACTIVE",
      privileges: given.getAll("privilege"),
      scopes: wordsIn(String(given.get("scopes"))),
      actors: { ...subjectsIn(String(given.get("subjects"))), allUsers: given.has("everybody") },
    };
  }

  /** @param {Event} event */
  const save = (event) =>
    send(
      event,
      async (form) => {
        picker.check("actors");
        const input = inputOf(form);
        const effect = await effectOf({ urn: policy?.urn, input });
        if (isGrave(effect, privileges, me.urn)) {
          const sure = await ask({
            title: effect.appliesTo === 0 ? "Save a policy for no one?" : `Save ${input.name}?`,
            action: "Save policy",
            cancel: "Back",
            content: effectText(effect, privileges, me.urn),
          });
          if (!sure) return;
        }
        if (policy) await graphql(UPDATE, { urn: policy.urn, input, revision: policy.revision });
        else await graphql(CREATE, { input });
        saved();
        await done(
          html`${policy ? "Changed" : "Created"} the policy <strong>${input.name}</strong>. It applies from the next
            request on.`,
        );
      },
      FIELDS,
    );

  async function remove() {
    if (!policy) return;
    /** @type {import("./policy_effect.js").Effect} */
    let effect;
    try {
      effect = await effectOf({ urn: policy.urn }, signal);
    } catch (error) {
      if (!(error instanceof DOMException)) showErrorAt(node.querySelector(".form-error"), error);
      return;
    }
    const sure = await ask({
      title: `Delete ${policy.name}?`,
      danger: true,
      action: `Delete ${policy.name}`,
      typed: effect.changes.some((one) => one.count === null)
        ? policy.name
        : typedFrom(Math.max(0, ...effect.changes.map((one) => one.count ?? 0))),
      content: html`<p>From the next request on:</p>${effectText({ ...effect, appliesTo: null }, privileges, me.urn)}
        <p>Tokens stay valid. To stop them, revoke the tokens or suspend the actor.</p>
        ${
          policy.source === "FILE"
            ? warning("It comes from a policy file and returns when the file is applied again.")
            : null
        }`,
      act: () => graphql(DELETE, { urn: policy.urn }),
    });
    if (!sure) return;
    saved();
    await done(html`Deleted the policy <strong>${policy.name}</strong>.`);
  }

  /** Show what saving would do, a moment after the last change. @param {HTMLFormElement} form */
  async function preview(form) {
    const place = /** @type {HTMLElement} */ (form.querySelector("#policy-effect"));
    const mine = latestSignal(place, signal);
    await new Promise((resolve) => setTimeout(resolve, 250));
    if (mine.aborted) return;
    const input = inputOf(form);
    if (!input.privileges.length && !input.scopes.length) {
      render(place, html`<p class="quiet">Choose privileges or scopes to see who gains what.</p>`);
      return;
    }
    if (!input.actors.users.length && !input.actors.groups.length && !input.actors.allUsers && !policy) {
      render(place, noOne());
      return;
    }
    try {
      const effect = await effectOf(
        { urn: policy?.urn, input: { ...input, name: input.name.trim() || "policy" } },
        mine,
      );
      render(place, effectText(effect, privileges, me.urn));
    } catch (error) {
      if (error instanceof DOMException) return;
      render(
        place,
        error instanceof ApiError && error.status === 400
          ? html`<p class="quiet">${error.message}</p>`
          : errorLine(error, () => preview(form)),
      );
    }
  }

  /** @param {string} word of a privilege */
  const nameOf = (word) => privileges.find((one) => one.name === word)?.displayName ?? word;

  /** @param {Event} event add a scope that another policy grants */
  const addScope = (event) => {
    const area = /** @type {HTMLTextAreaElement} */ (node.querySelector("#policy-scopes"));
    const scope = /** @type {HTMLElement} */ (event.currentTarget).textContent ?? "";
    if (!wordsIn(area.value).includes(scope)) area.value = [...wordsIn(area.value), scope].join("\n");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  };

  const node = panel({
    title: policy ? policy.name : "New policy",
    close,
    content: html`${
      policy?.source === "FILE"
        ? warning(html`It comes from a policy file: the next time the file is applied, it
        overwrites your changes. Change the file too.`)
        : null
    }
      <form id="policy-form" @submit=${save} @input=${(/** @type {Event} */ event) =>
        preview(/** @type {HTMLFormElement} */ (event.currentTarget))}>
      ${field({
        id: "policy-name",
        label: "Name",
        control: html`<input id="policy-name" name="name" required maxlength="200"
        autocomplete="off" .value=${policy?.name ?? ""}>`,
      })}
      ${field({
        id: "policy-description",
        label: "Description",
        optional: true,
        control: html`<textarea id="policy-description"
        name="description" maxlength="1000" .value=${policy?.description ?? ""}></textarea>`,
      })}
      <fieldset data-field="policy-privileges" id="policy-privileges" tabindex="-1"><legend>Privileges</legend>
        ${privileges.map(
          (one) => html`<label class="choice"><input type="checkbox" name="privilege" value="${one.name}"
          .checked=${policy?.privileges.includes(one.name) ?? false}><span>${one.displayName}
            ${one.escalates ? dangerMark() : null}<small>${one.allows}${
              one.includes.length ? ` Includes: ${one.includes.map(nameOf).join(", ")}.` : ""
            }</small></span></label>`,
        )}
        <div class="field-error"></div></fieldset>
      ${field({
        id: "policy-scopes",
        label: "Scopes of other services",
        optional: true,
        hint: "Separated by spaces. orders:* grants all that begin with orders:.",
        control: html`<textarea id="policy-scopes" name="scopes" class="mono" rows="2" spellcheck="false"
          placeholder="reports:read orders:*"
          aria-describedby="policy-scopes-hint" .value=${(policy?.scopes ?? []).join("\n")}></textarea>
          ${
            scopes.length
              ? html`<p class="row small" role="group" aria-label="Scopes that other policies grant"><span
                class="quiet">Known:</span>
            ${scopes
              .slice(0, MOST_SCOPES)
              .map((scope) => html`<button type="button" class="plain mono" @click=${addScope}>${scope}</button>`)}</p>`
              : null
          }`,
      })}
      ${field({
        id: "policy-subjects",
        label: "People and groups",
        optional: true,
        hint: "Type a part of a name and choose. Several names, ids or urns may be pasted, one per line.",
        control: picker.node,
      })}
      <label class="choice spaced"><input type="checkbox" name="everybody"
        .checked=${policy?.actors.allUsers ?? false}><span>All users<small>Every actor
        with a valid token.</small></span></label>
      <label class="choice spaced"><input type="checkbox" name="active"
        .checked=${policy ? policy.state === "ACTIVE" : true}><span>Active<small>An
        inactive policy grants nothing.</small></span></label>
      <section class="effect" aria-labelledby="effect-title"><h3 id="effect-title">Effect of saving</h3><div
        id="policy-effect" aria-live="polite"></div></section>
      <div class="form-error"></div>
      <p class="actions"><button type="submit" class="primary">${policy ? "Save policy" : "Create policy"}</button>
        ${
          policy ? html`<button type="button" class="danger" @click=${remove}>Delete ${policy.name}…</button>` : null
        }</p></form>
      ${
        policy
          ? html`<p class="quiet small">${urnCode(policy.urn)}${
              me.privileges.viewAuditLog
                ? html` · <a href="/console/activity?target=${encodeURIComponent(policy.urn)}">Activity</a>`
                : null
            }</p>`
          : null
      }`,
  });
  const form = /** @type {HTMLFormElement} */ (node.querySelector("form"));
  const saved = keepDraft(form, `policy ${policy?.urn ?? "new"}`);
  void preview(form);
  return node;
}

/**
 * A policy that cannot be changed here.
 * @param {Policy} policy @param {Privilege[]} privileges @param {import("../group_names.js").GroupNames} named
 * @param {string} close
 */
const shown = (policy, privileges, named, close) =>
  panel({
    title: policy.name,
    close,
    content: html`<p>${
      policy.editable
        ? "You may view this policy. To change it needs Manage Policies."
        : html`The service writes this policy at each start, from the setting <code>WATCHWORD_ROOT_ACTOR</code>. It
      cannot be changed or deleted here; change the setting and restart.`
    }</p>
    <dl class="facts"><dt>Status</dt><dd>${
      policy.state === "ACTIVE" ? status("live", "active") : status("off", "inactive")
    }</dd>
      <dt>Description</dt><dd>${policy.description ?? "–"}</dd>
      <dt>To</dt><dd>${whom(policy.actors, named.name).length ? listed(whom(policy.actors, named.name)) : "–"}</dd>
      <dt>Grants</dt><dd><ul class="grants">${privileges
        .filter((one) => policy.privileges.includes(one.name))
        .map(
          (one) =>
            html`<li>${one.displayName}: <span class="quiet">${one.allows}</span>
              ${one.escalates ? dangerMark() : null}</li>`,
        )}
        ${policy.scopes.map(
          (scope) =>
            html`<li>Scope <code>${scope}</code> ${
              escalates(privileges, scope) ? dangerMark("every scope") : null
            }</li>`,
        )}</ul></dd>
      <dt>Urn</dt><dd>${urnCode(policy.urn)}</dd></dl>`,
  });
