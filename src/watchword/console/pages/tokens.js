/**
 * My tokens: the tokens of the caller, with counts that link to filtered lists.
 */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { idToPath, inTerminal, number, pathToId, time } from "../format.js";
import { whileBusy, codeBox, empty, errorLine, loading, notice, pageOf, pager, table } from "../components.js";
import { withSameQuery, goQuery, setHooks, withQuery } from "../router.js";
import { ANY_STATUS, ROW, SOON, endOf, scopesInShort, statusOf } from "../token_display.js";
import { showToken } from "../token_panel.js";
import { backTo } from "./forms.js";

/** @typedef {import("../token_display.js").Filter} Filter */

const LIST = `query Tokens($input: ListAccessTokensInput) {
  listAccessTokens(input: $input) { start count total tokens { ${ROW} } } }`;
const NUMBERS = `query Numbers($live: ListAccessTokensInput, $week: ListAccessTokensInput, $idle: ListAccessTokensInput) {
  live: listAccessTokens(input: $live) { total } week: listAccessTokens(input: $week) { total }
  idle: listAccessTokens(input: $idle) { total } }`;

/** @type {[string, string][]} */
const STATUSES = [["", "Live and expired"], ["live", "Live"], ["expired", "Expired"], ["revoked", "Revoked"], ["all", "All"]];
/** @type {[string, string][]} */
const ENDS = [["", "Any time"], ["week", "Within 7 days"], ["month", "Within 30 days"], ["never", "Never"]];
/** @type {[string, string][]} */
const USES = [["", "Any time"], ["day", "Within 24 hours"], ["idle30", "Not in 30 days"], ["idle90", "Not in 90 days"], ["never", "Never"]];
const SORTS = ["name", "expiresAt", "lastUsedAt", "createdAt"];

/** What the address asks for, as the API's filters. @param {URLSearchParams} query @param {string} urn */
export function filtersOf(query, urn) {
  /** @type {Filter[]} */
  const filters = [{ field: "actorUrn", value: urn }];
  const text = (query.get("q") ?? "").trim();
  const id = text.slice(text.lastIndexOf(":") + 1);
  if (/^[A-Za-z0-9+/]{43}=$/.test(id)) filters.push({ field: "id", value: id });
  else if (text) filters.push({ field: "name", condition: "CONTAIN", value: text });
  const now = Date.now();
  /** @type {Record<string, Filter[]>} */
  const known = {
    "status=live": [{ field: "status", value: "ACTIVE" }],
    "status=expired": [{ field: "status", value: "EXPIRED" }],
    "status=revoked": [{ field: "status", value: "REVOKED" }],
    "status=all": [ANY_STATUS],
    "expires=week": between(now, now + SOON),
    "expires=month": between(now, now + 30 * 86_400_000),
    "expires=never": [{ field: "expiresAt", condition: "EXISTS", negated: true }],
    "used=day": [{ field: "lastUsedAt", condition: "GREATER_THAN", value: "P1D" }],
    "used=idle30": [{ field: "lastActivityAt", condition: "LESS_THAN", value: "P30D" }],
    "used=idle90": [{ field: "lastActivityAt", condition: "LESS_THAN", value: "P90D" }],
    "used=never": [{ field: "lastUsedAt", condition: "EXISTS", negated: true }],
  };
  for (const name of ["status", "expires", "used"]) filters.push(...(known[`${name}=${query.get(name)}`] ?? []));
  return filters;
}

/** @param {number} from @param {number} to @returns {Filter[]} */
const between = (from, to) => [
  { field: "expiresAt", condition: "GREATER_THAN", value: String(from) },
  { field: "expiresAt", condition: "LESS_THAN", value: String(to) },
];

/** @param {import("../router.js").Context} first */
export async function page(first) {
  const { root, me } = first;
  first.title("My tokens");
  if (!me.privileges.generatePersonalAccessTokens) {
    await showWhyNot(first);
    // Without personal tokens the caller may still see tokens of service accounts.
    if (first.params[0]) await showToken(first, pathToId(first.params[0]), "/console/tokens", async () => {});
    return;
  }
  let context = first;
  /** @type {string | null} the query whose list is shown */
  let listed = null;
  /** @type {import("../token_display.js").Token[]} */
  let rows = [];

  render(root, html`<div class="page-head"><h1>My tokens</h1>
      <form role="search" @submit=${search}><input id="search" type="search" data-key="search" aria-label="Search names"
        placeholder="Search names…" title="Case-sensitive. A whole id finds its token." maxlength="200" @search=${search}></form>
      <a class="button primary" data-key="new" href="/console/tokens/new">New token</a></div>
    <ul class="numbers" aria-label="Summary"></ul>
    <div class="done"></div>
    <div class="filters">${choice("status", "Status", STATUSES)}${choice("expires", "Expires", ENDS)}${choice("used", "Last used", USES)}</div>
    <div class="problem"></div>
    <div class="list">${loading()}</div>`);
  const list = /** @type {HTMLElement} */ (root.querySelector(".list"));
  const problem = /** @type {HTMLElement} */ (root.querySelector(".problem"));
  const input = /** @type {HTMLInputElement} */ (root.querySelector("#search"));

  /** @param {Event} event */
  function search(event) {
    event.preventDefault();
    if (input.value.trim() !== (context.query.get("q") ?? "")) void goQuery({ q: input.value.trim() });
  }

  /** @param {string} name @param {string} label @param {[string, string][]} options */
  function choice(name, label, options) {
    return html`<label>${label}<select id="filter-${name}" @change=${(/** @type {Event} */ event) => goQuery({
      [name]: /** @type {HTMLSelectElement} */ (event.currentTarget).value,
    })}>${options.map(([value, words]) => html`<option value="${value}">${words}</option>`)}</select></label>`;
  }

  const asked = () => {
    const sort = context.query.get("sort") ?? "";
    const order = context.query.get("order") === "ASCENDING" ? "ASCENDING" : "DESCENDING";
    return {
      ...pageOf(context.query),
      filters: filtersOf(context.query, me.urn),
      ...(SORTS.includes(sort) ? { sort: { field: sort, order } } : {}),
    };
  };

  function showChosen() {
    input.value = context.query.get("q") ?? "";
    for (const name of ["status", "expires", "used"]) {
      const select = /** @type {HTMLSelectElement} */ (root.querySelector(`#filter-${name}`));
      select.value = context.query.get(name) ?? "";
    }
  }

  const showList = () => whileBusy(list, context.signal, async (signal) => {
    try {
      const { listAccessTokens: found } = await graphql(LIST, { input: asked() }, { signal });
      listed = context.query.toString();
      rows = found.tokens;
      render(problem, null);
      showRows(found);
    } catch (error) {
      if (error instanceof DOMException) return;
      render(problem, errorLine(error));
      if (listed === null) render(list, null);
    }
  });

  /** @param {{start: number, count: number, total: number}} found */
  function showRows(found) {
    if (!rows.length) {
      render(list, found.total ? html`<p>There is no such page. <a href="${withQuery({ page: null })}">Go to the first page.</a></p>`
        : isNarrowed(context.query) ? html`<p class="quiet">No token matches.
          <a href="/console/tokens">Show all.</a></p>` : nothingYet(me));
      return;
    }
    render(list, html`${table({
      caption: "My tokens",
      rows,
      sort: context.query.get("sort") ?? "expiresAt",
      order: context.query.get("order") ?? "DESCENDING",
      rowClass: (token) => (isHere(token.id) ? "here" : ""),
      columns: [
        { label: "Name", sort: "name", class: "name", cell: (token) => html`${token.parentId
          ? html`<span class="quiet" title="Derived from another token">↳ <span class="unseen">derived: </span></span>` : null}<a
          id="${token.id}" href="${withSameQuery(`/console/tokens/${idToPath(token.id)}`)}">${token.name}</a>${token.id === me.tokenId
          ? html` <span class="quiet small">this session</span>` : null}` },
        { label: "Scopes", class: "scopes", cell: (token) => scopesInShort(token.scopes) },
        { label: "Expires", sort: "expiresAt", first: "DESCENDING", class: "end", cell: endOf },
        { label: "Last used", sort: "lastUsedAt", first: "DESCENDING", cell: (token) => time(token.lastUsedAt) },
        { label: "Status", cell: statusOf },
      ],
    })}${pager({ ...found, shown: rows.length })}`);
  }

  async function showNumbers() {
    const place = /** @type {HTMLElement} */ (root.querySelector(".numbers"));
    /** @param {string} query */
    const of = (query) => ({ count: 0, filters: filtersOf(new URLSearchParams(query), me.urn) });
    const asks = { live: "status=live", week: "status=live&expires=week", idle: "status=live&used=idle90" };
    try {
      await whileBusy(place, null, async (signal) => {
        const found = await graphql(NUMBERS, { live: of(asks.live), week: of(asks.week), idle: of(asks.idle) }, { signal });
        render(place, html`<li><a href="/console/tokens?${asks.live}">${number(found.live.total)} live</a></li>
          <li><a href="/console/tokens?${asks.week}">${number(found.week.total)} expire${found.week.total === 1 ? "s" : ""} this week</a></li>
          <li><a href="/console/tokens?${asks.idle}">${number(found.idle.total)} not used in 90 days</a></li>`);
      });
    } catch {
      // The list shows the error.
    }
  }

  /** @param {unknown} what what was done, if anything */
  async function changed(what) {
    render(/** @type {HTMLElement} */ (root.querySelector(".done")), what ? notice(what) : null);
    await Promise.all([showList(), showNumbers()]);
  }

  async function showPanel() {
    const before = root.querySelector(".panel");
    const [part] = context.params;
    const close = withSameQuery("/console/tokens");
    if (!part) {
      before?.remove();
      return;
    }
    await showToken(context, pathToId(part), close, changed);
  }

  /** @param {import("../router.js").Context} next */
  async function again(next) {
    const was = context.params[0];
    context = next;
    showChosen();
    await Promise.all([next.query.toString() === listed ? showHere() : showList(), showPanel()]);
    backTo(was && pathToId(was), next);
  }

  const isHere = (/** @type {string} */ id) => Boolean(context.params[0]) && id === pathToId(context.params[0]);

  function showHere() {
    list.querySelectorAll("tbody tr").forEach((row, at) => row.classList.toggle("here", isHere(rows[at]?.id)));
  }

  /** A token expired while it was shown. */
  async function ended() {
    const open = () => rows.find((token) => isHere(token.id))?.status;
    const was = open();
    await Promise.all([showList(), showNumbers()]);
    // A new token may be shown in its place by now.
    if (list.isConnected && open() !== was) await showPanel();
  }

  root.addEventListener("ended", ended);
  setHooks(root, { again });
  showChosen();
  await Promise.all([showList(), showNumbers(), showPanel()]);
}

/** @param {URLSearchParams} query */
const isNarrowed = (query) => ["q", "status", "expires", "used"].some((name) => query.get(name));

/** @param {import("../shell.js").Me} me */
const nothingYet = (me) => empty({
  title: "No tokens yet",
  sentence: "A token lets a program act as you, within the limits you set, until it expires or you revoke it.",
  action: html`<a class="button" href="/console/tokens/new">Create a token</a>`,
  command: inTerminal("watchword token create --name laptop", me),
});

/** The server's error, and the privilege to ask for. @param {import("../router.js").Context} context */
export async function showWhyNot({ root, me, signal }) {
  /** @type {unknown} */
  let refusal = null;
  try {
    await graphql(LIST, { input: { count: 0, filters: filtersOf(new URLSearchParams(), me.urn) } }, { signal });
  } catch (error) {
    if (error instanceof DOMException) return;
    refusal = error;
  }
  const ask = `Please grant GENERATE_PERSONAL_ACCESS_TOKENS to ${me.urn}, so that I can create personal tokens.`;
  render(root, html`<div class="stack narrow"><div class="page-head"><h1>My tokens</h1></div>
    ${errorLine(refusal)}
    ${me.tokenId ? html`<p>If the token is limited, the policies may be sufficient: sign in with another token.</p>` : null}
    <h2>What to ask for</h2>
    <p>Without a policy, everything is denied. With the privilege <strong>Generate Personal Access Tokens</strong> you can create,
      list and revoke your own tokens. Send this to someone who manages policies:</p>
    ${codeBox(ask, "Copy request")}
    <p>It applies from the next request on. <button type="button" @click=${() => location.reload()}>Reload</button></p></div>`);
}

