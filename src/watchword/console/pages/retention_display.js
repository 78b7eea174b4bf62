/** How retention rules, holds and runs are shown. */

import { html } from "../html.js";
import { actor, time } from "../format.js";
import { status } from "../components.js";

/**
 * @typedef {{series: string, reason: string, setBy: string, setByName: string | null, setAt: number, byRule: boolean}}
 *   Hold
 * @typedef {{series: string, keep: string, removeAfter: string | null, maxSize: string | null, maxRows: number | null,
 *   keepLast: number | null, schedule: string, timeZone: string, window: string | null, atMost: string, mode: "REPORT"
 *   | "ENFORCE", holdReason: string | null, set: string | null, changedAt: number, changedBy: string, changedByName:
 *   string | null, hold: Hold | null}} Rule
 * @typedef {"REPORTED" | "NOTHING_TO_REMOVE" | "HELD" | "WAITING" | "SUPERSEDED" | "FAILED" |
 *   import("./operation_display.js").State} RunState
 * @typedef {{number: number, series: string, dueAt: number, state: RunState,
 *   plan: import("./operation_display.js").Plan | null, operation: {id: string} | null, requestedBy: string,
 *   requestedByName: string | null, approvedBy: string | null, approvedByName: string | null, error: string | null}}
 *   Run
 */

export const HOLD = "series reason setBy setByName setAt byRule";
export const RULE = `series keep removeAfter maxSize maxRows keepLast schedule timeZone window atMost mode holdReason
  set changedAt
  changedBy changedByName hold { ${HOLD} }`;
export const RUN = `number series dueAt state plan { rows rowsToDelete share endTimeMillis bytesToFree } operation {
  id } requestedBy requestedByName
  approvedBy approvedByName error`;
export const EVERY = "*";

/** @type {Record<RunState, [import("../components.js").Shape, string]>} */
const STATES = {
  REPORTED: ["off", "reported"],
  NOTHING_TO_REMOVE: ["off", "nothing to remove"],
  HELD: ["soon", "held"],
  WAITING: ["waiting", "waits for approval"],
  SUPERSEDED: ["off", "superseded"],
  FAILED: ["failed", "failed"],
  PLANNED: ["waiting", "planned"],
  RUNNING: ["waiting", "running"],
  VERIFYING: ["waiting", "verifying"],
  SWAPPING: ["waiting", "swapping"],
  DONE: ["live", "done"],
  CANCELLED: ["off", "cancelled"],
};

/** @param {RunState} state */
export const runState = (state) => status(...STATES[state]);

/** @param {Rule} rule */
export const modeOf = (rule) => (rule.mode === "ENFORCE" ? status("live", "enforce") : status("off", "report only"));

/** @param {string} series */
export const seriesPath = (series) => `/console/retention/${encodeURIComponent(series)}`;

/** With a place to break the line. @param {string} series */
export function seriesText(series) {
  const [entity, aspect] = series.split(".", 2);
  return aspect ? html`${entity}.<wbr>${aspect}` : seriesName(series);
}

/** @param {string} series */
export const seriesName = (series) => (series === EVERY ? "every other series" : series);

/** @param {Hold} hold */
export const holdLine = (
  hold,
) => html`<span><strong>${hold.series === EVERY ? "Every series is held" : "Held"}</strong> ${time(hold.setAt)} by
  ${actor(hold.setBy, hold.setByName)}: ${hold.reason}</span>`;

/** @type {Record<string, string>} */
const UNITS = { W: "week", D: "day", H: "hour", M: "minute", S: "second" };

/** P30D → "30 days". @param {string | null} iso */
export function inWords(iso) {
  const parts = [...(iso ?? "").matchAll(/(\d+)([WDHMS])/g)];
  return parts.map(([, count, unit]) => `${count} ${UNITS[unit]}${count === "1" ? "" : "s"}`).join(" ");
}

/** "30 days", "30d" → P30D. Everything else stays as it is, for the server to validate. @param {string} text */
export function toIso(text) {
  const parts = [...text.trim().matchAll(/(\d+)\s*(w|d|h|m|s)[a-z]*\s*/gi)];
  if (!parts.length || parts.map(([all]) => all).join("") !== text.trim() || /^P/i.test(text.trim()))
    return text.trim();
  const [days, times] = ["wd", "hms"].map((units) =>
    parts
      .filter(([, , unit]) => units.includes(unit.toLowerCase()))
      .map(([, count, unit]) => count + unit.toUpperCase())
      .join(""),
  );
  return `P${days}${times ? `T${times}` : ""}`;
}
