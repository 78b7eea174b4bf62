/** One series: what its rule would remove over time, its sizes, its runs, its hold. */

import { html } from "../html.js";
import { graphql } from "../api.js";
import { barChart, sparkline } from "../charts.js";
import { DAY, actor, bytes, counted, fullTime, number, time } from "../format.js";
import { ask, field, panel, warning } from "../components.js";
import { withQuery } from "../router.js";
import { operationPath } from "./operation_display.js";
import { HOLD, RULE, RUN, holdLine, inWords, modeOf, runState } from "./retention_display.js";
import { ruleOf } from "./retention_form.js";

/**
 * @typedef {import("./retention_display.js").Rule} Rule
 * @typedef {import("./retention_display.js").Hold} Hold
 * @typedef {import("./retention_display.js").Run} Run
 * @typedef {{series: string, rows: number, sizeInBytes: number, nextDueAt: number | null, outcome: string | null,
 *   error: string | null, rule: Rule | null, hold: Hold | null, plan: import("./operation_display.js").Plan | null,
 *   waiting: Run | null, spans: {startMillis: number, rows: number, rowsToRemove: number}[]}} SeriesPlan
 */

const LOOK = `query Look($plan: RetentionPlanInput, $runs: ListRetentionRunsInput, $sizes: SeriesSizesInput) {
  retentionPlan(input: $plan) { plans { series rows sizeInBytes nextDueAt outcome error rule { ${RULE} } hold { ${HOLD}
  }
    plan { rows rowsToDelete share endTimeMillis bytesToFree } waiting { ${RUN} } spans {
    startMillis rows rowsToRemove } } }
  retentionRuns(input: $runs) { start count total runs { ${RUN} } }
  seriesSizes(input: $sizes) { dayMillis rows sizeInBytes } }`;
const RUN_NOW = `mutation Run($series: String!) { runRetention(series: $series) { ${RUN} } }`;
const APPROVE = `mutation Approve($input: ApproveRetentionRunInput!) { approveRetentionRun(input: $input) { ${RUN} } }`;
const HOLD_IT = `mutation Hold($input: HoldSeriesInput!) { holdSeries(input: $input) { activeOperations { id } } }`;
const RELEASE = `mutation Release($series: String!) { releaseSeries(series: $series) }`;
const RUNS = 10;
const DAYS = 90;
/** @type {Record<string, string>} */
const OUTCOMES = {
  REPORTED: "would only report",
  NOTHING_TO_REMOVE: "would remove nothing",
  HELD: "would not start: the series is held",
  WAITING: "would wait for approval",
  STARTED: "would remove these rows",
};

/**
 * @param {{series: string, at: import("../router.js").Context, close: string, said: (what: unknown) => Promise<void>}}
 * what
 */
export async function seriesPanel({ series, at, close, said }) {
  const page = Math.max(1, Number.parseInt(at.query.get("runs") ?? "1", 10) || 1);
  const found = await graphql(
    LOOK,
    { plan: { series }, runs: { series, start: (page - 1) * RUNS, count: RUNS }, sizes: { series, days: DAYS } },
    { signal: at.signal },
  );
  const plan = /** @type {SeriesPlan | undefined} */ (found.retentionPlan.plans[0]);
  const rule = plan ? plan.rule : await ruleOf(series, at.signal);
  const hold = plan ? plan.hold : (rule?.hold ?? null);
  /** @type {{total: number, runs: Run[]}} */
  const runs = found.retentionRuns;

  async function run() {
    const going = rule?.mode === "ENFORCE" && plan?.outcome === "STARTED" ? (plan.plan?.rowsToDelete ?? 0) : 0;
    /** @type {Run | null} */
    let made = null;
    const done = await ask({
      title: `Run the rule of ${series} now?`,
      danger: going > 0,
      action: going ? `Remove ${counted(going, "row")}` : "Run now",
      typed: going ? String(going) : undefined,
      content: going
        ? html`<p>${counted(going, "row")} are removed now. They cannot be brought back. The rows are counted again when
          the run starts.</p>`
        : html`<p>The run ${OUTCOMES[plan?.outcome ?? ""] ?? "is planned"}.</p>`,
      act: async () => {
        made = (await graphql(RUN_NOW, { series })).runRetention;
      },
    });
    if (done)
      await said(
        html`Run ${number(/** @type {any} */ (made).number)} of <strong>${series}</strong>:
          ${runState(/** @type {any} */ (made).state)}`,
      );
  }

  /** @param {Run} waiting */
  async function approve(waiting) {
    const rows = waiting.plan?.rowsToDelete ?? 0;
    const done = await ask({
      title: `Approve run ${number(waiting.number)} of ${series}?`,
      danger: true,
      typed: String(rows),
      action: `Remove ${counted(rows, "row")}`,
      content: html`<p>${counted(rows, "row")}, ${waiting.plan?.share.toFixed(1)}% of all, are removed. They cannot be
        brought back. The rows are counted again before the run starts; if there are more, it waits again.</p>`,
      act: () => graphql(APPROVE, { input: { number: waiting.number, rows } }),
    });
    if (done) await said(html`Approved run ${number(waiting.number)} of <strong>${series}</strong>.`);
  }

  async function holdIt() {
    let active = 0;
    const done = await ask({
      title: `Hold ${series}?`,
      action: "Hold",
      content: html`<p>Nothing of it is removed, by rule or by hand, until it is released. Active operations on it are
        cancelled.</p>
        ${field({
          id: "hold-reason",
          label: "Reason",
          control: html`<input id="hold-reason" name="reason" required maxlength="500" autocomplete="off">`,
        })}`,
      act: async (form) => {
        active = (await graphql(HOLD_IT, { input: { series, reason: String(form.get("reason")).trim() } })).holdSeries
          .activeOperations.length;
      },
    });
    if (done)
      await said(
        html`<strong>${series}</strong> is held.${
          active ? ` ${counted(active, "operation")} on it being cancelled.` : ""
        }`,
      );
  }

  return panel({
    title: series,
    close,
    content: html`
      ${
        hold
          ? warning(html`<p>${holdLine(hold)}</p>${
              hold.byRule ? html`<p class="quiet small">It ends with the hold of the rule: edit the rule.</p>` : null
            }
        <p>${releaseButton(hold, at.me, said)}</p>`)
          : null
      }
      ${
        plan?.waiting
          ? warning(html`<p><strong>Run ${number(plan.waiting.number)} waits for approval</strong>: it would remove
        ${counted(plan.waiting.plan?.rowsToDelete ?? 0, "row")}, ${plan.waiting.plan?.share.toFixed(1)}% of all. The
        rule allows ${rule?.atMost}.</p>
        <p><button type="button" class="danger" id="approve" @click=${() =>
          approve(
            /** @type {Run} */ (plan.waiting),
          )}>Approve ${counted(plan.waiting.plan?.rowsToDelete ?? 0, "row")}…</button></p>`)
          : null
      }
      ${plan?.error ? warning(html`<p>The run that is due could not be planned yet: ${plan.error}</p>`) : null}
      <dl class="facts">
        ${
          plan
            ? html`<dt>Now</dt><dd>${counted(plan.rows, "row")}, ${bytes(plan.sizeInBytes)}</dd>`
            : html`<dt>Now</dt><dd>no such index</dd>`
        }
        ${
          rule
            ? html`<dt>Rule</dt><dd>${modeOf(rule)} · keep ${inWords(rule.keep)}${
                rule.series === "*" ? " · the rule of every series" : ""
              }</dd>
          <dt>Next run</dt><dd>${plan ? time(plan.nextDueAt, "none") : "–"} <span
            class="quiet small"><code>${rule.schedule}</code>
            ${rule.timeZone}${rule.window ? `, ${rule.window}` : ""}</span></dd>
          ${plan?.outcome ? html`<dt>A run now</dt><dd>${OUTCOMES[plan.outcome] ?? plan.outcome}</dd>` : null}`
            : html`<dt>Rule</dt><dd>none: every row stays</dd>`
        }</dl>
      <p class="actions"><a class="button" id="edit-rule" href="${withQuery({
        form: "rule",
        page: at.query.get("page"),
      })}">${rule && rule.series !== "*" ? "Edit rule" : "New rule of this series"}</a>
        ${rule && plan ? html`<button type="button" id="run-now" @click=${run}>Run now…</button>` : null}
        ${hold ? null : html`<button type="button" id="hold-series" @click=${holdIt}>Hold…</button>`}</p>
      ${
        plan?.plan && plan.spans.length
          ? html`<h3>What a run would remove now</h3>
        <p><strong>${counted(plan.plan.rowsToDelete, "row")}</strong> of ${number(plan.plan.rows)} up to
          ${fullTime(plan.plan.endTimeMillis)}, about ${bytes(plan.plan.bytesToFree)}.</p>
        ${planChart(plan)}`
          : null
      }
      ${found.seriesSizes.length ? html`<h3>Size over time</h3>${sizes(found.seriesSizes)}` : null}
      <h3>Runs</h3>
      ${
        runs.total
          ? html`<ul class="members">${runs.runs.map(line)}</ul>
        <nav class="pager" aria-label="Pages of runs"><span>${
          page > 1 ? html`<a id="newer-runs" href="${runsAt(page - 1)}">‹ Newer</a>` : null
        }</span>
          <span>${
            page * RUNS < runs.total ? html`<a id="older-runs" rel="next" href="${runsAt(page + 1)}">Older ›</a>` : null
          }</span></nav>`
          : html`<p class="quiet">No run yet.</p>`
      }`,
  });

  /** @param {number} page */
  function runsAt(page) {
    return withQuery({ runs: page === 1 ? null : page, page: at.query.get("page") });
  }
}

/** @param {Run} run */
const line = (run) => html`<li><span>${
  run.operation
    ? html`<a href="${operationPath(run.operation.id)}">Run ${number(run.number)}</a>`
    : html`Run ${number(run.number)}`
}
    <span class="quiet small block">${time(run.dueAt)} by ${actor(run.requestedBy, run.requestedByName)}${
      run.approvedBy ? html`, approved by ${actor(run.approvedBy, run.approvedByName)}` : null
    }${
      run.plan ? ` · ${number(run.plan.rowsToDelete)} of ${counted(run.plan.rows, "row")}` : ""
    }${run.error ? html` · ${run.error}` : null}</span></span>${runState(run.state)}</li>`;

/** The rows by time, in bars of a day, an hour or longer spans. @param {SeriesPlan} plan */
function planChart(plan) {
  const [first, second] = plan.spans;
  const step = second ? second.startMillis - first.startMillis : DAY;
  /** @type {Map<string, {kept: number, removed: number}>} */
  const days = new Map();
  for (const span of plan.spans) {
    const day = new Date(span.startMillis).toISOString().slice(0, step < DAY ? 13 : 10);
    const sum = days.get(day) ?? { kept: 0, removed: 0 };
    days.set(day, { kept: sum.kept + span.rows - span.rowsToRemove, removed: sum.removed + span.rowsToRemove });
  }
  const of = (/** @type {"kept" | "removed"} */ which) => [...days].map(([day, sum]) => ({ day, count: sum[which] }));
  return html`${barChart({
    label: `Rows of ${plan.series} by time`,
    series: [
      { name: "removed", kind: "removed", days: of("removed") },
      { name: "kept", kind: "kept", days: of("kept") },
    ],
  })}
    ${
      step > DAY ? html`<p class="quiet small">Each bar is ${Math.round(step / DAY)} days from its date on.</p>` : null
    }`;
}

/** @param {{dayMillis: number, rows: number, sizeInBytes: number}[]} found */
function sizes(found) {
  const [first, last] = [found[0], found[found.length - 1]];
  return html`<div class="sizes" aria-hidden="true">${sparkline(
    found.map((one) => ({ day: dayOf(one.dayMillis), count: one.sizeInBytes })),
    "Size by day",
  )}</div>
    <p class="quiet small">${bytes(first.sizeInBytes)} on ${dayOf(first.dayMillis)}, ${bytes(last.sizeInBytes)} on
      ${dayOf(last.dayMillis)}</p>`;
}

/** @param {number} millis */
const dayOf = (millis) => new Date(millis).toISOString().slice(0, 10);

/**
 * A button that releases a hold, for those who may. A hold of a rule ends with the rule.
 * @param {Hold} hold @param {import("../shell.js").Me} me @param {(what: unknown) => Promise<void>} said
 */
export function releaseButton(hold, me, said) {
  if (hold.byRule) return null;
  if (hold.setBy !== me.urn && !me.privileges.releaseRetentionHolds)
    return html`<span class="quiet small">Someone with <em>Release Retention Holds</em> can release it.</span>`;
  const release = async () => {
    const what = hold.series === "*" ? "all series" : hold.series;
    const done = await ask({
      title: `Release ${what}?`,
      danger: true,
      action: "Release",
      content: html`<p>${holdLine(hold)}</p><p>From now on its rule and truncations remove rows again.</p>`,
      act: () => graphql(RELEASE, { series: hold.series }),
    });
    if (done) await said(html`Released <strong>${what}</strong>.`);
  };
  return html`<button type="button" @click=${release}>Release…</button>`;
}
