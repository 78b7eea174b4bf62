/**
 * Operations: the sizes of time series indices, and the truncations, newest first. A truncation is planned at
 * `/console/operations/plan`.
 */

import { html, render, svg } from "../html.js";
import { graphql } from "../api.js";
import { actor, bytes, counted, inTerminal, number, onServer, span, time } from "../format.js";
import { empty, loading, latestSignal, loadList, pageOf, pager, status, table, showingErrors } from "../components.js";
import { setHooks, withQuery } from "../router.js";
import { backTo, openPanel } from "./forms.js";
import { follow, isOver, poll } from "./operation_panel.js";

/**
 * @typedef {{indexName: string, entityName: string, aspectName: string, sizeInBytes: number, rows: number}} Size
 * @typedef {{entityType: string, aspect: string, indexName: string, endTimeMillis: number, rows: number,
 *   rowsToDelete: number, share: number, sizeInBytes: number, bytesToFree: number, strategy: string, reason: string}} Plan
 * @typedef {"PLANNED" | "RUNNING" | "VERIFYING" | "SWAPPING" | "DONE" | "FAILED" | "CANCELLED"} State
 * @typedef {{id: string, state: State, plan: Plan, actorUrn: string, actorName: string | null, createdAt: number, startedAt: number | null,
 *   finishedAt: number | null, percent: number, rowsDone: number, rowsToDo: number, rowsPerSecond: number | null,
 *   estimatedEndAt: number | null, note: string | null, error: string | null, attempts: number,
 *   sourceIndex: string | null, targetIndex: string | null, cancelRequestedAt: number | null, cancelRequestedBy: string | null,
 *   tasks: {id: string, purpose: string, completed: boolean}[],
 *   postCheck: {passed: boolean, rows: number, rowsLeft: number, expected: number | null} | null}} Operation
 */

export const SIZES = "{ indexSizes { indexName entityName aspectName sizeInBytes rows } }";
const LIST = `query Operations($input: ListOperationsInput) { operations(input: $input) { start count total operations {
  id state percent actorUrn actorName createdAt startedAt finishedAt plan { entityType aspect rows rowsToDelete } } } }`;

/** @type {Record<State, [import("../components.js").Shape, string]>} */
const STATES = {
  PLANNED: ["waiting", "planned"], RUNNING: ["waiting", "running"], VERIFYING: ["waiting", "verifying"],
  SWAPPING: ["waiting", "swapping"], DONE: ["live", "done"], FAILED: ["failed", "failed"], CANCELLED: ["off", "cancelled"],
};

/** @param {string} id */
export const operationPath = (id) => `/console/operations/${encodeURIComponent(id)}`;

/** @typedef {import("../router.js").Context} Context */

/** @param {Context} context */
export async function page(context) {
  const { root, me } = context;
  const mayPlan = me.privileges.truncateTimeseries;
  context.title("Operations");
  render(root, html`<div class="page-head"><h1>Operations</h1>
      ${mayPlan ? html`<a class="button" href="/console/retention">Retention rules</a>
        <a class="button primary" data-key="new" href="/console/operations/plan">Plan a truncation</a>` : null}</div>
    <ul class="numbers"></ul>
    <div class="stack">
      <section class="stack" aria-labelledby="sizes-title"><h2 id="sizes-title">Indices</h2><div id="sizes">${loading()}</div></section>
      ${mayPlan ? html`<section class="stack" aria-labelledby="history-title"><h2 id="history-title">History</h2>
        <div id="history">${loading()}</div></section>` : null}
    </div>`);
  const places = { sizes: part(root, "#sizes"), history: root.querySelector("#history"), numbers: part(root, ".numbers") };
  /** @type {{sizes: Size[] | null, running: number}} */
  const known = { sizes: null, running: 0 };

  const numbers = () => render(places.numbers, [
    known.sizes && html`<li>${counted(known.sizes.length, "index", "indices")}</li>
      <li>${counted(sum(known.sizes, "rows"), "row")}</li><li>${bytes(sum(known.sizes, "sizeInBytes"))}</li>`,
    known.running ? html`<li>${known.running} on this page running</li>` : null,
  ]);

  /** @param {Context} at */
  async function showSizes(at) {
    if (!me.privileges.getIndexSizes) {
      render(places.sizes, html`<p class="quiet">To see index sizes, ask for the privilege <em>Get time series
        index sizes</em>.</p>`);
      return;
    }
    await loadList(places.sizes, at.signal, async (signal) => {
      const found = (await graphql(SIZES, {}, { signal })).indexSizes;
      known.sizes = found;
      render(places.sizes, sizesOf(found, mayPlan, me));
      numbers();
    });
  }

  /** @param {Context} at */
  async function showHistory(at) {
    const { history } = places;
    if (!history) return;
    await showingErrors(history, async () => {
      const input = pageOf(at.query);
      const found = (await graphql(LIST, { input }, { signal: latestSignal(history, at.signal) })).operations;
      known.running = found.operations.filter((/** @type {Operation} */ one) => !isOver(one.state)).length;
      render(history, historyOf(found, me, at.params[0]));
    });
    if (!at.signal.aborted) numbers();
  }

  /** @type {string | undefined} */
  let opened;

  /** @param {Context} at */
  async function show(at) {
    const was = opened;
    [opened] = at.params;
    const close = withQuery({ page: at.query.get("page") }, "/console/operations");
    openPanel(root, opened && mayPlan ? follow(opened, at, close, () => void refresh(at)) : null);
    await refresh(at);
    backTo(was, at);
    const wanted = () => known.running > 0 && !at.signal.aborted;
    if (wanted()) void poll(async () => (await showHistory(at), "still"), wanted);
  }

  /** @param {Context} at */
  async function refresh(at) {
    await Promise.all([showSizes(at), showHistory(at)]);
  }

  setHooks(root, { again: show });
  await show(context);
}

/** @param {Size[]} sizes @param {boolean} mayPlan @param {import("../shell.js").Me} me */
function sizesOf(sizes, mayPlan, me) {
  if (!sizes.length) {
    return empty({
      title: "No time series index yet",
      sentence: "Indices appear here once rows are written to them.",
      command: onServer("watchword index load --demo", me),
    });
  }
  const largest = Math.max(...sizes.map((one) => one.sizeInBytes), 1);
  const rows = [...sizes].sort((one, other) => other.sizeInBytes - one.sizeInBytes);
  /** @type {import("../components.js").Column<Size>[]} */
  const columns = [
    { label: "Index", cell: (one) => html`<span title="${one.indexName}">${one.entityName}.<wbr>${one.aspectName}</span>` },
    { label: "Relative size", class: "bar-cell", cell: (one) => bar(one.sizeInBytes / largest) },
    { label: "Size", class: "number", cell: (one) => bytes(one.sizeInBytes) },
    { label: "Rows", class: "number", cell: (one) => number(one.rows) },
  ];
  if (mayPlan) {
    columns.push({
      label: "", class: "nowrap",
      cell: (one) => html`<a href="${planPath(one)}" aria-label="Plan a truncation of ${one.entityName}.${one.aspectName}">Plan</a>`,
    });
  }
  return table({ caption: "Indices, largest first, with their size relative to the largest", rows, columns });
}

/** @param {Size} one */
const planPath = (one) => `/console/operations/plan?index=${encodeURIComponent(`${one.entityName}.${one.aspectName}`)}`;

/** A bar for a share; the number is in the next cell. @param {number} share */
const bar = (share) => html`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false">
  ${svg`<rect class="ground" width="100" height="8"></rect><rect class="stay" width="${Math.max(0.5, share * 100)}" height="8"></rect>`}</svg>`;

/** @param {{start: number, count: number, total: number, operations: Operation[]}} found @param {import("../shell.js").Me} me
 * @param {string} [here] */
function historyOf(found, me, here) {
  if (!found.total) {
    return empty({
      title: "No truncations yet",
      sentence: "A truncation deletes the old rows of a time series. Its plan shows how many before anything is deleted.",
      action: html`<a class="button" href="/console/operations/plan">Plan a truncation</a>`,
      command: inTerminal("watchword index truncate dataset operation --older-than 90d --dry-run", me),
    });
  }
  return html`${table({
    caption: "Operations, newest first",
    rows: found.operations,
    rowClass: (one) => (one.id === here ? "here" : ""),
    columns: [
      { label: "Index", cell: (one) => html`<a id="${one.id}" href="${withQuery({ page: pageIn() }, operationPath(one.id))}"
          >${one.plan.entityType}.<wbr>${one.plan.aspect}</a>` },
      { label: "State", cell: (one) => stateOf(one.state, isOver(one.state) ? "" : ` · ${one.percent.toFixed(0)}%`) },
      { label: "To delete", class: "number", cell: (one) => `${number(one.plan.rowsToDelete)} of ${counted(one.plan.rows, "row")}` },
      { label: "Started", cell: (one) => time(one.createdAt) },
      { label: "Duration", cell: (one) => (one.finishedAt ? took(one) : html`<span class="quiet">not finished</span>`) },
      { label: "By", cell: (one) => actor(one.actorUrn, one.actorName) },
    ],
  })}${pager({ ...found, shown: found.operations.length, what: "operations" })}`;
}

const pageIn = () => new URLSearchParams(location.search).get("page");

/** @param {State} state @param {string} [more] */
export const stateOf = (state, more = "") => status(STATES[state][0], STATES[state][1] + more);

/** @param {Operation} one */
export function took(one) {
  const length = (one.finishedAt ?? Date.now()) - (one.startedAt ?? one.createdAt);
  return length < 1000 ? "less than a second" : span(length);
}

/** @param {ParentNode} root @param {string} selector @returns {HTMLElement} */
export function part(root, selector) {
  const found = root.querySelector(selector);
  if (!(found instanceof HTMLElement)) throw new Error(`There is no ${selector}.`);
  return found;
}

/** @param {Size[]} sizes @param {"rows" | "sizeInBytes"} what */
const sum = (sizes, what) => sizes.reduce((total, one) => total + one[what], 0);
