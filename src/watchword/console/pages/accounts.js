/** Service accounts: create them, create tokens for them, delete them. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { counted, idToPath, inTerminal, nameOf, number, pathToId, short, time } from "../format.js";
import { lastUsed, typedFrom } from "../damage.js";
import { ask, empty, errorLine, field, loadList, notice, pageOf, pager, panel, table, warning } from "../components.js";
import { go, goQuery, setHooks, showQuery, withQuery } from "../router.js";
import { showToken } from "../token_panel.js";
import { ROW, statusOf } from "../token_display.js";
import { backTo, openPanel, openingPanel } from "./forms.js";
import { actorLink, actorPath, actorStatus, urnCode } from "./actor_names.js";

/**
 * @typedef {{urn: string, displayName: string, description: string | null, createdBy: string,
 *   createdByName: string | null, createdAt: number, status: string}} Account
 * @typedef {import("../token_display.js").Token} Token
 */

const ACCOUNT = `urn displayName description createdBy createdByName createdAt status`;
const LIST = `query Accounts($input: ListServiceAccountsInput) { listServiceAccounts(input: $input) { start count total
  serviceAccounts { ${ACCOUNT} } } }`;
const ONE = `query Account($urn: String!, $tokens: ListAccessTokensInput) { getServiceAccount(urn: $urn) { ${ACCOUNT} }
  listAccessTokens(input: $tokens) { total tokens { ${ROW} lastNetwork } } }`;
const CREATE = `mutation Create($input: CreateServiceAccountInput!) { createServiceAccount(input: $input) {
  urn displayName } }`;
const DELETE = `mutation Delete($urn: String!) { deleteServiceAccount(urn: $urn) }`;
const PLAN = `mutation Plan($filters: [FacetFilterInput!]) { revokeAccessTokens(input: {filters: $filters, dryRun:
  true}) { count } }`;
const LAST = `query Last($input: ListAccessTokensInput) { listAccessTokens(input: $input) { tokens {
  name lastUsedAt lastNetwork } } }`;
const NAMED = 5;

/** @param {string} urn */
const accountPath = (urn) => `/console/accounts/${encodeURIComponent(urn)}`;
/** Tokens of the account that are neither revoked nor expired. @param {string} urn */
const liveOf = (urn) => [
  { field: "actorUrn", value: urn },
  { field: "status", value: "ACTIVE" },
];
const LAST_USED_FIRST = { field: "lastUsedAt", order: "DESCENDING" };
/** @param {string} urn */
const newTokenPath = (urn) => `/console/tokens/new?for=${encodeURIComponent(urn)}`;

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  let at = context;
  render(
    root,
    html`<div class="page-head"><h1>Service accounts</h1>
      <input id="search" type="search" aria-label="Search names and urns" placeholder="Part of a name"
        @change=${(/** @type {Event} */ e) => goQuery({ q: /** @type {HTMLInputElement} */ (e.currentTarget).value })}>
      <button type="button" class="primary" data-key="new" @click=${create}>New account</button></div>
    <p class="quiet lead">Actors for programs. Their tokens stay valid when their creator leaves.</p>
    <div id="said-here"></div><div id="list" class="stack"></div>`,
  );
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @param {import("../router.js").Context} now */
  async function show(now) {
    const was = at.params[0];
    at = now;
    at.title("Service accounts");
    showQuery(/** @type {HTMLInputElement} */ (place("search")), at.query.get("q"));
    await Promise.all([list(), panelOf(at.params[0])]);
    backTo(was, now);
  }

  const list = () =>
    loadList(place("list"), at.signal, async (signal) => {
      const query = at.query.get("q");
      const found = (await graphql(LIST, { input: { ...pageOf(at.query), query } }, { signal })).listServiceAccounts;
      const rows = /** @type {Account[]} */ (found.serviceAccounts);
      render(
        place("list"),
        found.total
          ? html`${accounts(rows)}${pager({ ...found, shown: rows.length })}`
          : query
            ? empty({
                title: "No account matches",
                sentence: "No account has this text in its name or urn.",
                action: html`<a class="button" href="/console/accounts">Show all</a>`,
              })
            : empty({
                title: "No service accounts yet",
                sentence: "Create one for each program that needs a token, so that no program depends on a person.",
                action: html`<button type="button" @click=${create}>New account</button>`,
                command: inTerminal("watchword account create --name ci", me),
              }),
      );
    });

  const accounts = (/** @type {Account[]} */ rows) =>
    table({
      caption: "Service accounts",
      rows,
      rowClass: (one) => (one.urn === at.params[0] ? "here" : ""),
      columns: [
        {
          label: "Name",
          cell: (one) =>
            html`<a id="${one.urn}" href="${withQuery(
              { page: at.query.get("page"), token: null },
              accountPath(one.urn),
            )}">${one.displayName}</a>`,
        },
        {
          label: "Id",
          class: "nowrap",
          cell: (one) => html`<code title="${one.urn}">${short(nameOf(one.urn), 12)}</code>`,
        },
        { label: "Description", cell: (one) => one.description ?? html`<span class="quiet">–</span>` },
        {
          label: "Created",
          cell: (one) =>
            html`<span>${time(one.createdAt)} by ${actorLink(one.createdBy, me, one.createdByName)}</span>`,
        },
        { label: "Status", cell: actorStatus },
      ],
    });

  /** @param {string | undefined} urn */
  async function panelOf(urn) {
    if (!urn) {
      openPanel(root, null);
      return;
    }
    const token = at.query.get("token");
    if (token) {
      await showToken(at, pathToId(token), inQuery(null), changed, inQuery);
      return;
    }
    await openingPanel(root, async () => {
      const tokens = { count: 50, filters: liveOf(urn), sort: LAST_USED_FIRST };
      const found = await graphql(ONE, { urn, tokens }, { signal: at.signal });
      openPanel(root, panelFor(found.getServiceAccount, found.listAccessTokens));
    });
  }

  /** @param {string | null} id where the details of one of its tokens are */
  const inQuery = (id) => withQuery({ token: id && idToPath(id), page: at.query.get("page") });

  /** @param {unknown} what was done to one of its tokens */
  const changed = async (what) => render(place("said-here"), notice(what));

  /** @param {Account} account @param {{total: number, tokens: Token[]}} found */
  const panelFor = (account, found) =>
    panel({
      title: account.displayName,
      close: withQuery({ page: at.query.get("page") }, "/console/accounts"),
      content: html`<dl class="facts"><dt>Status</dt><dd>${actorStatus(account)}</dd><dt>Urn</dt>
        <dd>${urnCode(account.urn)}</dd>
        <dt>Description</dt><dd>${account.description ?? "–"}</dd>
        <dt>Created</dt><dd>${time(account.createdAt)} by ${actorLink(
          account.createdBy,
          me,
          account.createdByName,
        )}</dd>
        ${
          me.privileges.managePolicies
            ? html`<dt>Privileges</dt><dd><a href="${actorPath(account.urn)}">What it may do</a></dd>`
            : null
        }
        ${
          me.privileges.viewAuditLog
            ? html`<dt>Activity</dt><dd><a href="/console/activity?actor=${encodeURIComponent(account.urn)}">What it
              did</a></dd>`
            : null
        }</dl>
      <h3>${counted(found.total, account.status === "SUSPENDED" ? "suspended token" : "live token")}</h3>
      ${
        found.tokens.length
          ? html`<ul class="members">${found.tokens.map(
              (token) => html`<li><span><a href="${inQuery(token.id)}">${token.name}</a>
          <span class="quiet small block">last used ${time(token.lastUsedAt)}${
            token.lastNetwork ? ` from ${token.lastNetwork}` : ""
          }
          · expires ${time(token.expiresAt)}</span></span>${statusOf(token)}</li>`,
            )}</ul>${
              found.total > found.tokens.length
                ? html`<p class="quiet small">And ${number(found.total - found.tokens.length)} more.</p>`
                : null
            }`
          : html`<p class="quiet">No live token: nothing can act as this account.</p>`
      }
      <p class="actions"><a class="button" href="${newTokenPath(account.urn)}">New token for ${account.displayName}</a>
        <button type="button" class="danger" @click=${() => remove(account)}>Delete
          ${account.displayName}…</button></p>`,
    });

  async function create() {
    /** @type {{urn: string, displayName: string} | null} */
    let made = null;
    const sure = await ask({
      title: "New service account",
      action: "Create account",
      draft: "account",
      content: html`${field({
        id: "account-name",
        label: "Name",
        hint: "The program that uses it.",
        control: html`<input id="account-name"
          name="displayName" required maxlength="200" autocomplete="off" aria-describedby="account-name-hint">`,
      })}
        ${field({
          id: "account-id",
          label: "Id",
          optional: true,
          hint: "The end of its urn: lower-case letters, digits, hyphens. Generated if empty. It never changes.",
          control: html`<input id="account-id" name="id" maxlength="60" pattern="[a-z0-9\\-]+" autocomplete="off"
            spellcheck="false" aria-describedby="account-id-hint">`,
        })}
        ${field({
          id: "account-description",
          label: "Description",
          optional: true,
          control: html`<input id="account-description"
          name="description" maxlength="1000" autocomplete="off">`,
        })}`,
      act: async (form) => {
        const given = (/** @type {string} */ name) => String(form.get(name)).trim() || null;
        const input = {
          id: given("id"),
          displayName: String(form.get("displayName")),
          description: given("description"),
        };
        made = (await graphql(CREATE, { input })).createServiceAccount;
      },
    });
    const account = /** @type {{urn: string, displayName: string} | null} */ (made);
    if (!sure || !account) return;
    render(
      place("said-here"),
      notice(html`Created the account <strong>${account.displayName}</strong>.
      <a href="${newTokenPath(account.urn)}">Create its first token.</a>`),
    );
    await go(withQuery({ token: null }, accountPath(account.urn)));
  }

  /** @param {Account} account */
  async function remove(account) {
    const { signal } = at;
    /** @type {{count: number, tokens: Token[]}} */
    let live;
    try {
      const [plan, last] = await Promise.all([
        graphql(PLAN, { filters: [{ field: "actorUrn", value: account.urn }] }, { signal }),
        graphql(LAST, { input: { count: NAMED, filters: liveOf(account.urn), sort: LAST_USED_FIRST } }, { signal }),
      ]);
      live = { count: plan.revokeAccessTokens.count, tokens: last.listAccessTokens.tokens };
    } catch (error) {
      // Without knowing what stops working, nothing is deleted.
      if (!signal.aborted)
        render(
          place("said-here"),
          errorLine(error, () => remove(account)),
        );
      return;
    }
    const what = account.status === "SUSPENDED" ? "suspended token" : "live token";
    const sure = await ask({
      title: `Delete ${account.displayName}?`,
      danger: true,
      action: `Delete ${account.displayName}`,
      typed: typedFrom(live.count),
      content: html`${
        live.count
          ? html`<p>${counted(live.count, what)} ${live.count === 1 ? "is" : "are"} revoked at the same time.
          Programs that use them stop working.</p>${lastUsed(live.tokens, live.count)}`
          : html`<p>It has no ${what}: no program can be using it.</p>`
      }
        ${warning("This cannot be undone. Its urn is never used again.")}`,
      act: () => graphql(DELETE, { urn: account.urn }),
    });
    if (!sure) return;
    render(
      place("said-here"),
      notice(html`Deleted the account <strong>${account.displayName}</strong> and revoked its tokens.`),
    );
    await go(withQuery({ page: at.query.get("page") }, "/console/accounts"));
  }

  setHooks(root, { again: show });
  await show(context);
}
