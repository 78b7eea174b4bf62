/**
 * The plan of a truncation: a histogram and the numbers of rows to delete and to keep. Deleting needs the number of
 * rows, typed.
 */

import { html, part, render, svg } from "../html.js";
import { ApiError, graphql } from "../api.js";
import { DAY, HOUR, bytes, counted, exact, fullTime, number, utc } from "../format.js";
import { ask, errorLine, field, loading, showingErrors, warning } from "../components.js";
import { keepDraft } from "../drafts.js";
import { go, goQuery, setHooks } from "../router.js";
import { SIZES, operationPath } from "./operation_display.js";
import { EVERY, HOLD, holdLine } from "./retention_display.js";

/**
 * @typedef {import("./operation_display.js").Plan} Plan
 * @typedef {import("./operation_display.js").Size} Size
 * @typedef {{rows: number, rowsWithoutTime: number, spanMillis: number | null, spans: {startMillis: number,
 *   rows: number}[]}} Histogram
 * @typedef {{plan: Plan, picture: Histogram, hold: import("./retention_display.js").Hold | undefined}} Found `hold`:
 *   while it lasts, nothing is deleted
 */

const PLAN = `mutation Plan($input: TruncateTimeseriesAspectInput!) { truncateTimeseriesAspect(input: $input) { plan {
  entityType aspect indexName endTimeMillis rows rowsToDelete share sizeInBytes bytesToFree strategy reason }
  operation { id } } }`;
const HISTOGRAM = `query Histogram($input: TimeseriesHistogramInput!) { timeseriesHistogram(input: $input) {
  rows rowsWithoutTime spanMillis spans { startMillis rows } } retentionHolds { ${HOLD} } }`;
const SPANS = 60;
/** @type {Record<string, number>} */
const UNITS = { d: DAY, h: HOUR };
/** @type {Record<string, {forceDeleteByQuery?: boolean, forceReindex?: boolean}>} */
const STRATEGIES = { "": {}, delete: { forceDeleteByQuery: true }, copy: { forceReindex: true } };

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  context.title("Plan a truncation");
  /** @type {Size[] | null} */
  let sizes = null;
  if (me.privileges.getIndexSizes) {
    await showingErrors(root, async () => {
      sizes = (await graphql(SIZES, {}, { signal: context.signal })).indexSizes;
    });
  }
  render(
    root,
    html`<div class="page-head"><h1>Plan a truncation</h1></div>
    <p class="quiet narrow">Delete the rows of a time series up to a time. The plan only counts them.</p>
    <div id="form"></div><div id="plan" aria-live="polite"></div>`,
  );

  /** @param {import("../router.js").Context} at */
  async function show(at) {
    const wanted = read(at.query);
    render(part(root, "#form"), form(wanted, sizes));
    const filled = /** @type {HTMLFormElement} */ (part(root, "#form form"));
    filled.addEventListener("submit", keepDraft(filled, `truncation ${at.query}`));
    const place = part(root, "#plan");
    if (!wanted.index || wanted.end === null) {
      render(place, null);
      return;
    }
    render(place, loading("Counting…"));
    await showingErrors(place, async () => {
      const found = await count(/** @type {Wanted & {end: number}} */ (wanted), at.signal);
      render(
        place,
        shown(found, () => void start(found.plan, wanted)),
      );
    });
  }
  setHooks(root, { again: show });
  await show(context);
}

/**
 * @typedef {{index: string, older: string, unit: string, until: string, strategy: string, end: number | null}} Wanted
 */

/** @param {URLSearchParams} query @returns {Wanted} */
function read(query) {
  const [, older = "", unit = "d"] = /^(\d+)([dh])$/.exec(query.get("older") ?? "") ?? [];
  const moment = Date.parse(query.get("until") ?? "");
  const until = Number.isNaN(moment) ? "" : local(moment);
  const end = until ? moment : older ? Date.now() - Number(older) * UNITS[unit] : null;
  const strategy = query.get("strategy") ?? "";
  return { index: query.get("index") ?? "", older, unit, until, strategy: strategy in STRATEGIES ? strategy : "", end };
}

/** For an input of type datetime-local: the user's local time. @param {number} moment */
function local(moment) {
  const date = new Date(moment);
  return new Date(moment - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** @param {Wanted} wanted @param {boolean} [dryRun] */
const inputOf = (wanted, dryRun = true) => ({
  ...aspectOf(wanted.index),
  endTimeMillis: wanted.end,
  dryRun,
  ...STRATEGIES[wanted.strategy],
});

/** @param {string} index */
function aspectOf(index) {
  const [entityType, aspect = ""] = index.split(".", 2);
  return { entityType, aspect };
}

/** @param {Wanted & {end: number}} wanted @param {AbortSignal} signal @returns {Promise<Found>} */
async function count(wanted, signal) {
  const [plan, picture] = await Promise.all([
    graphql(PLAN, { input: inputOf(wanted) }, { signal }),
    graphql(HISTOGRAM, { input: { ...aspectOf(wanted.index), spans: SPANS } }, { signal }),
  ]);
  /** @type {import("./retention_display.js").Hold[]} */
  const holds = picture.retentionHolds;
  return {
    plan: plan.truncateTimeseriesAspect.plan,
    picture: picture.timeseriesHistogram,
    hold: holds.find(({ series }) => [EVERY, wanted.index.toLowerCase()].includes(series)),
  };
}

/** @param {Wanted} wanted @param {Size[] | null} sizes */
function form(wanted, sizes) {
  const by = wanted.until ? "until" : "older";
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    const age = given.get("by") === "older";
    const until = Date.parse(String(given.get("until")));
    void goQuery({
      index: String(given.get("index")).trim(),
      older: age ? `${given.get("older")}${given.get("unit")}` : null,
      until: age || Number.isNaN(until) ? null : new Date(until).toISOString(),
      strategy: String(given.get("strategy")),
    });
  };
  return html`<form class="planning stack narrow" @submit=${submit}>
    ${field({ id: "index", label: "Index", control: chooser(wanted.index, sizes) })}
    <fieldset><legend>Rows to delete</legend>
      <div class="choice"><input type="radio" name="by" value="older" id="by-older" .checked=${by === "older"}>
        <span class="row"><label for="by-older">Rows older than</label>
          <input name="older" id="older" type="number" min="1" max="36500" class="short" aria-label="Age"
            .value=${wanted.older || "90"}>
          <select name="unit" aria-label="Unit"><option value="d" ?selected=${wanted.unit === "d"}>days</option>
            <option value="h" ?selected=${wanted.unit === "h"}>hours</option></select></span></div>
      <div class="choice"><input type="radio" name="by" value="until" id="by-until" .checked=${by === "until"}>
        <span class="row"><label for="by-until">Rows up to</label>
          <input name="until" id="until" type="datetime-local" aria-label="Up to this time, in your time zone"
            .value=${wanted.until}></span></div>
    </fieldset>
    ${field({
      id: "strategy",
      label: "Strategy",
      control: html`<select id="strategy" name="strategy" aria-describedby="strategy-hint">
        ${[
          ["", "Automatic (the faster one)"],
          ["delete", "Delete old rows"],
          ["copy", "Copy the other rows"],
        ].map(
          ([value, text]) => html`<option value="${value}" ?selected=${wanted.strategy === value}>${text}</option>`,
        )}</select>`,
      hint:
        "If more than half of the rows are deleted, a copy is faster; it replaces the index in one step. Rows " +
        "written meanwhile are kept either way.",
    })}
    <p><button type="submit" class="primary">Show plan</button> <a class="button"
      href="/console/operations">Back</a></p>
  </form>`;
}

/** @param {string} chosen @param {Size[] | null} sizes */
function chooser(chosen, sizes) {
  if (!sizes?.length) {
    return html`<input id="index" name="index" required pattern="[A-Za-z0-9]+\\.[A-Za-z0-9]+"
      placeholder="dataset.operation"
      spellcheck="false" autocapitalize="off" .value=${chosen}>`;
  }
  const names = sizes.map((one) => `${one.entityName}.${one.aspectName}`);
  const other = chosen && !names.includes(chosen) ? [chosen] : [];
  return html`<select id="index" name="index" required>${other.map(
    (name) => html`<option value="${name}" selected>${name}</option>`,
  )}
    ${sizes.map(
      (one, index) => html`<option value="${names[index]}" ?selected=${names[index] === chosen}
      >${names[index]} (${counted(one.rows, "row")}, ${bytes(one.sizeInBytes)})</option>`,
    )}</select>`;
}

/** @param {Found} found @param {() => void} start */
function shown({ plan, picture, hold }, start) {
  const stay = plan.rows - plan.rowsToDelete;
  return html`<section class="stack plan" aria-labelledby="plan-title"><h2 id="plan-title">Plan</h2>
    <ul class="big-numbers">
      <li><strong>${number(plan.rowsToDelete)}</strong> ${plan.rowsToDelete === 1 ? "row" : "rows"} deleted
        <span class="quiet">${plan.share.toFixed(1)}% of ${counted(plan.rows, "row")}</span></li>
      <li><strong>${number(stay)}</strong> ${stay === 1 ? "row" : "rows"} kept
        <span class="quiet">${
          picture.rowsWithoutTime ? `${number(picture.rowsWithoutTime)} of them without a time` : "all after that time"
        }</span></li>
      <li><strong>${bytes(plan.bytesToFree)}</strong> freed, about
        <span class="quiet">of ${bytes(plan.sizeInBytes)}</span></li>
    </ul>
    ${picture.spanMillis === null ? null : drawn(plan, picture)}
    <p>${plan.strategy === "REINDEX" ? "By copy" : "By deletion"}: ${plan.reason}.</p>
    ${
      hold
        ? warning(
            html`<p>${holdLine(hold)}</p><p>Nothing of it is deleted until it is <a
              href="/console/retention">released</a>.</p>`,
          )
        : plan.rowsToDelete
          ? html`<p><button type="button" class="danger" id="start" @click=${start}>Delete
            ${counted(plan.rowsToDelete, "row")}…</button></p>`
          : html`<p class="quiet">No row is that old. There is nothing to delete.</p>`
    }
    <div id="start-error"></div>
  </section>`;
}

const WIDTH = 600;
const HEIGHT = 120;

/**
 * A histogram over time; deleted rows are hatched, the end time is a line.
 * @param {Plan} plan @param {Histogram} picture
 */
function drawn(plan, picture) {
  const step = /** @type {number} */ (picture.spanMillis);
  const cut = plan.endTimeMillis;
  const first = picture.spans[0].startMillis;
  const last = first + step * picture.spans.length;
  const [from, to] = [Math.min(first, cut), Math.max(last, cut)];
  /** @param {number} moment */
  const x = (moment) => ((moment - from) / (to - from)) * WIDTH;
  const most = Math.max(...picture.spans.map((one) => one.rows), 1);
  /** @param {number} rows */
  const high = (rows) => (rows ? Math.max(2, (rows / most) * (HEIGHT - 4)) : 0);
  let going = plan.rowsToDelete;
  const bars = picture.spans.map(({ startMillis, rows }) => {
    // The end time may be within a span; the plan's count says how many of its rows are deleted.
    const gone = startMillis > cut ? 0 : Math.min(rows, going);
    going -= gone;
    const [left, wide] = [x(startMillis), Math.max(0.5, x(startMillis + step) - x(startMillis) - 1)];
    const [all, below] = [high(rows), gone === rows ? high(rows) : (high(rows) * gone) / Math.max(rows, 1)];
    return svg`<rect class="stay" x="${left}" width="${wide}" y="${HEIGHT - all}" height="${all - below}"></rect>
      <rect class="go" x="${left}" width="${wide}" y="${HEIGHT - below}" height="${below}"></rect>`;
  });
  const words =
    `From ${exact(from)} to ${exact(to)}: ${counted(plan.rowsToDelete, "row")} up to ${exact(cut)} deleted, ` +
    `${counted(plan.rows - plan.rowsToDelete, "row")} kept. At most ${counted(most, "row")} in a span.`;
  return html`<figure class="picture"><svg class="histogram" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none"
    role="img"
      aria-label="${words}">
      ${svg`<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="hatch-ground" width="6" height="6"></rect><rect class="hatch-line" width="2" height="6"></rect>
        </pattern></defs>
        ${bars}<line class="cut" x1="${x(cut)}" x2="${x(cut)}" y1="0" y2="${HEIGHT}"></line>`}
    </svg>
    <div class="axis small quiet">${day(from)}<span>${counted(most, "row")} at most in
      ${lengthOf(step)}</span>${day(to)}</div>
    <figcaption class="legend small"><span><span class="swatch go" aria-hidden="true"></span>deleted</span>
      <span><span class="swatch stay" aria-hidden="true"></span>kept</span>
      <span><span class="swatch cut" aria-hidden="true"></span>end time: ${fullTime(cut)}</span></figcaption></figure>`;
}

const days = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium" });

/** @param {number} moment */
const day = (
  moment,
) => html`<time datetime="${new Date(moment).toISOString()}" title="${exact(moment)} · ${utc(moment)}" tabindex="0"
  >${days.format(moment)}</time>`;

/** @param {number} step */
function lengthOf(step) {
  const [length, name] =
    step >= DAY ? [DAY, "day"] : step >= HOUR ? [HOUR, "hour"] : step >= 60_000 ? [60_000, "minute"] : [1000, "second"];
  const value = step / length;
  return `${value.toFixed(value < 10 ? 1 : 0).replace(/\.0$/, "")} ${name}${value === 1 ? "" : "s"}`;
}

/** @param {Plan} plan @param {Wanted} wanted */
async function start(plan, wanted) {
  /** @type {string | null} */
  let started = null;
  const place = part(document, "#start-error");
  render(place, null);
  const done = await ask({
    title: `Delete ${counted(plan.rowsToDelete, "row")} of ${plan.entityType}.${plan.aspect}?`,
    danger: true,
    typed: String(plan.rowsToDelete),
    action: `Delete ${counted(plan.rowsToDelete, "row")}`,
    content: html`<p>All rows of <code>${plan.indexName}</code> up to ${fullTime(plan.endTimeMillis)} are deleted.
      This cannot be undone.</p><p>The rows are counted again when the truncation starts.</p>`,
    act: async () => {
      try {
        const input = inputOf({ ...wanted, end: plan.endTimeMillis }, false);
        started = (await graphql(PLAN, { input })).truncateTimeseriesAspect.operation.id;
      } catch (error) {
        const other = error instanceof ApiError ? error.details.operationId : null;
        if (typeof other === "string") {
          render(
            place,
            html`${errorLine(error)}<p><a href="${operationPath(other)}">Show the running truncation</a></p>`,
          );
        }
        throw error;
      }
    },
  });
  if (done && started) await go(operationPath(started));
}
