/** One actor: its status, its privileges and their policies; suspend and resume. */

import { html } from "../html.js";
import { graphql } from "../api.js";
import { ACCOUNT, counted, time } from "../format.js";
import { ask, field, panel } from "../components.js";
import { actorLink, actorPath, actorName, actorStatus, mayOffboard, offboardingPath, urnCode } from "./actor_names.js";

const ACTOR = `query Actor($urn: String!, $root: String!) {
  getActor(urn: $urn) { urn displayName email status changedAt changedBy changedByName liveTokenCount
  suspendedTokenCount sessionCount groups externalGroups
    identity { issuer subject signedInAt } }
  getGrantedPrivileges(input: {actorUrn: $urn}) { privileges scopes }
  listPrivileges { name displayName allows }
  getPolicy(urn: $root) { actors { users } } }`;
const SET = `mutation SetStatus($urn: String!, $status: CorpUserStatus!) { updateUserStatus(urn: $urn, status: $status)
  }`;
const NAME = `mutation Name($input: SetActorInput!) { setActor(input: $input) }`;
const ROOT = "urn:li:servicePolicy:root";

/**
 * @param {{urn: string, me: import("../shell.js").Me, named: import("../group_names.js").GroupNames, close: string,
 *   query: URLSearchParams, signal: AbortSignal, done: (said: unknown, close?: boolean) => Promise<void>}} what
 */
export async function actorPanel({ urn, me, named, close, signal, done }) {
  const found = await graphql(ACTOR, { urn, root: ROOT }, { signal });
  const actor = found.getActor;
  const name = actorName(urn, actor.displayName);
  /** @type {string[]} */
  const groups = actor.groups;
  await named.look(groups, signal);
  const isRoot = found.getPolicy.actors.users.includes(urn);
  const suspended = actor.status === "SUSPENDED";
  const privileges = found.listPrivileges.filter((/** @type {{name: string}} */ one) =>
    found.getGrantedPrivileges.privileges.includes(one.name),
  );
  /** @type {string[]} */
  const scopes = found.getGrantedPrivileges.scopes;

  async function suspend() {
    const sure = await ask({
      title: `Suspend ${name}?`,
      danger: true,
      action: `Suspend ${name}`,
      content: html`<p>From the next request on, the server rejects everything ${name} does:
        ${counted(actor.liveTokenCount, "live token")}
          and ${counted(actor.sessionCount, "session")}. No token can be created for it.</p>
        <p>Nothing is revoked: after it is resumed, its tokens work again until they expire.</p>`,
      act: () => graphql(SET, { urn, status: "SUSPENDED" }),
    });
    if (sure) await done(html`Suspended <strong>${name}</strong>: the server rejects all its tokens from now on.`);
  }

  async function resume() {
    const sure = await ask({
      title: `Resume ${name}?`,
      action: `Resume ${name}`,
      content: html`<p>${name} may act again, and ${counted(actor.suspendedTokenCount, "token")} of it
        ${actor.suspendedTokenCount === 1 ? "works" : "work"} again.</p>`,
      act: () => graphql(SET, { urn, status: "ACTIVE" }),
    });
    if (sure) await done(html`Resumed <strong>${name}</strong>.`);
  }

  async function rename() {
    const sure = await ask({
      title: `Name ${actorName(urn)}`,
      action: "Save",
      content: html`<p>The console shows the name wherever it shows the actor. It does not affect permissions.</p>
        ${field({
          id: "actor-name",
          label: "Name",
          optional: true,
          control: html`<input id="actor-name" name="displayName" maxlength="200"
          autocomplete="off" .value=${actor.displayName ?? ""}>`,
        })}
        ${field({
          id: "actor-email",
          label: "E-mail",
          optional: true,
          control: html`<input id="actor-email" name="email" type="email"
          maxlength="254" autocomplete="off" .value=${actor.email ?? ""}>`,
        })}`,
      act: (form) =>
        graphql(NAME, {
          input: {
            urn,
            ...Object.fromEntries(["displayName", "email"].map((key) => [key, String(form.get(key)).trim() || null])),
          },
        }),
    });
    if (sure) await done(html`Saved the name of <code>${urn}</code>.`);
  }

  const action = () => {
    if (suspended) return html`<button type="button" class="primary" @click=${resume}>Resume ${name}…</button>`;
    if (isRoot)
      return html`<p class="quiet">The root actor cannot be suspended. Change WATCHWORD_ROOT_ACTOR instead.</p>`;
    if (urn === me.urn) return html`<p class="quiet">This is you. Only another user can suspend you.</p>`;
    return html`<button type="button" class="danger" @click=${suspend}>Suspend ${name}…</button>`;
  };
  const leaves = mayOffboard(me) && !isRoot && urn !== me.urn && !ACCOUNT.test(urn);
  const tokens = suspended
    ? counted(actor.suspendedTokenCount, "suspended token")
    : counted(actor.liveTokenCount, "live token");

  return panel({
    title: name,
    close,
    content: html`<dl class="facts"><dt>Status</dt><dd>${actorStatus(actor)}</dd>
        ${
          actor.changedAt === null
            ? null
            : html`<dt>Changed</dt><dd>${time(actor.changedAt)} by
              ${actorLink(actor.changedBy ?? "", me, actor.changedByName)}</dd>`
        }
        <dt>E-mail</dt><dd>${actor.email ?? "–"}</dd>
        <dt>Urn</dt><dd>${urnCode(urn)}</dd>
        <dt>Tokens</dt><dd>${
          me.privileges.manageTokens
            ? html`<a href="/console/all-tokens?actor=${encodeURIComponent(urn)}">${tokens}</a>`
            : tokens
        }</dd>
        <dt>Groups</dt><dd>${
          groups.length
            ? html`<ul class="grants">${groups.map(
                (/** @type {string} */ group) => html`<li><a
          href="${actorPath(group)}?show=groups">${named.shown(group)}</a></li>`,
              )}</ul>`
            : "none"
        }</dd>
        ${
          actor.externalGroups.length
            ? html`<dt>Groups by sign-in</dt><dd><ul class="grants">${actor.externalGroups.map(
                (/** @type {string} */ group) => html`<li>${named.shown(group)}</li>`,
              )}</ul></dd>`
            : null
        }
        ${
          actor.identity
            ? html`<dt>Signs in as</dt><dd><code>${actor.identity.subject}</code> at ${actor.identity.issuer},
          last ${time(actor.identity.signedInAt)}</dd>`
            : null
        }
        <dt>Sessions</dt><dd><a href="/console/sessions?actor=${encodeURIComponent(urn)}">${counted(
          actor.sessionCount,
          "session",
        )}</a></dd>
        ${
          me.privileges.viewAuditLog
            ? html`<dt>Activity</dt><dd><a href="/console/activity?actor=${encodeURIComponent(urn)}">Events by it</a> ·
          <a href="/console/activity?about=${encodeURIComponent(urn)}">events about it</a></dd>`
            : null
        }</dl>
      <h3>What it may do</h3>
      ${
        privileges.length || scopes.length
          ? html`<ul class="grants">${privileges.map(
              (/** @type {{name: string, displayName: string, allows: string}} */ one) => html`<li><a
        href="/console/policies?actor=${encodeURIComponent(urn)}&amp;privilege=${one.name}"
          title="By which policy?">${one.displayName}</a>:
        <span class="quiet">${one.allows}</span></li>`,
            )}
        ${scopes.map(
          (scope) => html`<li
            >Scope <a
              href="/console/policies?actor=${encodeURIComponent(urn)}&amp;privilege=${encodeURIComponent(scope)}"
          title="By which policy?"><code>${scope}</code></a></li>`,
        )}</ul>`
          : html`<p>Nothing: no active policy names it.</p>`
      }
      ${
        suspended && (privileges.length || scopes.length)
          ? html`<p class="quiet">None of this applies while it is suspended.</p>`
          : null
      }
      <div class="actions">${
        ACCOUNT.test(urn) ? null : html`<button type="button" @click=${rename}>Name…</button>`
      }${action()}${leaves ? html`<a class="button" href="${offboardingPath(urn)}">Offboard…</a>` : null}</div>`,
  });
}
