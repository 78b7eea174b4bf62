/** All tokens: find them by actor or filter; revoke selected or all matching ones, after a dry run. */

import { build, html, render } from "../html.js";
import { graphql } from "../api.js";
import { actor, counted, DAY, idToPath, inTerminal, number, pathToId, time } from "../format.js";
import { whileBusy, empty, loadList, notice, pageOf, pager, status, table } from "../components.js";
import { withSameQuery, goQuery, setHooks, withQuery } from "../router.js";
import { showToken } from "../token_panel.js";
import { backTo } from "./forms.js";
import { actorInput, actorName, userUrn } from "./actor_names.js";
import { revokeMany, receipts } from "./bulk_revocation.js";

/**
 * @typedef {{id: string, name: string, actorUrn: string, actorName: string | null, ownerUrn: string, ownerName: string | null, tokenType: string, status: string,
 *   expiresAt: number | null, lastUsedAt: number | null, lastNetwork: string | null, useCount: number,
 *   revokedAt: number | null, effectiveStatus: string}} Token
 */

const LIST = `query AllTokens($input: ListAccessTokensInput) { listAccessTokens(input: $input) { start count total tokens {
  id name actorUrn actorName ownerUrn ownerName tokenType status effectiveStatus expiresAt lastUsedAt lastNetwork useCount revokedAt } } }`;
const NUMBERS = `query Numbers($soon: [FacetFilterInput!]) {
  all: listAccessTokens(input: {count: 0}) { total }
  soon: listAccessTokens(input: {count: 0, filters: $soon}) { total } }`;
const CHOICES = {
  status: [["", "Not revoked"], ["ACTIVE", "Live"], ["EXPIRED", "Expired"], ["REVOKED", "Revoked"]],
  expires: [["", "Any time"], ["week", "Within 7 days"], ["month", "Within 30 days"], ["never", "Never"]],
  used: [["", "Any time"], ["idle", "Not in 90 days"], ["never", "Never used"]],
  type: [["", "Any"], ["PERSONAL", "Personal"], ["SERVICE_ACCOUNT", "Service account"]],
};
const LABELS = { status: "Status", expires: "Expires", used: "Last used", type: "Kind" };

/** @param {URLSearchParams} query what the API takes for the filters of the address */
export function filtersOf(query) {
  /** @type {Record<string, unknown>[]} */
  const filters = [];
  const now = Date.now();
  /** @param {string} field @param {string} condition @param {string | number} [value] @param {boolean} [negated] */
  const add = (field, condition, value, negated = false) => filters.push({
    field, condition, negated, ...(value === undefined ? {} : { value: String(value) }),
  });
  const has = (/** @type {string} */ name) => query.get(name) ?? "";
  if (has("q")) add("name", "CONTAIN", has("q"));
  if (has("actor")) add("actorUrn", "EQUAL", userUrn(has("actor")));
  if (has("type")) add("tokenType", "EQUAL", has("type"));
  if (has("status")) add("status", "EQUAL", has("status"));
  if (has("expires") === "never") add("expiresAt", "EXISTS", undefined, true);
  else if (has("expires")) {
    add("expiresAt", "GREATER_THAN", now);
    add("expiresAt", "LESS_THAN_OR_EQUAL_TO", now + (has("expires") === "week" ? 7 : 30) * DAY);
  }
  if (has("used") === "never") add("lastUsedAt", "EXISTS", undefined, true);
  else if (has("used")) add("lastActivityAt", "LESS_THAN", "P90D");
  return filters;
}

/** @param {Token} token */
export function tokenStatus(token) {
  if (token.status === "REVOKED") return status("revoked");
  if (token.status === "EXPIRED") return status("expired");
  if (token.effectiveStatus === "SUSPENDED") return status("revoked", "suspended");
  if (token.expiresAt !== null && token.expiresAt < Date.now() + 7 * DAY) return status("soon", "expires soon");
  return status("live");
}

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  context.title("All tokens");
  /** The selected tokens, on all pages. @type {Set<string>} */
  const chosen = new Set();
  let at = context;
  let total = 0;
  /** @type {string | null} the query whose list is shown */
  let listed = null;
  /** @type {Token[]} */
  let rows = [];

  render(root, html`<div class="page-head"><h1>All tokens</h1>
      <input id="search" data-key="search" type="search" aria-label="Search by name" placeholder="Part of a name"
        @change=${(/** @type {Event} */ e) => goQuery({ q: value(e) })}></div>
    <ul class="numbers" id="numbers"></ul>
    <div id="receipts"></div><div id="said-here"></div>
    <div class="filters" id="filters"></div>
    <div id="bulk"></div><div id="plan"></div><div id="list" class="stack"></div>`);
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));
  const kept = receipts(place("receipts"), me.urn);

  /** @param {import("../router.js").Context} now */
  async function show(now) {
    const was = at.params[0];
    at = now;
    showChosen();
    const onlyDetails = at.query.toString() === listed && at.params[0] !== was;
    await Promise.all([onlyDetails ? null : list(), panelOf(at.params[0])]);
    backTo(was && pathToId(was), now);
  }

  /** @param {string | undefined} part */
  async function panelOf(part) {
    if (part) await showToken(at, pathToId(part), withSameQuery("/console/all-tokens"), changed, tokenPath);
    else root.querySelector(":scope > .panel")?.remove();
  }

  const tokenPath = (/** @type {string} */ id) => withSameQuery(`/console/all-tokens/${idToPath(id)}`);

  /** @param {unknown} what was done to a token, in its details */
  async function changed(what) {
    render(place("said-here"), notice(what));
    await Promise.all([list(), numbers()]);
  }

  function showChosen() {
    /** @type {HTMLInputElement} */ (place("search")).value = at.query.get("q") ?? "";
    render(place("filters"), filterRow());
  }

  const list = () => loadList(place("list"), at.signal, async (signal) => {
    const [sort, order] = [at.query.get("sort"), at.query.get("order")];
    const input = { ...pageOf(at.query), filters: filtersOf(at.query), ...(sort ? { sort: { field: sort, order } } : {}) };
    const found = (await graphql(LIST, { input }, { signal })).listAccessTokens;
    ({ total } = found);
    rows = found.tokens;
    listed = at.query.toString();
    render(place("list"), rows.length || total ? html`${tokens(sort, order)}
      ${pager({ ...found, shown: rows.length })}` : nothing());
    showBulk();
  });

  const filterRow = () => html`<label>Actor ${actorInput(me, {
      id: "actor", value: actorName(userUrn(at.query.get("actor") ?? "")), placeholder: "Any",
      change: (urn) => goQuery({ actor: urn }) })}</label>
    ${Object.entries(CHOICES).map(([name, choices]) => html`<label>${LABELS[/** @type {keyof typeof LABELS} */ (name)]}
      <select id="filter-${name}" @change=${(/** @type {Event} */ e) => goQuery({ [name]: value(e) })}>
        ${choices.map(([word, text]) => html`<option value="${word}" .selected=${(at.query.get(name) ?? "") === word}>${text}</option>`)}
      </select></label>`)}
    ${isNarrowed() ? html`<a class="button" href="/console/all-tokens">Clear filters</a>` : null}`;

  const isNarrowed = () => ["q", "actor", ...Object.keys(CHOICES)].some((name) => at.query.get(name));

  const nothing = () => (isNarrowed()
    ? empty({ title: "No token matches", sentence: "No stored token matches these filters.",
      action: html`<a class="button" href="/console/all-tokens">Clear filters</a>` })
    : empty({ title: "No tokens yet", sentence: "There is no token that is not revoked.",
      action: html`<a class="button" href="/console/tokens/new">New token</a>`,
      command: inTerminal("watchword token create --name first", me) }));

  const tokens = (/** @type {string | null} */ sort, /** @type {string | null} */ order) => table({
    caption: "All tokens", rows, sort, order, rowClass: (token) => (chosen.has(token.id) ? "here" : ""),
    columns: [
      { label: "Name", sort: "name", cell: (token) => html`<span class="pick"><input type="checkbox" aria-label="Select ${token.name}"
          ?disabled=${token.status === "REVOKED"} .checked=${chosen.has(token.id)} @change=${(/** @type {Event} */ e) => choose(token, e)}
          ><a id="${token.id}" href="${tokenPath(token.id)}">${token.name}</a></span>` },
      { label: "Acts as", sort: "actorUrn", cell: (token) => html`<span><a href="${withQuery({ actor: token.actorUrn })}">${actor(token.actorUrn, token.actorName)}</a>${token.ownerUrn === token.actorUrn ? null
          : html`<span class="quiet small block">created by ${actor(token.ownerUrn, token.ownerName)}</span>`}</span>` },
      { label: "Expires", sort: "expiresAt", class: "nowrap", cell: (token) => (token.status === "ACTIVE" && token.expiresAt !== null
        ? html`<span data-ends>${time(token.expiresAt)}</span>` : time(token.expiresAt)) },
      { label: "Last used", sort: "lastUsedAt", class: "nowrap", first: "DESCENDING", cell: (token) => time(token.lastUsedAt) },
      { label: "Uses", sort: "useCount", first: "DESCENDING", class: "number", cell: (token) => number(token.useCount) },
      { label: "Status", cell: tokenStatus },
    ],
  });

  /** @param {Token} token @param {Event} event */
  function choose(token, event) {
    const box = /** @type {HTMLInputElement} */ (event.currentTarget);
    if (box.checked) chosen.add(token.id);
    else chosen.delete(token.id);
    box.closest("tr")?.classList.toggle("here", box.checked);
    showBulk();
  }

  function showBulk() {
    const here = rows.filter((token) => token.status !== "REVOKED");
    const all = here.length > 0 && here.every((token) => chosen.has(token.id));
    const some = here.some((token) => chosen.has(token.id));
    const dead = at.query.get("status") === "REVOKED";
    render(place("bulk"), dead || (!total && !chosen.size) ? null : html`<div class="bulk row" role="group" aria-label="Revoke many">
      ${here.length ? html`<label class="choice"><input type="checkbox" id="all-here" .checked=${all} .indeterminate=${some && !all}
        @change=${chooseHere}><span>All ${number(here.length)} on this page</span></label>` : null}
      ${chosen.size ? html`<button type="button" id="revoke-chosen" class="danger" @click=${() => plan({ ids: [...chosen] },
        `the ${counted(chosen.size, "selected token")}`)}>Revoke ${number(chosen.size)} selected…</button>
        <button type="button" class="plain" id="choose-none" @click=${chooseNone}>Clear selection</button>` : null}
      ${total ? html`<button type="button" id="revoke-matching" class="danger" @click=${planMatching}>Revoke all
        ${number(total)} ${isNarrowed() ? "matching" : "tokens"}…</button>` : null}</div>`);
  }

  /** @param {Event} event */
  function chooseHere(event) {
    const { checked } = /** @type {HTMLInputElement} */ (event.currentTarget);
    for (const token of rows) {
      if (checked && token.status !== "REVOKED") chosen.add(token.id);
      else chosen.delete(token.id);
    }
    redraw();
  }

  function chooseNone() {
    chosen.clear();
    redraw();
  }

  function redraw() {
    place("list").querySelector(".table-box")?.replaceWith(...build(tokens(at.query.get("sort"), at.query.get("order"))));
    showBulk();
  }

  const planMatching = () => {
    const filters = filtersOf(at.query);
    return plan(filters.length ? { filters } : { all: true }, isNarrowed() ? "all tokens that match the filters" : "all tokens");
  };

  /** @param {Record<string, unknown>} input @param {string} words */
  const plan = (input, words) => revokeMany({
    place: place("plan"), input, words, me,
    done: async (receipt) => {
      kept.add(receipt);
      chosen.clear();
      await Promise.all([list(), numbers()]);
    },
  });

  async function numbers() {
    const soon = filtersOf(new URLSearchParams("status=ACTIVE&expires=week"));
    try {
      await whileBusy(place("numbers"), null, async (signal) => {
        const found = await graphql(NUMBERS, { soon }, { signal });
        render(place("numbers"), html`<li><a href="/console/all-tokens">${number(found.all.total)} not revoked</a></li>
          <li><a href="/console/all-tokens?status=ACTIVE&amp;expires=week">${number(found.soon.total)} expire this week</a></li>
          <li><a href="/console/all-tokens?status=ACTIVE&amp;used=idle">Not used in 90 days</a></li>`);
      });
    } catch {
      // The list below shows the error.
    }
  }

  root.addEventListener("ended", () => Promise.all([list(), numbers()]));
  setHooks(root, { again: show });
  await Promise.all([show(context), numbers()]);
}

/** @param {Event} event */
const value = (event) => /** @type {HTMLInputElement} */ (event.currentTarget).value.trim();
