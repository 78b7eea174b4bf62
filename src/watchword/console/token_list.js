/**
 * The list of tokens: search, filters, saved views, selection, the actions of a row, bulk revocation and CSV. "My
 * tokens" and "All tokens" are this list over other tokens. Everything but the selection is in the address.
 */

import { build, html, render } from "./html.js";
import { ApiError, UNREACHABLE, graphql } from "./api.js";
import { actor, actorName, counted, idToPath, number, pathToId, time } from "./format.js";
import {
  empty,
  errorLine,
  loadList,
  loading,
  menu,
  notice,
  pageOf,
  pager,
  say,
  showingErrors,
  table,
  toClipboard,
  whileBusy,
} from "./components.js";
import { goQuery, setHooks, showQuery, withQuery, withSameQuery } from "./router.js";
import { ROW, endOf, mayRevoke, mayRotate, scopesInShort, statusOf } from "./token_display.js";
import { CONTROLS, chipsOf, filtersOf, isNarrowed, listsDead, sortOf } from "./token_filters.js";
import { receipts } from "./receipts.js";
import { viewsMenu } from "./saved_views.js";
import { sparkline } from "./charts.js";
import { actorPicker, isUrn, whoIs } from "./actor_picker.js";
import { backTo } from "./pages/forms.js";

/** @typedef {import("./token_display.js").Token} Token */
/** @typedef {import("./token_display.js").Filter} Filter */
/** @typedef {import("./router.js").Context} Context */
/** @typedef {Token & {usesByDay: import("./charts.js").DayCount[]}} Listed */

/**
 * @typedef {object} TokenList
 * @property {string} title
 * @property {string} path the address of the page
 * @property {Filter[]} base what the list is about, whatever the address says
 * @property {boolean} everyone whether it has the tokens of all actors
 * @property {() => unknown} nothing shown if there is no token at all
 */

const FIELDS = `${ROW} useCount lastNetwork`;
const LIST = `query Tokens($input: ListAccessTokensInput) {
  listAccessTokens(input: $input) { start count total tokens { ${FIELDS} usesByDay { day count } } } }`;
const FILE = `query TokenFile($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total tokens {
  ${FIELDS} } } }`;
const NUMBERS = `query Numbers($all: Boolean) { overview(input: {all: $all}) {
  live expiring7Days unused90Days neverExpiring } }`;
const MOST_ROWS = 10_000;
const ROWS_AT_ONCE = 1_000;

/** @param {Context} first @param {TokenList} what */
export async function tokenList(first, { title, path, base, everyone, nothing }) {
  const { root, me } = first;
  first.title(title);
  let context = first;
  /** @type {string | null} the query whose list is shown */
  let listed = null;
  /** @type {"loading" | "shown" | "failed"} */
  let state = "loading";
  let total = 0;
  /** @type {Listed[]} */
  let rows = [];
  /** The selected tokens, on all pages. @type {Map<string, Token>} */
  const chosen = new Map();
  const controls = CONTROLS.filter(({ name }) => everyone || !["actor", "type"].includes(name));
  /** @type {Record<string, import("./actor_picker.js").Picker>} */
  const pickers = {};
  /** A name in the address of which it is not known who it is. */
  const unchosen = () =>
    Object.keys(pickers)
      .map((name) => context.query.get(name))
      .find((value) => value && !isUrn(value));
  const [usual, more] = [controls.slice(0, everyone ? 4 : 3), controls.slice(everyone ? 4 : 3)];

  render(
    root,
    html`<div class="page-head"><h1>${title}</h1>
      <form role="search" @submit=${search}><input id="search" type="search" aria-label="Search tokens"
        placeholder="Name, person, id, or a token" autocomplete="off" spellcheck="false" @search=${search}></form>
      <a class="button primary" data-key="new" href="/console/tokens/new">New token</a></div>
    <div class="list-head"><ul class="numbers" aria-label="Summary"></ul><span
      class="row list-actions">${viewsMenu({ path, urn: me.urn }, () => context.query)}<button type="button" id="csv"
        @click=${download}
        >Download CSV</button>${
          everyone ? html`<a class="button" href="/console/import">Import from DataHub</a>` : null
        }</span></div>
    <div id="receipts"></div><div class="done"></div>
    <div class="filters">${usual.map(control)}
      <details class="more"><summary>More filters</summary><div
        class="filters">${more.map(control)}</div></details></div>
    <div class="chips"></div><div class="problem"></div>
    <div id="bulk"></div><div id="plan"></div><div class="list">${loading()}</div>`,
  );
  const place = (/** @type {string} */ which) => /** @type {HTMLElement} */ (root.querySelector(which));
  const list = place(".list");
  const input = /** @type {HTMLInputElement} */ (place("#search"));
  const kept = receipts(place("#receipts"), me.urn, path);

  /** @param {import("./token_filters.js").FilterControl} what */
  function control({ name, label, choices }) {
    const change = (/** @type {string} */ value) => goQuery({ [name]: value });
    if (name === "actor" || name === "owner") {
      pickers[name] = actorPicker(me, { id: `filter-${name}`, placeholder: "Any", change });
      return html`<div class="filter"><label for="filter-${name}">${label}</label>${pickers[name].node}</div>`;
    }
    const changed = (/** @type {Event} */ event) =>
      change(/** @type {HTMLInputElement} */ (event.currentTarget).value.trim());
    return html`<label>${label}${
      choices
        ? html`<select id="filter-${name}" @change=${changed}>${choices.map(
            ([value, words]) => html`<option value="${value}">${words}</option>`,
          )}</select>`
        : html`<input id="filter-${name}" placeholder="Any" autocomplete="off" spellcheck="false" @change=${changed}>`
    }</label>`;
  }

  /** @param {Event} event */
  function search(event) {
    event.preventDefault();
    if (input.value.trim() !== (context.query.get("q") ?? "")) void goQuery({ q: input.value.trim() });
  }

  const pathOf = (/** @type {string} */ id) => withSameQuery(`${path}/${idToPath(id)}`);
  const closed = () => withSameQuery(path);
  const isHere = (/** @type {string} */ id) => Boolean(context.params[0]) && id === pathToId(context.params[0]);
  const filters = () => filtersOf(context.query, base);

  function showChosen() {
    showQuery(input, context.query.get("q"));
    for (const { name } of controls) {
      const value = context.query.get(name) ?? "";
      const field = /** @type {HTMLInputElement | HTMLSelectElement} */ (place(`#filter-${name}`));
      if (pickers[name]) pickers[name].set(value);
      else showQuery(field, value);
    }
    if (more.some(({ name }) => context.query.get(name))) place(".more").setAttribute("open", "");
    showChips();
  }

  function showChips() {
    /** @type {Map<string, string | null>} */
    const names = new Map(
      rows.flatMap((token) => [
        [token.actorUrn, token.actorName],
        [token.ownerUrn, token.ownerName],
      ]),
    );
    const chips = chipsOf(context.query, (urn) => actorName(urn, names.get(urn)));
    render(
      place(".chips"),
      chips.length
        ? html`<ul aria-label="Filters">${chips.map(
            ({ name, words }) => html`<li><a class="chip"
      id="chip-${name}" href="${withQuery({ [name]: null })}" aria-label="Remove filter ${words}">${words} <span
        aria-hidden="true">✕</span></a></li>`,
          )}
      ${chips.length > 1 ? html`<li><a href="${path}">Clear filters</a></li>` : null}</ul>`
        : null,
    );
  }

  const showList = () =>
    loadList(list, context.signal, async (signal) => {
      state = "loading";
      showBulk();
      try {
        const whom = unchosen();
        if (whom) {
          state = "failed";
          render(list, whoIs(whom));
          return;
        }
        const asked = { ...pageOf(context.query), filters: filters(), sort: sortOf(context.query) };
        const { listAccessTokens: found } = await graphql(LIST, { input: asked }, { signal });
        listed = context.query.toString();
        ({ total } = found);
        rows = found.tokens;
        state = "shown";
        showRows(found);
        showChips();
      } catch (error) {
        if (!signal.aborted) state = "failed";
        throw error;
      } finally {
        showBulk();
      }
    });

  /** @param {{start: number, count: number, total: number}} found */
  function showRows(found) {
    if (rows.length) render(list, html`${tokens()}${pager({ ...found, shown: rows.length })}`);
    else if (found.total)
      render(
        list,
        html`<p>There is no such page. <a href="${withQuery({ page: null })}">Go to the first page.</a></p>`,
      );
    else if (!isNarrowed(context.query)) render(list, nothing());
    else {
      render(
        list,
        empty({
          title: "No token matches",
          sentence: context.query.get("status")
            ? "No token matches the search and the filters."
            : "No live or suspended token matches the search and the filters.",
          action: html`${
            context.query.get("status")
              ? null
              : html`<a class="button" href="${withQuery({ status: "all" })}">Search ended tokens too</a> `
          }<a
          class="button" href="${path}">Clear filters</a>`,
        }),
      );
    }
  }

  const tokens = () =>
    table({
      caption: title,
      rows,
      sort: sortOf(context.query).field,
      order: sortOf(context.query).order,
      rowClass: (token) => (isHere(token.id) || chosen.has(token.id) ? "here" : ""),
      columns: [
        { label: "Name", sort: "name", class: "name", cell: nameCell },
        ...(everyone ? [{ label: "Acts as", sort: "actorUrn", cell: actorCell }] : []),
        { label: "Expires", sort: "expiresAt", class: "end", cell: endOf },
        {
          label: "Last used",
          sort: "lastUsedAt",
          first: /** @type {const} */ ("DESCENDING"),
          class: "nowrap",
          cell: (token) => time(token.lastUsedAt),
        },
        {
          label: "Uses",
          sort: "useCount",
          first: /** @type {const} */ ("DESCENDING"),
          class: "number use-count",
          cell: usesCell,
        },
        { label: "Status", cell: statusOf },
        { label: "", class: "row-menu", cell: rowMenu },
      ],
    });

  /** @param {Token} token */
  const nameCell = (
    token,
  ) => html`<span class="pick"><input type="checkbox" id="pick-${token.id}" aria-label="Select ${token.name}"
    ?disabled=${token.status !== "ACTIVE" || !mayRevoke(token, me)} .checked=${chosen.has(token.id)}
    @change=${(/** @type {Event} */ event) => choose(token, event)}><span><span class="block"><a
    id="${token.id}" href="${pathOf(token.id)}">${token.name}</a></span><span
      class="quiet small block">${token.id === me.tokenId ? "this session · " : null}${
        token.parentId ? "derived · " : null
      }${scopesInShort(token.scopes)}</span></span></span>`;

  /** @param {Token} token */
  const actorCell = (token) =>
    html`<a href="${withQuery({ actor: token.actorUrn })}">${actor(token.actorUrn, token.actorName)}</a>${
      token.ownerUrn === token.actorUrn
        ? null
        : html`<span class="quiet small block">created by ${actor(token.ownerUrn, token.ownerName)}</span>`
    }`;

  /** @param {Listed} token */
  const usesCell = (token) =>
    html`<span class="uses">${sparkline(token.usesByDay, `Uses of ${token.name}`)} ${number(token.useCount)}</span>`;

  /** @param {Token} token */
  const rowMenu = (token) =>
    menu({
      text: "⋯",
      label: `Actions for ${token.name}`,
      class: "plain",
      items: () => html`<li><a href="${pathOf(token.id)}">Open</a></li>
      <li><button type="button" class="plain" @click=${() => copyId(token)}>Copy id</button></li>
      ${
        mayRotate(token, me)
          ? html`<li><button type="button" class="plain" @click=${() =>
              act((actions) => actions.rotate(context, token))}>Rotate…</button></li>`
          : null
      }
      ${
        token.status === "ACTIVE" && mayRevoke(token, me)
          ? html`<li><button type="button" class="plain"
        @click=${() =>
          act((actions) => actions.revoke(context, token, { close: closed(), changed }))}>Revoke…</button></li>`
          : null
      }
      ${
        me.privileges.viewAuditLog
          ? html`<li><a href="/console/activity?target=${encodeURIComponent(token.id)}">Activity</a></li>`
          : null
      }`,
    });

  /** @param {(actions: typeof import("./token_actions.js")) => unknown} work */
  const act = (work) =>
    showingErrors(place(".problem"), async () => {
      await work(await import("./token_actions.js").catch(unreachable));
    });

  /** @param {Token} token */
  const copyId = async (token) =>
    say(
      (await toClipboard(token.id)) ? "Copied." : "The browser does not allow copying. Open the token and copy its id.",
    );

  /** @param {Token} token @param {Event} event */
  function choose(token, event) {
    const box = /** @type {HTMLInputElement} */ (event.currentTarget);
    if (box.checked) chosen.set(token.id, token);
    else chosen.delete(token.id);
    box.closest("tr")?.classList.toggle("here", box.checked || isHere(token.id));
    showBulk();
  }

  /** The tokens of this page that can be revoked. */
  const live = () => rows.filter((token) => token.status === "ACTIVE" && mayRevoke(token, me));

  function showBulk() {
    const here = live();
    const some = here.some((token) => chosen.has(token.id));
    const all = some && here.every((token) => chosen.has(token.id));
    const matching = total > 0 && isNarrowed(context.query) && !listsDead(context.query);
    const off = state !== "shown";
    render(
      place("#bulk"),
      !here.length && !chosen.size && !matching
        ? null
        : html`<div class="bulk row" role="group" aria-label="Revoke many">
      ${
        here.length
          ? html`<label class="choice"><input type="checkbox" id="all-here" .checked=${all}
            .indeterminate=${some && !all}
        @change=${chooseHere}><span>All ${number(here.length)} on this page</span></label>`
          : null
      }
      ${
        chosen.size
          ? html`${selection()}<button type="button" id="revoke-chosen" ?disabled=${off}
        @click=${() => plan({ ids: [...chosen.keys()] }, `the ${counted(chosen.size, "selected token")}`)}>Revoke
        selected…</button>
        <button type="button" class="plain" id="choose-none" @click=${chooseNone}>Clear selection</button>`
          : null
      }
      ${
        matching
          ? html`<button type="button" id="revoke-matching" ?disabled=${off}
        @click=${() => plan({ filters: filters() }, "all tokens that match the search and the filters")}>Revoke all
        matching…</button>`
          : null
      }</div>`,
    );
  }

  /** How many are selected; those that the page does not show, by name. */
  function selection() {
    const shown = new Set(rows.map((token) => token.id));
    const hidden = [...chosen.values()].filter((token) => !shown.has(token.id));
    if (!hidden.length) return html`<span role="status">${number(chosen.size)} selected</span>`;
    return html`<details class="selected"><summary>${number(chosen.size)} selected, ${number(hidden.length)} not
      shown</summary>
      <ul class="plain-list">${hidden.map(
        (
          token,
        ) => html`<li>${token.name} <span class="quiet small">of ${actorName(token.actorUrn, token.actorName)}</span>
        <button type="button" class="plain" aria-label="Remove ${token.name} from the selection" @click=${() => {
          chosen.delete(token.id);
          showBulk();
        }}>✕</button></li>`,
      )}</ul></details>`;
  }

  /** @param {Event} event */
  function chooseHere(event) {
    const { checked } = /** @type {HTMLInputElement} */ (event.currentTarget);
    for (const token of live()) {
      if (checked) chosen.set(token.id, token);
      else chosen.delete(token.id);
    }
    redraw();
  }

  function chooseNone() {
    chosen.clear();
    redraw();
  }

  function redraw() {
    list.querySelector(".table-box")?.replaceWith(...build(tokens()));
    showBulk();
  }

  /** @param {{ids?: string[], filters?: Filter[]}} selected @param {string} words */
  const plan = (selected, words) =>
    showingErrors(place("#plan"), async () => {
      const { revokeMany } = await import("./bulk_revocation.js").catch(unreachable);
      await revokeMany({
        place: place("#plan"),
        selected,
        words,
        me,
        done: async (receipt) => {
          kept.add(receipt);
          chosen.clear();
          await Promise.all([showList(), showNumbers()]);
        },
      });
    });

  async function showNumbers() {
    const box = place(".numbers");
    try {
      await whileBusy(box, null, async (signal) => {
        const found = (await graphql(NUMBERS, { all: everyone }, { signal })).overview;
        /** @type {[number | null, string, string][]} */
        const links = [
          [found.live, "live", ""],
          [found.expiring7Days, `expire${found.expiring7Days === 1 ? "s" : ""} within 7 days`, "&expires=week"],
          [found.unused90Days, "not used in 90 days", "&used=idle90"],
          [found.neverExpiring, "never expire", "&expires=never"],
        ];
        render(
          box,
          links.map(
            ([count, words, query]) =>
              html`<li><a href="${path}?status=live${query}">${count === null ? "" : number(count)} ${words}</a></li>`,
          ),
        );
      });
    } catch {
      // The list shows the error.
    }
  }

  /** Save all rows of the list, not only this page. @param {Event} event */
  async function download(event) {
    const button = /** @type {HTMLButtonElement} */ (event.currentTarget);
    button.disabled = true;
    try {
      const whom = unchosen();
      if (whom) throw new Error(`“${whom}” is not chosen.`);
      const { saveTokens } = await import("./token_csv.js").catch(unreachable);
      /** @type {Token[]} */
      const found = [];
      let all = 1;
      while (found.length < Math.min(all, MOST_ROWS)) {
        const asked = { start: found.length, count: ROWS_AT_ONCE, filters: filters(), sort: sortOf(context.query) };
        const { listAccessTokens: part } = await graphql(FILE, { input: asked }, { signal: context.signal });
        found.push(...part.tokens);
        all = part.tokens.length ? part.total : 0;
      }
      saveTokens(found);
      render(
        place(".done"),
        notice(
          `Saved ${counted(found.length, "token")} as CSV.${
            all > found.length
              ? ` ${number(all)} match; a file has at most ${number(MOST_ROWS)}. Narrow the filters for the others.`
              : ""
          }`,
        ),
      );
    } catch (error) {
      if (!(error instanceof DOMException))
        render(
          place(".problem"),
          errorLine(error, () => download(event)),
        );
    } finally {
      button.disabled = false;
    }
  }

  /** @param {unknown} done what was done to a token */
  async function changed(done) {
    render(place(".done"), done ? notice(done) : null);
    await Promise.all([showList(), showNumbers()]);
  }

  const showPanel = () =>
    showingErrors(place(".problem"), async () => {
      const now = context;
      const [part] = now.params;
      if (!part) {
        root.querySelector(":scope > .panel")?.remove();
        return;
      }
      const { showToken } = await import("./token_panel.js").catch(unreachable);
      if (!now.signal.aborted) await showToken(now, pathToId(part), closed(), changed, pathOf);
    });

  /** @param {Context} next */
  async function again(next) {
    const was = context.params[0];
    context = next;
    const same = next.query.toString() === listed;
    // The plan is about the tokens of the list before.
    if (!same) render(place("#plan"), null);
    showChosen();
    await Promise.all([same ? showHere() : showList(), showPanel()]);
    backTo(was && pathToId(was), next);
  }

  function showHere() {
    list
      .querySelectorAll("tbody tr")
      .forEach((row, at) => row.classList.toggle("here", isHere(rows[at]?.id) || chosen.has(rows[at]?.id)));
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

/** The module of an action could not be loaded. @returns {never} */
function unreachable() {
  throw new ApiError(UNREACHABLE, { reason: "unreachable" });
}
