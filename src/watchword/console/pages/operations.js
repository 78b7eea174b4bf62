/**
 * Operations: the sizes of time series indices, and the truncations, newest first. A truncation is planned at
 * `/console/operations/plan`.
 */

import { html, part, render, svg } from "../html.js";
import { graphql } from "../api.js";
import { actor, bytes, counted, inTerminal, number, onServer, time } from "../format.js";
import { empty, loading, latestSignal, loadList, pageOf, pager, table, showingErrors } from "../components.js";
import { poll } from "../loading.js";
import { setHooks, withQuery } from "../router.js";
import { backTo, openPanel } from "./forms.js";
import { SIZES, isOver, operationPath, stateOf, took } from "./operation_display.js";
import { follow } from "./operation_panel.js";

const LIST = `query Operations($input: ListOperationsInput) { operations(input: $input) { start count total operations {
  id state percent actorUrn actorName createdAt startedAt finishedAt plan { entityType aspect rows rowsToDelete } } }
  }`;

/**
 * @typedef {import("../router.js").Context} Context
 * @typedef {import("./operation_display.js").Operation} Operation
 * @typedef {import("./operation_display.js").Size} Size
 */

/** @param {Context} context */
export async function page(context) {
  const { root, me } = context;
  const mayPlan = me.privileges.truncateTimeseries;
  context.title("Operations");
  render(
    root,
    html`<div class="page-head"><h1>Operations</h1>
      ${
        mayPlan
          ? html`<a class="button" href="/console/retention">Retention rules</a>
        <a class="button primary" data-key="new" href="/console/operations/plan">Plan a truncation</a>`
          : null
      }</div>
    <ul class="numbers"></ul>
    <div class="stack">
      <section class="stack" aria-labelledby="sizes-title"><h2 id="sizes-title">Indices</h2><div
        id="sizes">${loading()}</div></section>
      ${
        mayPlan
          ? html`<section class="stack" aria-labelledby="history-title"><h2 id="history-title">History</h2>
        <div id="history">${loading()}</div></section>`
          : null
      }
    </div>`,
  );
  const places = {
    sizes: part(root, "#sizes"),
    history: root.querySelector("#history"),
    numbers: part(root, ".numbers"),
  };
  /** @type {{sizes: Size[] | null, running: number}} */
  const known = { sizes: null, running: 0 };

  const numbers = () =>
    render(places.numbers, [
      known.sizes &&
        html`<li>${counted(known.sizes.length, "index", "indices")}</li>
      <li>${counted(sum(known.sizes, "rows"), "row")}</li><li>${bytes(sum(known.sizes, "sizeInBytes"))}</li>`,
      known.running ? html`<li>${known.running} on this page running</li>` : null,
    ]);

  /** @param {Context} at */
  async function showSizes(at) {
    if (!me.privileges.getIndexSizes) {
      render(
        places.sizes,
        html`<p class="quiet">To see index sizes, ask for the privilege <em>Get time series
        index sizes</em>.</p>`,
      );
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
    {
      label: "Index",
      cell: (one) => html`<span title="${one.indexName}">${one.entityName}.<wbr>${one.aspectName}</span>`,
    },
    { label: "Relative size", class: "bar-cell", cell: (one) => bar(one.sizeInBytes / largest) },
    { label: "Size", class: "number", cell: (one) => bytes(one.sizeInBytes) },
    { label: "Rows", class: "number", cell: (one) => number(one.rows) },
  ];
  if (mayPlan) {
    columns.push({
      label: "",
      class: "nowrap",
      cell: (one) =>
        html`<a href="${planPath(one)}" aria-label="Plan a truncation of ${one.entityName}.${one.aspectName}">Plan</a>`,
    });
  }
  return table({ caption: "Indices, largest first, with their size relative to the largest", rows, columns });
}

/** @param {Size} one */
const planPath = (one) => `/console/operations/plan?index=${encodeURIComponent(`${one.entityName}.${one.aspectName}`)}`;

/** A bar for a share; the number is in the next cell. @param {number} share */
const bar = (
  share,
) => html`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false">
  ${svg`<rect class="ground" width="100" height="8"></rect>
  <rect class="stay" width="${Math.max(0.5, share * 100)}" height="8"></rect>`}</svg>`;

/** @param {{start: number, count: number, total: number, operations: Operation[]}} found
 * @param {import("../shell.js").Me} me
 * @param {string} [here] */
function historyOf(found, me, here) {
  if (!found.total) {
    return empty({
      title: "No truncations yet",
      sentence:
        "A truncation deletes the old rows of a time series. Its plan shows how many before anything is deleted.",
      action: html`<a class="button" href="/console/operations/plan">Plan a truncation</a>`,
      command: inTerminal("watchword index truncate dataset.operation --older-than 90d --dry-run", me),
    });
  }
  return html`${table({
    caption: "Operations, newest first",
    rows: found.operations,
    rowClass: (one) => (one.id === here ? "here" : ""),
    columns: [
      {
        label: "Index",
        cell: (one) => html`<a id="${one.id}" href="${withQuery({ page: pageIn() }, operationPath(one.id))}"
          >${one.plan.entityType}.<wbr>${one.plan.aspect}</a>`,
      },
      { label: "State", cell: (one) => stateOf(one.state, isOver(one.state) ? "" : ` · ${one.percent.toFixed(0)}%`) },
      {
        label: "To delete",
        class: "number",
        cell: (one) => `${number(one.plan.rowsToDelete)} of ${counted(one.plan.rows, "row")}`,
      },
      { label: "Started", cell: (one) => time(one.createdAt) },
      {
        label: "Duration",
        cell: (one) => (one.finishedAt ? took(one) : html`<span class="quiet">not finished</span>`),
      },
      { label: "By", cell: (one) => actor(one.actorUrn, one.actorName) },
    ],
  })}${pager({ ...found, shown: found.operations.length, what: "operations" })}`;
}

const pageIn = () => new URLSearchParams(location.search).get("page");

/** @param {Size[]} sizes @param {"rows" | "sizeInBytes"} what */
const sum = (sizes, what) => sizes.reduce((total, one) => total + one[what], 0);
