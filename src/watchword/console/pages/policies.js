/** Policies: who may do what, asked and answered by what is in force. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { number } from "../format.js";
import { empty, errorLine, listing, notice, pageOf, pager, status, table } from "../parts.js";
import { go, goQuery, keep, withQuery } from "../router.js";
import { backTo, openPanel, send } from "./forms.js";
import { matrix } from "./matrix.js";
import { actorInput, actorPath, typed, typedGroup, userUrn } from "./people.js";
import { policyPanel } from "./policy_form.js";

/**
 * @typedef {{urn: string, name: string, state: string, description: string | null, privileges: string[], editable: boolean,
 *   source: "SERVICE" | "FILE" | "API", set: string | null, actors: {users: string[], groups: string[], allUsers: boolean}}} Policy
 * @typedef {{name: string, displayName: string, allows: string, includes: string[]}} Privilege
 * @typedef {{policyUrn: string, policyName: string, via: string, groupUrn: string | null, privilege: string}} Ground
 */

const POLICY = `urn name state description privileges editable source set actors { users groups allUsers }`;
const LIST = `query Policies($input: ListPoliciesInput!, $all: ListPoliciesInput!) {
  page: listPolicies(input: $input) { start count total policies { ${POLICY} } }
  all: listPolicies(input: $all) { total policies { urn name state privileges actors { users groups allUsers } } } }`;
const ONE = `query Policy($urn: String!) { getPolicy(urn: $urn) { ${POLICY} } }`;
const KNOWN = `{ listPrivileges { name displayName allows includes } }`;
const EXPLAIN = `query Explain($input: ExplainPrivilegeInput!) { explainPrivilege(input: $input) {
  allowed suspended sentence grounds { policyUrn policyName via groupUrn privilege } } }`;
/** How many policies the matrix takes in. */
const MOST = 200;

const KEEPERS = { SERVICE: "the service", FILE: "a policy file", API: "hand" };

/** @param {string} urn */
export const policyPath = (urn) => `/console/policies/${encodeURIComponent(urn)}`;

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  /** @type {Privilege[]} */
  const privileges = (await graphql(KNOWN, {}, { signal: context.signal })).listPrivileges;
  const nameOfPrivilege = (/** @type {string} */ word) => privileges.find((one) => one.name === word)?.displayName ?? word;
  let at = context;

  render(root, html`<div class="page-head"><h1>Policies</h1>
      <input id="search" data-key="search" type="search" aria-label="Search names and descriptions" placeholder="Words"
        @change=${(/** @type {Event} */ e) => goQuery({ q: /** @type {HTMLInputElement} */ (e.currentTarget).value })}>
      <a class="button primary" data-key="new" id="new" href="/console/policies/new">New policy</a></div>
    <p class="quiet lead">Nobody may do anything but what a policy in force grants. A change counts from the next request on.</p>
    <div id="said-here"></div>
    <form class="question card" id="question" aria-label="May somebody do something?" @submit=${askIt}></form>
    <div id="list" class="stack"></div><div id="matrix"></div>`);
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @param {import("../router.js").Context} now */
  async function show(now) {
    const was = at.params[0];
    at = now;
    at.title("Policies");
    /** @type {HTMLInputElement} */ (place("search")).value = at.query.get("q") ?? "";
    place("new").setAttribute("href", withQuery({}, "/console/policies/new"));
    showQuestion();
    await Promise.all([list(), answer(), panelOf(at.params[0])]);
    backTo(was, now);
  }

  const list = () => listing(place("list"), at.signal, async (signal) => {
    const found = await graphql(LIST, {
      input: { ...pageOf(at.query), query: at.query.get("q") }, all: { count: MOST },
    }, { signal });
    const rows = /** @type {Policy[]} */ (found.page.policies);
    render(place("list"), rows.length || found.page.total ? html`${policies(rows)}${pager({ ...found.page, shown: rows.length })}`
      : empty({ title: "No policy matches", sentence: "None has these words in its name or description.",
        action: html`<a class="button" href="/console/policies">Show all</a>` }));
    render(place("matrix"), matrix(found.all.policies, privileges, found.all.total));
  });

  const policies = (/** @type {Policy[]} */ rows) => table({
    caption: "Policies", rows, rowClass: (policy) => (policy.urn === at.params[0] ? "here" : ""),
    columns: [
      { label: "Name", cell: (policy) => html`<a id="${policy.urn}" href="${withQuery({}, policyPath(policy.urn))}">${policy.name}</a>` },
      { label: "Grants", cell: (policy) => shortly(policy.privileges.map(nameOfPrivilege)) },
      { label: "To", class: "to", cell: (policy) => shortly(whom(policy)) },
      { label: "Kept by", class: "nowrap", cell: (policy) => KEEPERS[policy.source] + (policy.set ? ` (${policy.set})` : "") },
      { label: "Status", cell: (policy) => (policy.state === "ACTIVE" ? status("live", "in force") : status("off", "grants nothing")) },
    ],
  });

  function showQuestion() {
    const chosen = at.query.get("privilege") ?? "";
    render(place("question"), html`<h2>May somebody do something?</h2><div class="row">
        <label for="asked-actor">May</label>${actorInput(me, { id: "asked-actor", required: true, value: typed(userUrn(at.query.get("actor") ?? "")) })}
        <label for="asked-privilege">do</label><select id="asked-privilege" name="privilege">${privileges.map((one) => html`<option
          value="${one.name}" .selected=${one.name === chosen}>${one.displayName}</option>`)}</select>
        <button type="submit" id="ask">Ask</button></div>
      <div class="form-error"></div><div id="answer" role="status"></div>`);
  }

  /** @param {Event} event */
  function askIt(event) {
    return send(event, async (form) => {
      const asked = new FormData(form);
      await goQuery({ actor: userUrn(String(asked.get("asked-actor"))), privilege: String(asked.get("privilege")) });
    });
  }

  async function answer() {
    const [actorUrn, privilege] = [at.query.get("actor"), at.query.get("privilege")];
    if (!actorUrn || !privilege) return;
    try {
      const told = (await graphql(EXPLAIN, { input: { actorUrn, privilege } }, { signal: at.signal })).explainPrivilege;
      render(place("answer"), html`<p><strong>${told.allowed ? status("live", "Yes") : status("revoked", "No")}</strong>
          <a href="${actorPath(actorUrn)}" title="${actorUrn}">${typed(actorUrn)}</a> may ${told.allowed ? "" : "not "}do
          “${nameOfPrivilege(privilege)}”${told.suspended ? ": the actor is suspended" : ""}.</p>
        ${told.grounds.length ? html`<ul class="grounds">${told.grounds.map((/** @type {Ground} */ ground) => html`<li>
          <a href="${withQuery({}, policyPath(ground.policyUrn))}">${ground.policyName}</a> ${way(ground)}${ground.privilege === privilege ? ""
            : `, by “${nameOfPrivilege(ground.privilege)}”, which includes it`}.</li>`)}</ul>` : null}
        ${told.allowed ? null : html`<p>They are told: <q>${told.sentence}</q></p>`}`);
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return;
      render(place("answer"), errorLine(error));
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
      openPanel(root, await policyPanel({ policy, privileges, me, close, signal: at.signal, done }));
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return;
      render(place("said-here"), errorLine(error));
    }
  }

  /** @param {unknown} said */
  async function done(said) {
    render(place("said-here"), notice(said));
    await go(withQuery({}, "/console/policies"));
  }

  keep(root, { again: show });
  await show(context);
}

/** @param {Ground} ground */
function way(ground) {
  if (ground.via === "ALL_USERS") return "is for all users";
  if (ground.via === "GROUP") return html`names their group <a href="${actorPath(ground.groupUrn ?? "")}">${typedGroup(ground.groupUrn ?? "")}</a>`;
  return "names them";
}

/** @param {{actors: Policy["actors"]}} policy */
const whom = ({ actors }) => [...(actors.allUsers ? ["all users"] : []), ...actors.groups.map((urn) => `group ${typedGroup(urn)}`),
  ...actors.users.map(typed)];

/** The first of them, and how many more; the rest on hover. @param {string[]} words */
function shortly(words) {
  if (!words.length) return html`<span class="quiet">nobody</span>`;
  const rest = words.length - 3;
  return html`<span>${words.slice(0, 3).join(", ")}${rest > 0 ? html` <span class="quiet" title="${words.slice(3, 100).join(", ")}">and
    ${number(rest)} more</span>` : null}</span>`;
}
