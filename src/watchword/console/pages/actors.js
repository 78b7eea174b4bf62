/** Actors and groups: lists with status and membership; suspend, resume, create groups. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { actor, inTerminal, number, time } from "../format.js";
import { ask, empty, field, loadList, notice, pageOf, pager, table } from "../components.js";
import { go, goQuery, setHooks, withQuery } from "../router.js";
import { groupNames } from "../group_names.js";
import { actorPanel } from "./actor_panel.js";
import { backTo, openPanel, openingPanel } from "./forms.js";
import { groupPanel } from "./group_panel.js";
import { actorPath, actorStatus, GROUP, groupName } from "./actor_names.js";

/**
 * @typedef {{urn: string, username: string, displayName: string | null, status: string, changedAt: number | null,
 *   changedBy: string | null, liveTokenCount: number, groups: string[]}} Actor
 * @typedef {{urn: string, name: string, description: string | null, memberCount: number}} Group
 */

const ACTORS = `query Actors($input: ListActorsInput) { listActors(input: $input) { count cursor actors {
  urn username displayName status changedAt changedBy liveTokenCount groups } } }`;
const GROUPS = `query Groups($input: ListGroupsInput!) { listGroups(input: $input) { start count total groups {
  urn name description memberCount } } }`;
/** The API counts no more live tokens of each. */
const MOST_COUNTED = 1000;
const CREATE = `mutation CreateGroup($input: CreateGroupInput!) { createGroup(input: $input) }`;

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  const named = groupNames(me);
  let at = context;
  render(
    root,
    html`<div class="page-head" id="head"></div><ul class="numbers" id="kinds"></ul>
    <div id="said-here"></div><div class="filters" id="filters"></div><div id="list" class="stack"></div>`,
  );
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));
  const ofGroups = () => at.query.get("show") === "groups";

  /** @param {import("../router.js").Context} now */
  async function show(now) {
    const was = at.params[0];
    at = now;
    at.title(ofGroups() ? "Groups" : "Actors");
    showHead();
    await Promise.all([ofGroups() ? groups() : actors(), panelOf(at.params[0])]);
    backTo(was, now);
  }

  function showHead() {
    const kinds = [
      ["Actors", null],
      ["Groups", "groups"],
    ];
    render(
      place("kinds"),
      kinds.map(
        ([label, word]) => html`<li><a href="${withQuery({ show: word, cursor: null, q: null, suspended: null })}"
      aria-current="${(word === "groups") === ofGroups() ? "true" : null}">${label}</a></li>`,
      ),
    );
    render(
      place("head"),
      html`<h1>${ofGroups() ? "Groups" : "Actors"}</h1>${
        ofGroups()
          ? html`<button type="button" class="primary" data-key="new" @click=${makeGroup}>New group</button>`
          : html`<input id="search" type="search" aria-label="Search names, urns and e-mail addresses"
            placeholder="Name, urn or e-mail"
          .value=${at.query.get("q") ?? ""} @change=${(/** @type {Event} */ e) =>
            goQuery({ q: /** @type {HTMLInputElement} */ (e.currentTarget).value.trim(), cursor: null })}>`
      }`,
    );
    const only = at.query.get("suspended") === "1";
    render(
      place("filters"),
      ofGroups()
        ? null
        : html`<label>Status <select id="filter-suspended" @change=${(/** @type {Event} */ e) =>
            goQuery({ suspended: /** @type {HTMLSelectElement} */ (e.currentTarget).value, cursor: null })}>
      <option value="">Any</option><option value="1" .selected=${only}>Suspended</option></select></label>`,
    );
  }

  const actors = () =>
    loadList(place("list"), at.signal, async (signal) => {
      const [query, cursor] = [at.query.get("q"), at.query.get("cursor")];
      const only = at.query.get("suspended") === "1";
      const found = (await graphql(ACTORS, { input: { query, cursor, onlySuspended: only } }, { signal })).listActors;
      const rows = /** @type {Actor[]} */ (found.actors);
      await named.look(
        rows.flatMap((one) => one.groups),
        signal,
      );
      render(place("list"), rows.length ? html`${actorTable(rows)}${further(cursor, found.cursor)}` : noActors(only));
    });

  const actorTable = (/** @type {Actor[]} */ rows) =>
    table({
      caption: "Actors",
      rows,
      rowClass: (one) => (one.urn === at.params[0] ? "here" : ""),
      columns: [
        {
          label: "Name",
          cell: (one) =>
            html`<a id="${one.urn}" href="${withQuery(
              { cursor: at.query.get("cursor") },
              actorPath(one.urn),
            )}">${actor(one.urn, one.displayName)}</a>`,
        },
        {
          label: "Groups",
          cell: (one) =>
            one.groups.length
              ? html`<span>${one.groups
                  .slice(0, 3)
                  .map((urn, index) => html`${index ? ", " : ""}${named.shown(urn)}`)}${
                  one.groups.length > 3
                    ? html` <span class="quiet" title="${one.groups.map(named.name).join(", ")}">and
                      ${number(one.groups.length - 3)} more</span>`
                    : null
                }</span>`
              : html`<span class="quiet">none</span>`,
        },
        {
          label: "Live tokens",
          class: "number",
          cell: (one) => `${number(one.liveTokenCount)}${one.liveTokenCount < MOST_COUNTED ? "" : "+"}`,
        },
        { label: "Status changed", class: "nowrap", cell: (one) => time(one.changedAt) },
        { label: "Status", cell: actorStatus },
      ],
    });

  const noActors = (/** @type {boolean} */ only) => {
    const narrowed = only || at.query.get("q");
    return empty({
      title: only ? "No actor is suspended" : narrowed ? "No actor matches" : "No actors yet",
      sentence: html`Actors need no registration. This list has every actor that has a token, a name or a group, was
        suspended, or is named by a policy. ${
          at.query.get("q")
            ? html`<a href="${actorPath(
                /^urn:/.test(at.query.get("q") ?? "")
                  ? (at.query.get("q") ?? "")
                  : `urn:li:corpuser:${at.query.get("q")}`,
              )}">Show ${at.query.get("q")} anyway.</a>`
            : null
        }`,
      action: narrowed ? html`<a class="button" href="/console/actors">Show all</a>` : undefined,
      command: narrowed ? undefined : inTerminal("watchword actor list", me),
    });
  };

  /** @param {string | null} here @param {string | null} next */
  const further = (here, next) =>
    here || next
      ? html`<nav class="pager" aria-label="Pages"><span>${
          here ? html`<a href="${withQuery({ cursor: null })}">‹ First</a>` : null
        }</span><span>${
          next
            ? html`<a rel="next" href="${withQuery({ cursor: next })}">Next ›</a>`
            : html`<span class="quiet">No more</span>`
        }</span></nav>`
      : null;

  const groups = () =>
    loadList(place("list"), at.signal, async (signal) => {
      const found = (await graphql(GROUPS, { input: pageOf(at.query) }, { signal })).listGroups;
      const rows = /** @type {Group[]} */ (found.groups);
      render(
        place("list"),
        found.total
          ? html`${table({
              caption: "Groups",
              rows,
              rowClass: (one) => (one.urn === at.params[0] ? "here" : ""),
              columns: [
                {
                  label: "Name",
                  cell: (one) =>
                    html`<a id="${one.urn}" href="${withQuery(
                      { page: at.query.get("page") },
                      actorPath(one.urn),
                    )}">${one.name}</a>`,
                },
                { label: "Id", cell: (one) => html`<code>${groupName(one.urn)}</code>` },
                { label: "Description", cell: (one) => one.description ?? html`<span class="quiet">–</span>` },
                { label: "Members", class: "number", cell: (one) => number(one.memberCount) },
              ],
            })}${pager({ ...found, shown: rows.length })}`
          : empty({
              title: "No groups yet",
              sentence: "A policy can grant privileges to a group: all its members have them.",
              action: html`<button type="button" @click=${makeGroup}>New group</button>`,
              command: inTerminal("watchword group create ops --name Operations", me),
            }),
      );
    });

  async function makeGroup() {
    let urn = "";
    const sure = await ask({
      title: "New group",
      action: "Create group",
      draft: "group",
      content: html`${field({
        id: "group-name",
        label: "Name",
        control: html`<input id="group-name" name="name" required maxlength="200" autocomplete="off">`,
      })}
        ${field({
          id: "group-id",
          label: "Id",
          optional: true,
          hint: "How policies name the group. Generated if empty. It never changes.",
          control: html`<input id="group-id" name="id" maxlength="100" autocomplete="off" spellcheck="false"
            aria-describedby="group-id-hint">`,
        })}
        ${field({
          id: "group-description",
          label: "Description",
          optional: true,
          control: html`<input id="group-description" name="description" maxlength="1000" autocomplete="off">`,
        })}`,
      act: async (form) => {
        const given = (/** @type {string} */ name) => String(form.get(name)).trim() || null;
        urn = (
          await graphql(CREATE, {
            input: { id: given("id"), name: given("name") ?? "", description: given("description") },
          })
        ).createGroup;
      },
    });
    if (!sure) return;
    render(place("said-here"), notice(html`Created the group <code>${groupName(urn)}</code>.`));
    await go(withQuery({ show: "groups" }, actorPath(urn)));
  }

  /** @param {string | undefined} urn */
  async function panelOf(urn) {
    if (!urn) {
      openPanel(root, null);
      return;
    }
    const close = withQuery({ cursor: at.query.get("cursor"), members: null }, "/console/actors");
    await openingPanel(root, async () => {
      openPanel(
        root,
        await (urn.startsWith(GROUP) ? groupPanel : actorPanel)({
          urn,
          me,
          named,
          close,
          query: at.query,
          signal: at.signal,
          done,
        }),
      );
    });
  }

  /** @param {unknown} said @param {boolean} [close] */
  async function done(said, close = false) {
    render(place("said-here"), notice(said));
    if (close) await go(withQuery({}, "/console/actors"), { sure: true });
    else await go(location.href, { sure: true });
  }

  setHooks(root, { again: show });
  await show(context);
}
