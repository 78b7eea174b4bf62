/** How operations are shown. */

import { span } from "../format.js";
import { status } from "../components.js";

/**
 * @typedef {{indexName: string, entityName: string, aspectName: string, sizeInBytes: number, rows: number}} Size
 * @typedef {{entityType: string, aspect: string, indexName: string, endTimeMillis: number, rows: number,
 *   rowsToDelete: number, share: number, sizeInBytes: number, bytesToFree: number, strategy: string, reason: string}}
 *   Plan
 * @typedef {"PLANNED" | "RUNNING" | "VERIFYING" | "SWAPPING" | "DONE" | "FAILED" | "CANCELLED"} State
 * @typedef {{id: string, state: State, plan: Plan, actorUrn: string, actorName: string | null, createdAt: number,
 *   startedAt: number | null, finishedAt: number | null, percent: number, rowsDone: number, rowsToDo: number,
 *   rowsPerSecond: number | null, estimatedEndAt: number | null, note: string | null, error: string | null, attempts:
 *   number, sourceIndex: string | null, targetIndex: string | null, cancelRequestedAt: number | null,
 *   cancelRequestedBy: string | null, tasks: {id: string, purpose: string, completed: boolean}[],
 *   postCheck: {passed: boolean, rows: number, rowsLeft: number, expected: number | null} | null}} Operation
 */

export const SIZES = "{ indexSizes { indexName entityName aspectName sizeInBytes rows } }";

/** @type {Record<State, [import("../components.js").Shape, string]>} */
const STATES = {
  PLANNED: ["waiting", "planned"],
  RUNNING: ["waiting", "running"],
  VERIFYING: ["waiting", "verifying"],
  SWAPPING: ["waiting", "swapping"],
  DONE: ["live", "done"],
  FAILED: ["failed", "failed"],
  CANCELLED: ["off", "cancelled"],
};

/** @param {string} id */
export const operationPath = (id) => `/console/operations/${encodeURIComponent(id)}`;

/** @param {string} state */
export const isOver = (state) => state === "DONE" || state === "FAILED" || state === "CANCELLED";

/** @param {State} state @param {string} [more] */
export const stateOf = (state, more = "") => status(STATES[state][0], STATES[state][1] + more);

/** @param {Operation} one */
export function took(one) {
  const length = (one.finishedAt ?? Date.now()) - (one.startedAt ?? one.createdAt);
  return length < 1000 ? "less than a second" : span(length);
}
