/**
 * Offboarding step by step: suspend, own tokens, tokens made for others, service accounts, groups and policies,
 * receipt. What is done and what is left comes from the service at every step, so it can be left and resumed anywhere,
 * by anyone.
 */

import { element, html, render } from "../html.js";
import { graphql } from "../api.js";
import { actor, counted, exact, fullTime, number, time, tokenPath } from "../format.js";
import { ask, field, loadList, notice, showErrorAt, table, warning } from "../components.js";
import { lastUsed, typedFrom } from "../damage.js";
import { keepDraft } from "../drafts.js";
import { go, setHooks, withQuery } from "../router.js";
import { statusOf } from "../token_display.js";
import { groupNames } from "../group_names.js";
import { actorLink, actorName, actorPath, urnCode } from "./actor_names.js";

/**
 * @typedef {import("../token_display.js").Token} Token
 * @typedef {{urn: string, displayName: string, status: string}} Account
 * @typedef {{urn: string, name: string, editable: boolean, source: "SERVICE" | "FILE" | "API"}} Policy
 * @typedef {{count: number, digest: string, revokedAt: number}} Revoked
 * @typedef {{urn: string, name: string, set: string | null}} Former
 * @typedef {{at: number, actorUrn: string, actorName: string | null, tokens: Revoked, tokensForOthers: Revoked,
 *   sessionCount: number, groups: Former[], policies: Former[]}} Suspension
 * @typedef {{urn: string, displayName: string | null, status: string, known: boolean, tokenCount: number,
 *   tokens: Token[], tokensForOthersCount: number, tokensForOthers: Token[], sessionCount: number, serviceAccounts:
 *   Account[], groups: string[], declaredGroups: {urn: string, set: string}[], policies: Policy[], suspension:
 *   Suspension | null}} Plan
 * @typedef {{name: string, actorUrn: string, lastUsedAt: number | null, lastNetwork: string | null}} Use
 * @typedef {"suspend" | "tokens" | "forOthers" | "accounts" | "access" | "receipt"} Step
 */

const TOKEN = `id name actorUrn actorName status effectiveStatus awaitsFirstUse replacedAt replacedBy lastUsedAt
  lastNetwork expiresAt`;
const REVOKED = `{ count digest revokedAt }`;
const FORMER = `{ urn name set }`;
const PLAN = `mutation Offboarding($urn: String!) { offboardActor(input: {urn: $urn, dryRun: true}) {
  urn displayName status known sessionCount groups declaredGroups { urn set } tokenCount tokens { ${TOKEN} }
  tokensForOthersCount tokensForOthers { ${TOKEN} }
  serviceAccounts { urn displayName status } policies { urn name editable source }
  suspension { at actorUrn actorName tokens ${REVOKED} tokensForOthers ${REVOKED} sessionCount groups ${FORMER}
  policies ${FORMER} } } }`;
const USES = `query Uses($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total tokens {
  name actorUrn lastUsedAt lastNetwork } } }`;
const SUSPEND = `mutation Suspend($urn: String!) { updateUserStatus(urn: $urn, status: SUSPENDED) }`;
const REVOKE = `mutation Revoke($input: RevokeAccessTokensInput!) { revokeAccessTokens(input: $input) { count } }`;
const LEAVE = `mutation Leave($urn: String!) { offboardActor(input: {urn: $urn, dryRun: false}) { receipt {
  groups tokens { count } } } }`;
const POLICY = `query Policy($urn: String!) { getPolicy(urn: $urn) {
  revision name state description privileges scopes actors { users groups allUsers } } }`;
const UPDATE = `mutation Update($urn: String!, $input: PolicyUpdateInput!, $revision: String) {
  updatePolicy(urn: $urn, input: $input, revision: $revision) }`;

/** @type {[Step, string][]} */
const STEPS = [
  ["suspend", "Suspend"],
  ["tokens", "Own tokens"],
  ["forOthers", "Tokens for others"],
  ["accounts", "Service accounts"],
  ["access", "Groups and policies"],
  ["receipt", "Receipt"],
];
const NAMED = 5;

/** How much is left in each step. @param {Plan} plan @returns {Record<Step, number>} */
const leftIn = (plan) => ({
  suspend: plan.suspension ? 0 : 1,
  tokens: plan.tokenCount,
  forOthers: plan.tokensForOthersCount,
  accounts: plan.serviceAccounts.length,
  access: plan.groups.length + plan.policies.filter(isRemovable).length,
  receipt: 0,
});

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  const urn = context.params[0];
  let at = context;
  /** @type {string | null} */
  let shown = null;
  /** @type {Set<string>} ids of tokens, kept when the list loads again */
  let selected = new Set();
  const named = groupNames(me);
  render(
    root,
    html`<div class="page-head"><h1 id="title">Offboard ${actorName(urn)}</h1>
      <a class="button" href="${actorPath(urn)}">Back to the actor</a></div>
    <p class="quiet lead">Each step shows what there is before it changes anything. Leave at any time: the service knows
      what is done.</p>
    <div id="said-here"></div><div id="offboarding" class="stack"></div>`,
  );
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @param {import("../router.js").Context} now */
  const show = async (now) => {
    at = now;
    await load();
  };

  const load = () =>
    loadList(place("offboarding"), at.signal, async (signal) => {
      const plan = /** @type {Plan} */ ((await graphql(PLAN, { urn }, { signal })).offboardActor);
      const [uses] = await Promise.all([usesOf(plan.serviceAccounts, signal), named.look(plan.groups, signal)]);
      const left = leftIn(plan);
      const asked = STEPS.find(([word]) => word === at.query.get("step"))?.[0];
      const step = asked ?? STEPS.find(([word]) => left[word] > 0)?.[0] ?? "receipt";
      const name = actorName(urn, plan.displayName);
      at.title(`Offboard ${name}`);
      render(place("title"), `Offboard ${name}`);
      render(
        place("offboarding"),
        html`${steps(step, left, plan.policies.filter((policy) => !isRemovable(policy)).length)}
      ${
        plan.known
          ? null
          : warning(
              html`<p>Nothing is known of <code>${urn}</code>: no token, name, group, session or policy. Check the
                urn.</p>`,
            )
      }
      <section class="card stack offboarding-step" aria-labelledby="step-title"><h2 id="step-title"
        tabindex="-1">${STEPS.find(([word]) => word === step)?.[1]}</h2>
      ${contents[step](plan, name, uses)}<div class="step-error"></div>${onward(step)}</section>`,
      );
      const form = place("offboarding").querySelector("form.note");
      if (form instanceof HTMLFormElement) keepNote(form);
      const picks = place("offboarding").querySelector("form.picks");
      if (picks instanceof HTMLFormElement) countSelected(picks);
      if (shown !== null && shown !== step) place("step-title").focus();
      shown = step;
    });

  /** @param {Step} here @param {Record<Step, number>} left @param {number} kept policies that cannot be changed here */
  const steps = (here, left, kept) =>
    html`<nav aria-label="Steps" class="offboarding-steps"><ol>${STEPS.map(
      ([word, label], index) => html`<li>
    <a href="${stepPath(word)}" id="step-${word}" aria-current="${word === here ? "step" : null}">${index + 1}. ${label}
      <span class="quiet small block">${
        word === "receipt"
          ? "to print"
          : word === "suspend"
            ? (left.suspend ? "to do" : "✓ done")
            : left[word]
              ? `${number(left[word])} left`
              : word === "access" && kept
                ? `✓ ${number(kept)} cannot be changed here`
                : "✓ none left"
      }</span></a></li>`,
    )}</ol></nav>`;

  /** @param {Step} step */
  const stepPath = (step) => withQuery({ step });

  /** @param {Step} step */
  const onward = (step) => {
    const index = STEPS.findIndex(([word]) => word === step);
    const next = STEPS[index + 1];
    return next
      ? html`<p class="actions"><a class="button" id="next-step" href="${stepPath(next[0])}">Next: ${next[1]}</a></p>`
      : null;
  };

  /** @type {Record<Step, (plan: Plan, name: string, uses: Use[]) => unknown>} */
  const contents = {
    suspend: (plan, name) =>
      plan.suspension
        ? html`<p>${name} has been suspended since ${fullTime(plan.suspension.at)}, by
          ${actor(plan.suspension.actorUrn, plan.suspension.actorName)}.
          The server rejects everything ${name} does.</p>`
        : html`<p>From the next request on, the server rejects everything ${name} does:
          ${counted(plan.tokenCount, "live token")} and
          ${counted(plan.sessionCount, "session")}, which ${plan.sessionCount === 1 ? "ends" : "end"}. Nothing is
          revoked: until the next step, this can be undone by resuming ${name}.</p>
        <p><button type="button" class="danger" id="suspend" @click=${(/** @type {Event} */ event) =>
          act(
            event,
            async () => {
              await graphql(SUSPEND, { urn });
              return html`Suspended <strong>${name}</strong>.`;
            },
            "tokens",
          )}>Suspend ${name}</button></p>`,

    tokens: (plan, name) =>
      plan.tokenCount
        ? html`<p>${counted(plan.tokenCount, "token")} of ${name}, the last used first.
          ${
            plan.suspension
              ? "They are rejected while the suspension lasts. To revoke them is final."
              : html`<strong>Suspend ${name} first</strong>,
          so that no token is created meanwhile.`
          }</p>
        ${tokens(plan.tokens, "Own tokens")}${more(plan.tokens.length, plan.tokenCount)}
        <p><button type="button" class="danger" id="revoke-own" @click=${() =>
          revoke(
            { filters: [{ field: "actorUrn", value: urn }] },
            `tokens of ${name}`,
            plan.tokens,
            plan.tokenCount,
            "forOthers",
          )}>Revoke ${counted(plan.tokenCount, "token")}…</button></p>`
        : html`<p>${name} has no token that is valid.</p>`,

    forOthers: (plan, name) =>
      plan.tokensForOthersCount
        ? html`<p>${counted(plan.tokensForOthersCount, "token")} that ${name} created for others, the last
          used first. ${name} may have kept a copy of each. Their programs stop working when you revoke them: rotate
          them, or ask their owners, if they are in use.</p>
        <form class="picks" @submit=${(/** @type {Event} */ event) => revokeSelected(event, plan.tokensForOthers)}
          @change=${(/** @type {Event} */ event) =>
            countSelected(/** @type {HTMLFormElement} */ (event.currentTarget))}>
          ${tokens(
            plan.tokensForOthers,
            "Tokens created for others",
            true,
          )}${more(plan.tokensForOthers.length, plan.tokensForOthersCount)}
          <p class="actions"><label class="choice"><input type="checkbox" id="select-all"
            @change=${selectAll}><span>Select all shown</span></label>
            <button type="submit" class="danger" id="revoke-tokens-for-others" disabled>Revoke
              selected…</button></p></form>`
        : html`<p>No token that ${name} created for others is valid.</p>`,

    accounts: (plan, name, uses) =>
      plan.serviceAccounts.length
        ? html`<p>${counted(plan.serviceAccounts.length, "service account")} that ${name} created.
          They do not depend on ${name} and stay. Tokens of theirs that ${name} created are in the step before.</p>
        ${table({
          caption: "Service accounts",
          rows: plan.serviceAccounts,
          columns: [
            {
              label: "Name",
              cell: (one) => html`<a href="/console/accounts/${encodeURIComponent(one.urn)}">${one.displayName}</a>`,
            },
            {
              label: "Live tokens",
              class: "number",
              cell: (one) =>
                number(one.status === "SUSPENDED" ? 0 : uses.filter((use) => use.actorUrn === one.urn).length),
            },
            {
              label: "Last used",
              cell: (one) => {
                const last = uses.find((use) => use.actorUrn === one.urn);
                return html`${time(last?.lastUsedAt)}${
                  last?.lastUsedAt && last.lastNetwork ? ` from ${last.lastNetwork}` : ""
                }`;
              },
            },
          ],
        })}<p class="quiet small">Open an account to delete it, with its tokens.</p>`
        : html`<p>No service account was created by ${name}.</p>`,

    access: (plan, name) => html`<h3>${counted(plan.groups.length, "group")}</h3>
      ${
        plan.groups.length
          ? html`<ul class="grants">${plan.groups.map(
              (group) =>
                html`<li><a href="${actorPath(group)}?show=groups" title="${group}">${named.name(group)}</a></li>`,
            )}</ul>
        ${declared(
          plan.declaredGroups.map((group) => ({ ...group, name: named.name(group.urn) })),
          name,
        )}
        ${
          plan.suspension && !plan.tokenCount
            ? html`<p><button type="button" class="danger" id="leave-groups" @click=${(/** @type {Event} */ event) =>
                act(event, async () => {
                  const { receipt } = (await graphql(LEAVE, { urn })).offboardActor;
                  return html`Removed <strong>${name}</strong> from ${counted(receipt.groups.length, "group")}.`;
                })}>Remove ${name} from ${counted(plan.groups.length, "group")}</button></p>`
            : html`<p class="quiet">First ${
                plan.suspension ? html`revoke the tokens of ${name}` : html`suspend ${name}`
              }: <a href="${stepPath(plan.suspension ? "tokens" : "suspend")}">go
            there</a>.</p>`
        }`
          : html`<p>${name} is a member of no group.</p>${declared(plan.suspension?.groups ?? [], name)}`
      }
      <h3>${counted(plan.policies.length, "policy", "policies")}</h3>
      ${
        plan.policies.length
          ? html`<p>Each names ${name} and grants ${name} nothing while the suspension lasts.</p>
        <ul class="members">${plan.policies.map(
          (policy) => html`<li><a href="/console/policies/${encodeURIComponent(policy.urn)}">${policy.name}</a>
          ${
            isRemovable(policy)
              ? html`<button type="button" id="policy-${policy.urn}" @click=${(/** @type {Event} */ event) =>
                  act(event, () =>
                    takeOut(policy, name),
                  )}>Remove ${name}<span class="unseen"> from ${policy.name}</span></button>`
              : html`<span class="quiet small">stays: ${whyKept(policy)}</span>`
          }</li>`,
        )}</ul>
        ${
          plan.policies.every(isRemovable)
            ? null
            : html`<p class="quiet">You can continue: the receipt names what stays, and why.</p>`
        }`
          : html`<p>No policy names ${name}.</p>`
      }`,

    receipt: (plan, name, uses) => html`<div class="receipt stack">
      ${
        plan.suspension && !plan.tokenCount
          ? null
          : warning(
              html`<p>Not complete: ${
                plan.suspension
                  ? `${counted(plan.tokenCount, "token")} can be used again if ${name} is resumed`
                  : `${name} is not suspended`
              }. <a href="${stepPath(plan.suspension ? "tokens" : "suspend")}">Go there.</a></p>`,
            )
      }
      <dl class="facts"><dt>Who</dt><dd><strong>${name}</strong></dd><dt>Urn</dt><dd>${urnCode(urn)}</dd>
        <dt>Suspended</dt><dd>${
          plan.suspension
            ? html`${fullTime(plan.suspension.at)} by ${actor(plan.suspension.actorUrn, plan.suspension.actorName)}`
            : "no"
        }</dd>
        ${
          plan.suspension
            ? html`<dt>Own tokens</dt><dd>${revoked(plan.suspension.tokens)}</dd>
          <dt>Tokens for others</dt><dd>${revoked(plan.suspension.tokensForOthers)}</dd>`
            : null
        }
        <dt>Sessions</dt><dd>${plan.sessionCount ? `${number(plan.sessionCount)} open` : "none open"}${
          plan.suspension?.sessionCount ? `; ${number(plan.suspension.sessionCount)} ended by the suspension` : null
        }</dd>
        <dt>Groups</dt><dd>${
          plan.groups.length ? `member of ${counted(plan.groups.length, "group")}` : "member of none"
        }${removedFrom(plan.suspension?.groups)}</dd>
        <dt>Policies</dt><dd>${
          plan.policies.length ? `named by ${counted(plan.policies.length, "policy", "policies")}` : "named by none"
        }${removedFrom(plan.suspension?.policies)}</dd>
        <dt>Read</dt><dd>${exact(Date.now())} by ${actor(me.urn, me.displayName)} at ${location.origin}</dd></dl>
      ${declared(
        [
          ...plan.declaredGroups.map((group) => ({ ...group, name: named.name(group.urn) })),
          ...(plan.suspension?.groups ?? []),
        ],
        name,
      )}
      <h3>Left alone</h3>${leftAlone(plan, name, uses)}
      <form class="note">${field({
        id: "note",
        label: "Note",
        optional: true,
        hint: "Printed with the receipt. It is not stored by the service.",
        control: html`<textarea id="note" name="note" maxlength="2000" aria-describedby="note-hint"></textarea>`,
      })}<p class="printed-note text"></p></form>
      <p class="actions"><button type="button" class="primary" id="print"
        @click=${() => print()}>Print</button></p></div>`,
  };

  /** @param {Revoked} what */
  const revoked = (what) =>
    what.count
      ? html`${counted(what.count, "token")} revoked since, the last at ${fullTime(what.revokedAt)}
    <span class="block small">SHA-256 of their ids <code class="digest">${what.digest}</code></span>`
      : "none revoked since";

  /** @param {Plan} plan @param {string} name @param {Use[]} uses */
  function leftAlone(plan, name, uses) {
    const inUse = new Set(uses.filter((use) => use.lastUsedAt !== null).map((use) => use.actorUrn));
    const items = [
      ...plan.tokensForOthers.map(
        (token) => html`The token <strong>${token.name}</strong> of ${actor(token.actorUrn, token.actorName)},
        ${token.lastUsedAt === null ? "never used" : html`last used ${time(token.lastUsedAt)}`}: it belongs to another
        actor.`,
      ),
      ...(plan.tokensForOthersCount > plan.tokensForOthers.length
        ? [`${number(plan.tokensForOthersCount - plan.tokensForOthers.length)} more tokens of others.`]
        : []),
      ...plan.serviceAccounts.map(
        (one) =>
          html`The service account <strong>${one.displayName}</strong>: ${
            inUse.has(one.urn) ? "a program uses it" : "it does not depend on its creator"
          }.`,
      ),
      ...plan.groups.map((group) => html`The group <strong>${named.name(group)}</strong>: ${name} is still a member.`),
      ...plan.policies.map(
        (policy) =>
          html`The policy <strong>${policy.name}</strong>, which names ${name}: ${
            policy.source === "API" ? "it grants nothing while the suspension lasts" : whyKept(policy)
          }.`,
      ),
    ];
    return items.length
      ? html`<ul class="grants">${items.map((item) => html`<li>${item}</li>`)}</ul>`
      : html`<p>Nothing.</p>`;
  }

  /** @param {HTMLFormElement} form */
  function keepNote(form) {
    const copy = () => {
      const text = String(new FormData(form).get("note"));
      render(/** @type {HTMLElement} */ (form.querySelector(".printed-note")), text);
    };
    form.addEventListener("input", copy);
    form.addEventListener("submit", (event) => event.preventDefault());
    keepDraft(form, `offboarding ${urn}`);
  }

  /** @param {Token[]} rows @param {string} caption @param {boolean} [selectable] */
  const tokens = (rows, caption, selectable = false) =>
    table({
      caption,
      rows,
      columns: [
        {
          label: "Name",
          cell: (token) =>
            selectable
              ? html`<span class="pick"><input type="checkbox" name="token" value="${token.id}"
        id="pick-${token.id}" .checked=${selected.has(token.id)} aria-label="Select ${token.name}"><a
          href="${tokenPath(token.id)}">${token.name}</a></span>`
              : html`<a href="${tokenPath(token.id)}">${token.name}</a>`,
        },
        ...(selectable
          ? [{ label: "Acts as", cell: (/** @type {Token} */ token) => actorLink(token.actorUrn, me, token.actorName) }]
          : []),
        {
          label: "Last used",
          cell: (token) => html`${time(token.lastUsedAt)}${token.lastNetwork ? ` from ${token.lastNetwork}` : ""}`,
        },
        { label: "Expires", cell: (token) => time(token.expiresAt) },
        { label: "Status", cell: (token) => statusOf(token) },
      ],
    });

  /** @param {number} here @param {number} total */
  const more = (here, total) =>
    total > here ? html`<p class="quiet small">And ${number(total - here)} more.</p>` : null;

  /** @param {Event} event */
  function selectAll(event) {
    const { checked, form } = /** @type {HTMLInputElement} */ (event.currentTarget);
    form?.querySelectorAll("input[name=token]").forEach((box) => {
      /** @type {HTMLInputElement} */ (box).checked = checked;
    });
  }

  /** @param {HTMLFormElement} form */
  function countSelected(form) {
    selected = new Set(new FormData(form).getAll("token").map(String));
    const button = /** @type {HTMLButtonElement} */ (place("revoke-tokens-for-others"));
    button.disabled = !selected.size;
    button.textContent = selected.size ? `Revoke ${number(selected.size)} selected…` : "Revoke selected…";
  }

  /** @param {Event} event @param {Token[]} rows */
  async function revokeSelected(event, rows) {
    event.preventDefault();
    const ids = [...selected];
    if (ids.length)
      await revoke(
        { ids },
        "selected tokens",
        rows.filter((token) => ids.includes(token.id)),
        ids.length,
      );
  }

  /**
   * Count by a dry run, ask, revoke.
   * @param {Record<string, unknown>} input @param {string} words @param {Token[]} rows the last used first
   * @param {number} total of which these are the first @param {Step} [next]
   */
  async function revoke(input, words, rows, total, next) {
    clear();
    try {
      const { count } = (await graphql(REVOKE, { input: { ...input, dryRun: true } }, { signal: at.signal }))
        .revokeAccessTokens;
      const many = counted(count, "token");
      const sure = await ask({
        title: `Revoke ${many}?`,
        danger: true,
        action: `Revoke ${many}`,
        typed: typedFrom(count),
        content: html`<p>Everything that uses the ${words} stops working immediately. This cannot be undone.</p>
          ${
            count > total
              ? html`<p>${counted(count - total, "token")} more than listed: derived from them, or created since.</p>`
              : null
          }
          ${lastUsed(rows.slice(0, NAMED), count)}`,
        act: () => graphql(REVOKE, { input: { ...input, dryRun: false, atMost: count } }),
      });
      if (sure) await done(html`Revoked <strong>${many}</strong> (${words}).`, next);
    } catch (error) {
      if (!(error instanceof DOMException))
        showErrorAt(root.querySelector(".step-error"), error, () => revoke(input, words, rows, total, next));
    }
  }

  /** @param {Policy} policy @param {string} name */
  async function takeOut(policy, name) {
    // As it is now: it may have changed since it was shown.
    const { actors, revision, ...rest } = (await graphql(POLICY, { urn: policy.urn })).getPolicy;
    const users = actors.users.filter((/** @type {string} */ user) => user !== urn);
    await graphql(UPDATE, {
      urn: policy.urn,
      input: { ...rest, type: "PLATFORM", actors: { ...actors, users } },
      revision,
    });
    return html`Removed <strong>${name}</strong> from the policy <strong>${policy.name}</strong>.`;
  }

  /** Remove what was said before. */
  function clear() {
    render(place("said-here"), null);
    root.querySelectorAll(".step-error").forEach((old) => render(old, null));
  }

  /**
   * Do what a button says.
   * @param {Event} event @param {() => Promise<unknown>} work returns what was done @param {Step} [next]
   */
  async function act(event, work, next) {
    const button = /** @type {HTMLButtonElement} */ (event.currentTarget);
    if (button.disabled) return;
    button.disabled = true;
    clear();
    try {
      await done(await work(), next);
    } catch (error) {
      button.disabled = false;
      const beside =
        button.closest("li, p")?.querySelector(":scope > .step-error") ?? element(html`<div class="step-error"></div>`);
      button.closest("li, p")?.after(beside);
      showErrorAt(beside, error);
    }
  }

  /** @param {unknown} what @param {Step} [next] */
  async function done(what, next) {
    render(place("said-here"), notice(what));
    await go(next ? stepPath(next) : location.href, { sure: true });
    if (document.activeElement === document.body) place("step-title").focus();
  }

  setHooks(root, { again: show });
  await show(context);
}

/** For the receipt. @param {Former[]} [former] groups or policies */
const removedFrom = (former = []) =>
  former.length ? `; removed from ${former.map((one) => one.name).join(", ")}` : "";

/**
 * What the files of policy sets may undo.
 * @param {{urn: string, name: string, set: string | null}[]} groups @param {string} name of the actor
 */
const declared = (groups, name) =>
  groups
    .filter((group) => group.set !== null)
    .map((group) =>
      warning(html`<p>A policy file, set
  <strong>${group.set}</strong>, declares the group <strong title="${group.urn}">${group.name}</strong>. If the file
  names ${name}, the next apply
  or start makes ${name} a member again: change the file too.</p>`),
    );

/** Whether an actor can be removed from it here. @param {Policy} policy */
const isRemovable = (policy) => policy.editable && policy.source === "API";

/** @param {Policy} policy that is not removable */
const whyKept = (policy) =>
  policy.source === "FILE" ? "it comes from a policy file: change the file" : "the service writes it at each start";

/**
 * Live tokens of the accounts, the last used first.
 * @param {Account[]} accounts @param {AbortSignal} signal @returns {Promise<Use[]>}
 */
async function usesOf(accounts, signal) {
  if (!accounts.length) return [];
  const filters = [
    { field: "actorUrn", condition: "IN", values: accounts.map((one) => one.urn) },
    { field: "status", value: "ACTIVE" },
  ];
  const input = { count: 1000, filters, sort: { field: "lastUsedAt", order: "DESCENDING" } };
  return (await graphql(USES, { input }, { signal })).listAccessTokens.tokens;
}
