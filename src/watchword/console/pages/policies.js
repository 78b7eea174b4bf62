/** Policies: the list, a check of one privilege or scope, who holds one, and a table of both by actor. */

import { html, render } from "../html.js";
import { graphql, isAborted } from "../api.js";
import { actor, counted, inTerminal, number } from "../format.js";
import { empty, errorLine, loadList, notice, pageOf, pager, status, table } from "../components.js";
import { go, goQuery, setHooks, showQuery, withQuery } from "../router.js";
import { groupNames } from "../group_names.js";
import { backTo, openPanel, send } from "./forms.js";
import { matrix, scopesOf } from "./privilege_matrix.js";
import { actorPicker, isUrn } from "../actor_picker.js";
import { actorPath, actorName, listed, whom } from "./actor_names.js";
import { dangerMark, escalates } from "./policy_effect.js";
import { policyPanel } from "./policy_form.js";

/**
 * @typedef {{urn: string, name: string, state: string, description: string | null, privileges: string[],
 *   scopes: string[], editable: boolean, revision: string, source: "SERVICE" | "FILE" | "API", set: string | null,
 *   actors: Actors}} Policy
 * @typedef {{resolvedUsers: {urn: string, displayName: string | null}[], groups: string[], allUsers: boolean}} Actors
 * @typedef {{name: string, displayName: string, allows: string, includes: string[], escalates: boolean}} Privilege
 * @typedef {{policyUrn: string, policyName: string, via: string, groupUrn: string | null, privilege: string}} Grant
 * @typedef {Grant & {actorUrn: string | null, actorName: string | null, status: string | null}} Holder without an
 *   actor: all users
 */

const ACTORS = "groups allUsers resolvedUsers { urn displayName }";
const POLICY = `urn name state description privileges scopes editable revision source set actors { ${ACTORS} }`;
const LIST = `query Policies($input: ListPoliciesInput!, $all: ListPoliciesInput!) {
  page: listPolicies(input: $input) { start count total policies { ${POLICY} } }
  all: listPolicies(input: $all) { total policies { urn name state privileges scopes actors { ${ACTORS} } } } }`;
const ONE = `query Policy($urn: String!) { getPolicy(urn: $urn) { ${POLICY} } }`;
const KNOWN = `{ listPrivileges { name displayName allows includes escalates } }`;
const EXPLAIN = `query Explain($input: ExplainPrivilegeInput!, $urn: String!, $people: Boolean!) {
  explainPrivilege(input: $input) {
  allowed suspended explanation grants { policyUrn policyName via groupUrn privilege } } corpUser(urn: $urn)
  @include(if: $people) { exists } }`;
const HOLDERS = `query Holders($input: ListPrivilegeHoldersInput!) { listPrivilegeHolders(input: $input) {
  total complete holders {
  actorUrn actorName status policyUrn policyName via groupUrn privilege } } }`;
const MOST_HOLDERS = 500;
/** How many policies the table of privileges covers. */
const MOST = 200;

const SOURCES = { SERVICE: "service", FILE: "policy file", API: "API" };

/** @param {string} urn */
export const policyPath = (urn) => `/console/policies/${encodeURIComponent(urn)}`;

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  /** @type {Privilege[]} */
  const privileges = (await graphql(KNOWN, {}, { signal: context.signal })).listPrivileges;
  const nameOfPrivilege = (/** @type {string} */ word) =>
    privileges.find((one) => one.name === word)?.displayName ?? word;
  const named = groupNames(me);
  let at = context;
  const picker = actorPicker(me, { id: "asked-actor", required: true, change: () => undefined });

  render(
    root,
    html`<div class="page-head"><h1>Policies</h1>
      <input id="search" type="search" aria-label="Search names and descriptions" placeholder="Name or description"
        @change=${(/** @type {Event} */ e) => goQuery({ q: /** @type {HTMLInputElement} */ (e.currentTarget).value })}>
      ${
        me.privileges.managePolicies
          ? html`<a class="button primary" data-key="new" id="new" href="/console/policies/new">New policy</a>`
          : null
      }</div>
    <p class="quiet lead">An actor may do only what an active policy grants. Changes apply from the next request on.</p>
    <div id="said-here"></div>
    <div class="questions"><form class="question card" id="question" aria-label="Check a privilege or scope"
      @submit=${check}></form>
      <form class="question card" id="who" aria-label="Who has a privilege or scope" @submit=${askWho}></form></div>
    <datalist id="known-scopes"></datalist>
    <div id="list" class="stack"></div><div id="matrix"></div>`,
  );
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @param {import("../router.js").Context} now */
  async function show(now) {
    const was = at.params[0];
    at = now;
    at.title("Policies");
    showQuery(/** @type {HTMLInputElement} */ (place("search")), at.query.get("q"));
    root.querySelector("#new")?.setAttribute("href", withQuery({}, "/console/policies/new"));
    showQuestion();
    await Promise.all([list(), answer(), answerWho(), panelOf(at.params[0])]);
    backTo(was, now);
  }

  const list = () =>
    loadList(place("list"), at.signal, async (signal) => {
      const found = await graphql(
        LIST,
        { input: { ...pageOf(at.query), query: at.query.get("q") }, all: { count: MOST } },
        { signal },
      );
      const rows = /** @type {Policy[]} */ (found.page.policies);
      await named.look(
        [...rows, ...found.all.policies].flatMap((policy) => policy.actors.groups),
        signal,
      );
      render(
        place("list"),
        rows.length || found.page.total
          ? html`${policies(rows)}${pager({ ...found.page, shown: rows.length })}`
          : empty({
              title: "No policy matches",
              sentence: "No policy has this text in its name or description.",
              action: html`<a class="button" href="/console/policies">Show all</a>`,
            }),
      );
      render(
        place("known-scopes"),
        scopesOf(found.all.policies).map((scope) => html`<option value="${scope}"></option>`),
      );
      render(place("matrix"), matrix(found.all.policies, privileges, found.all.total, at.query, named.name));
    });

  const policies = (/** @type {Policy[]} */ rows) =>
    table({
      caption: "Policies",
      rows,
      rowClass: (policy) => (policy.urn === at.params[0] ? "here" : ""),
      columns: [
        {
          label: "Name",
          cell: (policy) =>
            html`<a id="${policy.urn}" href="${withQuery({}, policyPath(policy.urn))}">${policy.name}</a>`,
        },
        {
          label: "Grants",
          cell: (policy) => html`${firstThree(
            [...policy.privileges.map(nameOfPrivilege), ...policy.scopes].map((text) => ({ text })),
          )}
        ${[...policy.privileges, ...policy.scopes].some((word) => escalates(privileges, word)) ? dangerMark() : null}`,
        },
        { label: "To", class: "to", cell: (policy) => firstThree(whom(policy.actors, named.name)) },
        {
          label: "Source",
          class: "nowrap",
          cell: (policy) => SOURCES[policy.source] + (policy.set ? ` (${policy.set})` : ""),
        },
        {
          label: "Status",
          cell: (policy) => (policy.state === "ACTIVE" ? status("live", "active") : status("off", "inactive")),
        },
      ],
    });

  function showQuestion() {
    picker.set(at.query.get("actor") ?? "");
    const noPrivilege = html`<option value="" .selected=${true}>–</option>`;
    const chosen = at.query.get("privilege") ?? "";
    const scope = privileges.some((one) => one.name === chosen) ? "" : chosen;
    render(
      place("question"),
      html`<h2>Check a privilege or scope</h2><div class="row">
        <label for="asked-actor">May</label><div data-field="asked-actor">${picker.node}<div
          class="field-error"></div></div>
        <label for="asked-privilege">do</label><select id="asked-privilege"
          name="privilege">${scope ? noPrivilege : null}${privileges.map(
            (one) => html`<option
          value="${one.name}" .selected=${one.name === chosen}>${one.displayName}</option>`,
          )}</select>
        <label for="asked-scope">or use the scope</label><input id="asked-scope" name="scope" class="mono"
          autocomplete="off" spellcheck="false"
          placeholder="reports:read" list="known-scopes" .value=${scope}>
        <button type="submit" id="ask">Check</button></div>
      <div class="form-error"></div><div id="answer" role="status"></div>`,
    );
    const asked = at.query.get("may") ?? "";
    const askedScope = privileges.some((one) => one.name === asked) ? "" : asked;
    render(
      place("who"),
      html`<h2>Who has…?</h2><div class="row">
        <label for="who-privilege">Who has</label><select id="who-privilege"
          name="privilege">${askedScope ? noPrivilege : null}${privileges.map(
            (one) => html`<option
          value="${one.name}" .selected=${one.name === asked}>${one.displayName}</option>`,
          )}</select>
        <label for="who-scope">or use scope</label><input id="who-scope" name="scope" class="mono" autocomplete="off"
          spellcheck="false"
          placeholder="reports:read" list="known-scopes" .value=${askedScope}>
        <button type="submit">List</button></div>
      <div class="form-error"></div><div id="holders" role="status"></div>`,
    );
  }

  /** @param {Event} event */
  function askWho(event) {
    return send(event, async (form) => {
      const asked = new FormData(form);
      await goQuery({ may: String(asked.get("scope")).trim() || String(asked.get("privilege")) });
    });
  }

  async function answerWho() {
    const privilege = at.query.get("may");
    if (!privilege) return;
    try {
      const found = (await graphql(HOLDERS, { input: { privilege, count: MOST_HOLDERS } }, { signal: at.signal }))
        .listPrivilegeHolders;
      await named.look(groupsOf(found.holders), at.signal);
      render(place("holders"), holders(privilege, found));
    } catch (error) {
      if (isAborted(error)) return;
      render(place("holders"), errorLine(error, answerWho));
    }
  }

  /** @param {string} privilege @param {{total: number, complete: boolean, holders: Holder[]}} found */
  function holders(privilege, found) {
    /** @type {Map<string | null, Holder[]>} */
    const ways = new Map();
    for (const one of found.holders) ways.set(one.actorUrn, [...(ways.get(one.actorUrn) ?? []), one]);
    const people = ways.size - (ways.has(null) ? 1 : 0);
    const whole = found.complete && found.holders.length === found.total;
    const what = privileges.some((one) => one.name === privilege)
      ? html`<strong>${nameOfPrivilege(privilege)}</strong>`
      : html`the scope <code>${privilege}</code>`;
    const others = privileges.filter((one) => one.escalates && one.name !== privilege);
    const gaining = html`<p class="quiet small">${dangerMark("Can be gained")} by who holds one of these:
      ${others.map(
        (one, index) => html`${index ? ", " : ""}<a href="${withQuery({ may: one.name })}">${one.displayName}</a>`,
      )}.</p>`;
    if (!ways.size) return html`<p>No one holds ${what}.</p>${gaining}`;
    return html`<p>${
      ways.has(null)
        ? html`<strong>All users</strong> hold ${what}${
            people ? html`; ${counted(people, "person", "people")} by name or group` : null
          }.`
        : html`${whole ? "" : "At least "}${counted(people, "person", "people")}
          ${people === 1 && whole ? "holds" : "hold"} ${what}.`
    }</p>
      <div class="who-list">${table({
        caption: "Who holds it, and by which policy",
        rows: [...ways],
        columns: [
          {
            label: "Who",
            class: "light",
            cell: ([urn, some]) =>
              urn === null
                ? "All users"
                : html`<a href="${actorPath(urn)}">${actor(urn, some[0].actorName)}</a>
          ${some[0].status === "SUSPENDED" ? status("off", "suspended") : null}`,
          },
          {
            label: "By policy",
            cell: ([, some]) =>
              html`<ul class="plain-list">${some.map(
                (one) =>
                  html`<li><a href="${withQuery({}, policyPath(one.policyUrn))}">${one.policyName}</a>${
                    one.groupUrn
                      ? html` to the group <a href="${actorPath(one.groupUrn)}?show=groups"
                        >${named.shown(one.groupUrn)}</a>`
                      : null
                  }${one.privilege === privilege ? "" : `, by “${nameOfPrivilege(one.privilege)}”`}</li>`,
              )}</ul>`,
          },
        ],
      })}</div>
      ${gaining}
      ${
        whole
          ? null
          : html`<p class="quiet small">Only the first are shown. All:
            <code>${inTerminal(`watchword policy who-can ${privilege}`, me)}</code></p>`
      }`;
  }

  /** @param {Event} event */
  function check(event) {
    return send(
      event,
      async (form) => {
        const asked = new FormData(form);
        await picker.resolve();
        picker.check("actor");
        await goQuery({
          actor: picker.urns()[0],
          privilege: String(asked.get("scope")).trim() || String(asked.get("privilege")),
        });
      },
      { actor: "asked-actor" },
    );
  }

  async function answer() {
    const [actorUrn, privilege] = [at.query.get("actor"), at.query.get("privilege")];
    if (!actorUrn || !privilege || !isUrn(actorUrn)) return;
    const people = me.privileges.managePolicies || me.privileges.manageTokens;
    try {
      const { explainPrivilege: explained, corpUser } = await graphql(
        EXPLAIN,
        { input: { actorUrn, privilege }, urn: actorUrn, people },
        { signal: at.signal },
      );
      await named.look(groupsOf(explained.grants), at.signal);
      render(
        place("answer"),
        html`<p><strong>${explained.allowed ? status("live", "Yes") : status("revoked", "No")}</strong>
          <a href="${actorPath(actorUrn)}" title="${actorUrn}">${actorName(actorUrn)}</a> may
          ${explained.allowed ? "" : "not "}${
            privileges.some((one) => one.name === privilege) ? "do" : "use the scope"
          } “${nameOfPrivilege(privilege)}”${explained.suspended ? ": the actor is suspended" : ""}.</p>
        ${corpUser?.exists || !people ? null : html`<p class="quiet small">No one of this name is known here yet.</p>`}
        ${
          explained.grants.length
            ? html`<ul class="grants">${explained.grants.map(
                (/** @type {Grant} */ grant) => html`<li>
          <a href="${withQuery({}, policyPath(grant.policyUrn))}"
            >${grant.policyName}</a> ${grantText(grant, named.shown)}${
              grant.privilege === privilege ? "" : `, by “${nameOfPrivilege(grant.privilege)}”, which includes it`
            }.</li>`,
              )}</ul>`
            : null
        }
        ${explained.allowed ? null : html`<p>Their error message: <q>${explained.explanation}</q></p>`}`,
      );
    } catch (error) {
      if (isAborted(error)) return;
      render(place("answer"), errorLine(error, answer));
    }
  }

  /** @param {string | undefined} urn */
  async function panelOf(urn) {
    if (!urn) {
      openPanel(root, null);
      return;
    }
    try {
      const policy = urn === "new" ? null : (await graphql(ONE, { urn }, { signal: at.signal })).getPolicy;
      const close = withQuery({}, "/console/policies");
      openPanel(root, await policyPanel({ policy, privileges, me, named, close, signal: at.signal, done }));
    } catch (error) {
      if (isAborted(error)) return;
      render(
        place("said-here"),
        errorLine(error, () => {
          render(place("said-here"), null);
          return panelOf(urn);
        }),
      );
    }
  }

  /** @param {unknown} said */
  async function done(said) {
    render(place("said-here"), notice(said));
    await go(withQuery({}, "/console/policies"));
  }

  setHooks(root, { again: show });
  await show(context);
}

/** @param {Grant[]} grants */
const groupsOf = (grants) => grants.flatMap((one) => one.groupUrn ?? []);

/** @param {Grant} grant @param {(urn: string) => unknown} shown a group */
function grantText(grant, shown) {
  if (grant.via === "ALL_USERS") return "is for all users";
  if (grant.via === "GROUP")
    return html`names their group <a href="${actorPath(grant.groupUrn ?? "")}">${shown(grant.groupUrn ?? "")}</a>`;
  return "names them";
}

/** The first three, and how many more; the rest on hover. @param {import("./actor_names.js").Named[]} named */
function firstThree(named) {
  if (!named.length) return html`<span class="quiet">no one</span>`;
  const rest = named.length - 3;
  return html`<span>${listed(named.slice(0, 3))}${
    rest > 0
      ? html` <span class="quiet" title="${named
          .slice(3, 100)
          .map((one) => one.text)
          .join(", ")}">and
    ${number(rest)} more</span>`
      : null
  }</span>`;
}
