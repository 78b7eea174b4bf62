/**
 * The details of one operation, refreshed until it ends: less often while nothing changes, and only while the panel is
 * visible.
 */

import { html, part, render } from "../html.js";
import { graphql, isAborted } from "../api.js";
import { actor, bytes, counted, fullTime, number, span } from "../format.js";
import { ask, errorLine, idCode, loading, notice, panel, say } from "../components.js";
import { poll } from "../loading.js";
import { isOver, took } from "./operation_display.js";

/** @typedef {import("./operation_display.js").Operation} Operation */

const FIELDS = `id state percent rowsDone rowsToDo rowsPerSecond estimatedEndAt note error attempts actorUrn actorName
  createdAt
  startedAt finishedAt sourceIndex targetIndex cancelRequestedAt cancelRequestedBy tasks { id purpose completed }
  postCheck { passed rows rowsLeft expected }
  plan { entityType aspect indexName endTimeMillis rows rowsToDelete share sizeInBytes bytesToFree strategy reason }`;
const ONE = `query Operation($id: String!) { operation(id: $id) { ${FIELDS} } }`;
const CANCEL = `mutation Cancel($id: String!) { cancelOperation(id: $id) { ${FIELDS} } }`;

/**
 * The panel of an operation; `changed` is called when its state changes.
 * @param {string} id @param {import("../router.js").Context} context @param {string} close @param {() => void} changed
 */
export function follow(id, context, close, changed) {
  const node = panel({
    title: "Truncation",
    close,
    content: html`<div class="followed">${loading()}</div><div class="follow-action"></div>
    <div class="follow-error"></div>`,
  });
  const [body, action, problem] = [part(node, ".followed"), part(node, ".follow-action"), part(node, ".follow-error")];
  const heading = part(node, "h2");
  /** @type {Operation | null} */
  let last = null;

  /** @param {Operation} now */
  function show(now) {
    heading.textContent = `Truncation of ${now.plan.entityType}.${now.plan.aspect}`;
    if (last?.state !== now.state) {
      say(`${now.plan.entityType}.${now.plan.aspect}: ${now.state.toLowerCase()}`);
      if (last) changed();
    }
    // Redrawn only if needed: a button that is replaced between press and release is not clicked.
    if (mayCancel(last) !== mayCancel(now) || last?.cancelRequestedAt !== now.cancelRequestedAt)
      render(action, cancelling(now, cancel));
    last = now;
    render(body, shown(now));
  }

  async function cancel() {
    const one = /** @type {Operation} */ (last);
    await ask({
      title: "Cancel this truncation?",
      danger: true,
      action: "Cancel the truncation",
      cancel: "Continue",
      content: html`<p>It stops soon. ${
        one.plan.strategy === "REINDEX"
          ? "Nothing has been deleted yet. The unfinished copy is discarded."
          : "Rows deleted so far stay deleted."
      }</p>`,
      act: async () => show((await graphql(CANCEL, { id })).cancelOperation),
    });
  }

  const watch = () =>
    poll(
      async () => {
        try {
          const now = (await graphql(ONE, { id }, { signal: context.signal })).operation;
          const moved = last?.rowsDone !== now.rowsDone || last?.state !== now.state;
          render(problem, null);
          show(now);
          return isOver(now.state) ? "over" : moved ? "moved" : "still";
        } catch (error) {
          if (isAborted(error)) return "over";
          render(problem, errorLine(error, last ? undefined : watch));
          if (!last) render(body, null);
          return last ? "still" : "over";
        }
      },
      () => node.isConnected && !context.signal.aborted,
    );
  void watch();
  return node;
}

/** @param {Operation | null} one */
const mayCancel = (one) => one !== null && !isOver(one.state) && one.state !== "SWAPPING";

/** @param {Operation} one @param {() => void} cancel */
const cancelling = (one, cancel) =>
  mayCancel(one)
    ? html`<p><button type="button" class="danger" id="cancel-operation"
  ?disabled=${one.cancelRequestedAt !== null} @click=${cancel}>${
    one.cancelRequestedAt ? "Cancelling…" : "Cancel the truncation"
  }</button></p>`
    : null;

/** @param {Operation} one */
function shown(one) {
  const { plan } = one;
  const over = isOver(one.state);
  return html`${steps(one)}
    ${progress(one)}
    ${one.error ? errorLine(new Error(one.error)) : null}
    ${one.state === "DONE" ? notice(html`Done: ${outcome(one)}`) : null}
    <dl class="facts">
      <dt>Index</dt><dd><code>${plan.indexName}</code></dd>
      <dt>Rows up to</dt><dd>${fullTime(plan.endTimeMillis)}</dd>
      <dt>Planned</dt><dd>${number(plan.rowsToDelete)} of ${counted(plan.rows, "row")} (${plan.share.toFixed(1)}%),
        about ${bytes(plan.bytesToFree)} of ${bytes(plan.sizeInBytes)}</dd>
      <dt>Strategy</dt><dd>${plan.strategy === "REINDEX" ? "by copy" : "by deletion"}: ${plan.reason}</dd>
      <dt>Started</dt><dd>${fullTime(one.createdAt)} by ${actor(one.actorUrn, one.actorName)}</dd>
      ${over ? html`<dt>Finished</dt><dd>${fullTime(one.finishedAt)}, after ${took(one)}</dd>` : null}
      ${
        one.cancelRequestedAt
          ? html`<dt>Cancelled</dt><dd>${fullTime(one.cancelRequestedAt)}
        ${one.cancelRequestedBy ? html`by ${actor(one.cancelRequestedBy)}` : null}</dd>`
          : null
      }
      ${one.attempts > 1 ? html`<dt>Attempts</dt><dd>${counted(one.attempts, "time")}</dd>` : null}
      <dt>Operation</dt><dd>${idCode(one.id, "operation id")}</dd>
      ${
        one.tasks.length
          ? html`<dt>Tasks</dt><dd>${one.tasks.map(
              (task) => html`<div>${task.purpose}
        ${idCode(task.id, "task id")}</div>`,
            )}</dd>`
          : null
      }
    </dl>`;
}

/** @param {Operation} one */
function outcome(one) {
  const check = one.postCheck;
  if (!check) return "there was nothing to delete.";
  const left = check.rowsLeft ? ` ${counted(check.rowsLeft, "old row")} arrived meanwhile and remain.` : "";
  return `${counted(check.rows, "row")} ${check.rows === 1 ? "is" : "are"} left.${left}`;
}

/** The states as a row of steps. @param {Operation} one */
function steps(one) {
  const line = ["PLANNED", "RUNNING", "VERIFYING", ...(one.plan.strategy === "REINDEX" ? ["SWAPPING"] : []), "DONE"];
  const ended = one.state === "FAILED" || one.state === "CANCELLED";
  if (ended) line.splice(1, line.length, ...(one.startedAt ? ["RUNNING"] : []), one.state);
  const at = line.indexOf(one.state);
  return html`<ol class="states" aria-label="States">${line.map((state, index) => {
    const kind =
      index < at || (state === "DONE" && index === at) ? "past" : index === at ? (ended ? "failed" : "now") : "coming";
    const shape = { past: "●", now: "◐", coming: "○", failed: "✕" }[kind];
    return html`<li class="${kind}" aria-current="${index === at ? "step" : null}"><span
      aria-hidden="true">${shape}</span>
      ${state.toLowerCase()}</li>`;
  })}</ol>`;
}

/** @param {Operation} one */
function progress(one) {
  if (one.state === "PLANNED") return html`<p class="quiet">Waiting for an instance to start it.</p>`;
  const left = one.estimatedEndAt === null ? null : one.estimatedEndAt - Date.now();
  const words = [
    `${number(one.rowsDone)} of ${counted(one.rowsToDo, "row")}`,
    one.rowsPerSecond === null ? null : `${number(Math.round(one.rowsPerSecond))} rows a second`,
    left === null ? null : `about ${left < 1000 ? "a second" : span(left)} left`,
  ];
  return html`<div class="progress"><progress max="100" value="${one.percent}" aria-label="Rows done"></progress>
    <p>${one.percent.toFixed(0)}% · ${words.filter(Boolean).join(" · ")}</p>
    ${one.note && !isOver(one.state) ? html`<p class="quiet small">${one.note}</p>` : null}</div>`;
}
