/**
 * Retention: the series with what the next run of their rule would remove, the rules, and the holds. The panel of a
 * series has its plan over time, its sizes and its runs.
 */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { bytes, counted, inTerminal, number, time } from "../format.js";
import { empty, loadList, loading, notice, pageOf, pager, status, table, warning } from "../components.js";
import { go, setHooks, withQuery } from "../router.js";
import { backTo, openPanel, openingPanel } from "./forms.js";
import { EVERY, HOLD, RULE, holdLine, inWords, modeOf, seriesPath, seriesText } from "./retention_display.js";
import { ruleForm } from "./retention_form.js";
import { releaseButton, seriesPanel } from "./retention_panel.js";

/**
 * @typedef {import("./retention_display.js").Rule} Rule
 * @typedef {import("./retention_display.js").Hold} Hold
 * @typedef {import("./retention_panel.js").SeriesPlan} SeriesPlan
 */

const PLANS = `query Plans($input: RetentionPlanInput) { retentionPlan(input: $input) {
  start count total pausedForMillis
  plans { series rows sizeInBytes nextDueAt outcome error rule { series keep mode } hold { series } plan {
  rowsToDelete share } waiting { number } } } }`;
const RULES = `{ retentionRules { ${RULE} } retentionHolds { ${HOLD} } }`;
/** As many as the server plans at once. */
const COUNT = 10;

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  let at = context;
  render(
    root,
    html`<div class="page-head"><h1>Retention</h1><a class="button" href="/console/operations">Operations</a>
      <a class="button primary" data-key="new" href="/console/retention?form=new">New rule</a></div>
    <p class="quiet lead">Rules that remove old rows of time series by a schedule. A rule reports only, until its mode
      is <em>enforce</em>.</p>
    <div id="said-here"></div><div id="holds"></div>
    <div class="stack">
      <section class="stack" aria-labelledby="series-title"><h2 id="series-title">Series</h2><div
        id="series">${loading("Planning…")}</div></section>
      <section class="stack" aria-labelledby="rules-title"><h2 id="rules-title">Rules</h2><div
        id="rules">${loading()}</div></section>
    </div>`,
  );
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @type {string | undefined} */
  let listed;
  /** @param {import("../router.js").Context} now */
  async function show(now) {
    const was = at.params[0];
    at = now;
    at.title("Retention");
    const page = String(pageOf(at.query, COUNT).start);
    // Opening a series leaves the list as it is: each plan takes several requests to the search index.
    const again = listed === page ? [] : [plans(), rules()];
    listed = page;
    await Promise.all([...again, panelOf(at.params[0])]);
    if (at === now) mark();
    backTo(was, now);
  }

  const refresh = () => Promise.all([plans(), rules()]).then(mark);

  /** The row whose panel is open. */
  const mark = () =>
    root
      .querySelectorAll("tr")
      .forEach((row) =>
        row.classList.toggle("here", at.params[0] !== undefined && row.querySelector("a[id]")?.id === at.params[0]),
      );

  const plans = () =>
    loadList(place("series"), at.signal, async (signal) => {
      const found = (await graphql(PLANS, { input: pageOf(at.query, COUNT) }, { signal })).retentionPlan;
      const rows = /** @type {SeriesPlan[]} */ (found.plans);
      render(
        place("series"),
        html`${found.pausedForMillis ? warning(paused(found.pausedForMillis)) : null}
      ${
        found.total
          ? html`${series(rows)}${pager({ ...found, shown: rows.length, what: "series" })}`
          : empty({
              title: "No time series yet",
              sentence: "A series appears here once rows are written to it.",
              command: inTerminal("watchword retention plan", me),
            })
      }`,
      );
    });

  const series = (/** @type {SeriesPlan[]} */ rows) =>
    table({
      caption: "Series, with what a run would remove now",
      rows,
      columns: [
        {
          label: "Series",
          class: "series",
          cell: (one) =>
            html`<a id="${one.series}" href="${withQuery(
              { page: at.query.get("page"), form: null },
              seriesPath(one.series),
            )}">${seriesText(one.series)}</a>`,
        },
        {
          label: "Rule",
          cell: (one) =>
            one.rule
              ? html`${modeOf(one.rule)} <span class="quiet small block">keep ${inWords(one.rule.keep)}${
                  one.rule.series === EVERY ? ", as every series" : ""
                }</span>`
              : html`<span class="quiet">none: every row stays</span>`,
        },
        {
          label: "Rows",
          class: "number nowrap",
          cell: (one) => html`${number(one.rows)} <span class="quiet small block">${bytes(one.sizeInBytes)}</span>`,
        },
        {
          label: "To remove",
          class: "number nowrap",
          cell: (one) =>
            one.plan
              ? html`${number(
                  one.plan.rowsToDelete,
                )} <span class="quiet small block">${one.plan.share.toFixed(1)}%</span>`
              : "–",
        },
        {
          label: "Next run",
          cell: (one) =>
            one.hold
              ? status("soon", "held")
              : one.waiting
                ? status("waiting", "waits for approval")
                : one.error
                  ? html`<span title="${one.error}">${status("failed", "could not be planned")}</span>`
                  : one.rule
                    ? time(one.nextDueAt)
                    : html`<span class="quiet">–</span>`,
        },
      ],
    });

  const rules = () =>
    loadList(place("rules"), at.signal, async (signal) => {
      const found = await graphql(RULES, {}, { signal });
      render(
        place("holds"),
        found.retentionHolds.length
          ? html`<section class="stack card" aria-labelledby="holds-title"><h2 id="holds-title">Holds</h2>
      <ul class="members">${found.retentionHolds.map(
        (/** @type {Hold} */ hold) =>
          html`<li><span>${
            hold.series === EVERY ? null : html`<a href="${seriesPath(hold.series)}">${seriesText(hold.series)}</a> `
          }${holdLine(hold)}</span>${releaseButton(hold, me, said)}</li>`,
      )}</ul></section>`
          : null,
      );
      render(
        place("rules"),
        found.retentionRules.length
          ? table({
              caption: "Retention rules",
              rows: /** @type {Rule[]} */ (found.retentionRules),
              columns: [
                {
                  label: "Series",
                  class: "series",
                  cell: (rule) =>
                    html`<a href="${seriesPath(rule.series)}?form=rule">${seriesText(rule.series)}</a>${
                      rule.set ? html`<span class="quiet small block">of the policy set ${rule.set}</span>` : null
                    }`,
                },
                {
                  label: "Mode",
                  cell: (rule) =>
                    html`${modeOf(rule)} <span class="quiet small block">up to ${rule.atMost} without approval</span>`,
                },
                { label: "Keep", class: "nowrap", cell: (rule) => inWords(rule.keep) },
                { label: "Removes", cell: removes },
                {
                  label: "Schedule",
                  cell: (rule) =>
                    html`<code>${rule.schedule}</code> <span class="quiet small">${rule.timeZone}${
                      rule.window ? `, ${rule.window}` : ""
                    }</span>`,
                },
              ],
            })
          : empty({
              title: "No rules yet",
              sentence: "Without a rule every row stays. A new rule reports what it would remove, and removes nothing.",
              action: html`<a class="button" href="/console/retention?form=new">New rule</a>`,
              command: inTerminal("watchword retention update dataset.operation --keep 90d", me),
            }),
      );
    });

  /** @param {string | undefined} id of a series */
  async function panelOf(id) {
    const now = at;
    const wanted = at.query.get("form");
    const close = withQuery({ page: at.query.get("page"), form: null, runs: null }, "/console/retention");
    if (!id && wanted !== "new") {
      openPanel(root, null);
      return;
    }
    await openingPanel(root, async () => {
      const node =
        !id || wanted || id === EVERY
          ? await ruleForm({
              series: id ?? null,
              me,
              close: id && id !== EVERY ? withQuery({ form: null, page: at.query.get("page") }) : close,
              signal: at.signal,
              done: saved,
            })
          : await seriesPanel({ series: id, at, close, said });
      if (!now.signal.aborted) openPanel(root, node);
    });
  }

  /** Something was done: say it, and look again. @param {unknown} what */
  async function said(what) {
    render(place("said-here"), notice(what));
    await Promise.all([refresh(), panelOf(at.params[0])]);
  }

  /** @param {unknown} what @param {string | null} series */
  async function saved(what, series) {
    render(place("said-here"), notice(what));
    listed = undefined;
    await go(series && series !== EVERY ? seriesPath(series) : "/console/retention", { sure: true });
  }

  setHooks(root, { again: show });
  await show(context);
}

/** What a rule removes, in words. @param {Rule} rule */
function removes(rule) {
  const parts = [
    rule.removeAfter && `older than ${inWords(rule.removeAfter)}`,
    rule.maxSize && `beyond ${rule.maxSize}`,
    rule.maxRows && `beyond ${counted(rule.maxRows, "row")}`,
  ];
  const words = parts.filter(Boolean).join(", ") || `older than ${inWords(rule.keep)}`;
  return rule.keepLast ? `${words}; the newest ${rule.keepLast} of each urn stay` : words;
}

/** @param {number} millis */
const paused = (millis) =>
  `The clock of the server jumped ahead: no run is planned for ${Math.ceil(millis / 60_000)} minutes.`;
