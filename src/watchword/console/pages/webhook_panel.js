/** One webhook: its state, its deliveries with what the receiver answered, and what can be done with it. */

import { html, part, render } from "../html.js";
import { graphql } from "../api.js";
import { actor, counted, exact, fullTime, number, relative, time, utc } from "../format.js";
import {
  ask,
  codeBox,
  errorLine,
  field,
  latestSignal,
  loading,
  notice,
  panel,
  showingErrors,
  status,
  warning,
} from "../components.js";
import { poll } from "../loading.js";
import { goQuery, withQuery } from "../router.js";
import { groupNames } from "../group_names.js";
import { actorLink, listed } from "./actor_names.js";
import { WEBHOOK, webhookState } from "./webhook_display.js";
import { makingSecret, showWebhookSecret } from "./webhook_secret.js";

/**
 * @typedef {import("./webhook_display.js").Webhook} Webhook
 * @typedef {{at: number, millis: number, succeeded: boolean, status: number | null, error: string | null,
 *   answer: string | null}} Attempt
 * @typedef {{id: string, messageId: string, eventId: string | null, type: string, state: "WAITING" | "DELIVERED",
 *   createdAt: number, deliveredAt: number | null, payload: string, attempts: Attempt[]}} Delivery
 */

const LOOK = `query Look($id: String!, $input: ListWebhookDeliveriesInput!) { getWebhook(id: $id) { ${WEBHOOK} }
  listWebhookDeliveries(input: $input) { cursor deliveries { id messageId eventId type state createdAt deliveredAt
  payload
    attempts { at millis succeeded status error answer } } } }`;
const SWITCH = `mutation Switch($id: String!, $enabled: Boolean) { updateWebhook(id: $id, input: {enabled: $enabled}) {
  id } }`;
const TEST = `mutation Test($id: String!) { testWebhook(id: $id) { at millis succeeded status error answer } }`;
const ROTATE = `mutation Rotate($id: String!, $overlap: String) { rotateWebhookSecret(id: $id, overlap: $overlap) {
  secret webhook { ${WEBHOOK} } } }`;
const REPLAY = `mutation Replay($input: ReplayWebhookInput!) { replayWebhook(input: $input) { queued until } }`;
const DELETE = `mutation Delete($id: String!) { deleteWebhook(id: $id) }`;
const COUNT = 20;
/** From this many waiting deliveries on, and for one in use, deleting needs the name. */
const MANY = 10;
const REASONS = {
  failed: "The receiver failed for three days.",
  queue_full: "Too many deliveries waited.",
  gone: "The receiver answered 410 Gone.",
};

/**
 * @param {{root: HTMLElement, webhook: Webhook, me: import("../shell.js").Me, close: string, changed: () => void,
 *   deleted: (webhook: Webhook) => Promise<void>}} what
 */
export function webhookPanel({ root, webhook, me, close, changed, deleted }) {
  const { id } = webhook;
  const named = groupNames(me);
  const node = panel({
    title: webhook.name,
    close,
    content: html`<div class="webhook-facts followed"></div><div class="outcome" aria-live="polite"></div>
    <section class="followed" aria-labelledby="deliveries-title"><h3 id="deliveries-title">Deliveries</h3><div
      class="deliveries">${loading()}</div></section>`,
  });
  const [facts, outcome, place] = [part(node, ".webhook-facts"), part(node, ".outcome"), part(node, ".deliveries")];
  /** @type {Set<string>} */
  const opened = new Set();
  let last = "";
  let now = webhook;

  /** @param {import("../router.js").Context} at */
  async function load(at) {
    const state = at.query.get("state");
    const input = {
      id,
      state: state === "WAITING" || state === "DELIVERED" ? state : null,
      cursor: at.query.get("cursor"),
      count: COUNT,
    };
    await showingErrors(place, async () => {
      const found = await graphql(LOOK, { id, input }, { signal: latestSignal(place, at.signal) });
      // Redrawn only if needed: a button that is replaced between press and release is not clicked.
      const seen = JSON.stringify([found, input]);
      if (seen === last) return;
      last = seen;
      now = found.getWebhook;
      await named.look(now.groupUrns, at.signal);
      render(facts, shown());
      render(place, deliveries(found.listWebhookDeliveries, at.query));
    });
  }

  /** @param {import("../router.js").Context} at */
  async function show(at) {
    current = at;
    await load(at);
    const wanted = () => now.waiting > 0 && now.state === "ENABLED" && node.isConnected && !at.signal.aborted;
    if (wanted()) void poll(async () => (await load(at), "still"), wanted);
  }
  /** @type {import("../router.js").Context | null} */
  let current = null;

  /** Do something, say what happened, and look again. @param {() => Promise<unknown>} act returns what is said */
  async function act(act) {
    try {
      render(outcome, await act());
    } catch (error) {
      render(outcome, errorLine(error));
    }
    changed();
    if (current && !current.signal.aborted) await show(current);
  }

  /** @param {boolean} enabled */
  const enable = (enabled) =>
    act(async () => {
      await graphql(SWITCH, { id, enabled });
      return notice(enabled ? "Enabled. What waits is sent now." : "Disabled. Nothing is queued or sent.");
    });

  const test = () =>
    act(async () => {
      render(outcome, loading("Sending a test…"));
      const attempt = (await graphql(TEST, { id })).testWebhook;
      return attempt.succeeded
        ? html`${notice(html`The receiver accepted the test message: ${answered(attempt)}.`)}${answerOf(attempt)}`
        : html`${warning(html`The receiver did not accept the test message:
          ${answered(attempt)}.`)}${answerOf(attempt)}`;
    });

  /** @param {{deliveryId?: string, since?: number}} [what] without: what waits */
  const replay = (what = {}) =>
    act(async () => queued((await graphql(REPLAY, { input: { id, ...what } })).replayWebhook));

  async function replaySince() {
    /** @type {unknown} */
    let said = null;
    const done = await ask({
      title: `Send the events of ${now.name} again?`,
      action: "Send again",
      content: html`<p>All events since a time that match are sent, also those that were delivered before. Deliveries
        have the same
          <code>webhook-id</code> as before.</p>
        ${field({
          id: "replay-since",
          label: "Since, in your time zone",
          control: html`<input id="replay-since" name="since" type="datetime-local" required>`,
        })}`,
      act: async (form) => {
        const since = Date.parse(String(form.get("since")));
        said = queued((await graphql(REPLAY, { input: { id, since } })).replayWebhook);
      },
    });
    if (done) await act(async () => said);
  }

  async function rotate() {
    /** @type {any} */
    let made = null;
    await ask({
      title: `Rotate the secret of ${now.name}?`,
      action: "Rotate secret",
      content: html`<p>The new secret is shown once. For the overlap, messages are signed with both.</p>
        ${field({
          id: "overlap",
          label: "The old secret signs too for",
          control: html`<select id="overlap" name="overlap">
          <option value="PT1H">1 hour</option><option value="P1D" selected>1 day</option><option value="P7D">7
            days</option>
          <option value="PT0S">no time: it has leaked</option></select>`,
        })}`,
      act: async (form) => {
        made = await makingSecret(root, now.name, () => graphql(ROTATE, { id, overlap: String(form.get("overlap")) }));
      },
    });
    if (made) showWebhookSecret(root, "The new secret", made.rotateWebhookSecret);
  }

  async function remove() {
    const used = now.state !== "DISABLED" && now.lastDeliveredAt !== null;
    const sure = await ask({
      title: `Delete ${now.name}?`,
      danger: true,
      action: `Delete ${now.name}`,
      typed: used || now.waiting >= MANY ? now.name : undefined,
      content: html`<p>${
        now.waiting
          ? html`<strong>${counted(now.waiting, "delivery waits", "deliveries wait")}</strong> and will not be sent.`
          : "No delivery waits."
      }
          ${
            now.lastDeliveredAt
              ? html`The last one was delivered ${time(now.lastDeliveredAt)}.`
              : "None was delivered in 30 days."
          }</p>
        ${warning("This cannot be undone. To pause it, disable it.")}
        ${
          now.set
            ? warning(
                html`The policy set <strong>${now.set}</strong> declares it: it returns, with another secret, when the
                  file is applied again.`,
              )
            : null
        }`,
      act: () => graphql(DELETE, { id }),
    });
    if (sure) await deleted(now);
  }

  const shown = () => html`${
    now.stopReason
      ? warning(html`<p><strong>${REASONS[now.stopReason]}</strong> Nothing is sent until it is
        enabled again${now.state === "STOPPED" ? "; new events wait" : ""}. Repair the receiver first.</p>`)
      : null
  }
    <dl class="facts"><dt>State</dt><dd>${webhookState(now)}</dd>
      <dt>URL</dt><dd class="mono">${now.url}</dd>
      <dt>Events</dt><dd>${
        now.actions.length ? now.actions.map((word, index) => html`${index ? ", " : ""}<code>${word}</code>`) : "all"
      }</dd>
      ${
        now.actorUrns.length ? html`<dt>Only by</dt><dd>${now.actorUrns.map((urn) => html`${actor(urn)} `)}</dd>` : null
      }
      ${
        now.groupUrns.length
          ? html`<dt>Only about tokens of</dt><dd>${listed(
              now.groupUrns.map((urn) => ({ text: named.name(urn), title: urn })),
            )}</dd>`
          : null
      }
      <dt>Last delivery</dt><dd>${time(now.lastDeliveredAt, "none in 30 days")}</dd>
      <dt>Waiting</dt><dd>${number(now.waiting)}${
        now.dropped ? html` · <strong>${number(now.dropped)} dropped</strong>: replay since a time sends them` : null
      }</dd>
      ${
        now.failingSince
          ? html`<dt>Failing since</dt><dd>${time(now.failingSince)}${
              now.nextAttemptAt ? html`, next attempt ${time(now.nextAttemptAt)}` : null
            }</dd>`
          : null
      }
      ${
        now.previousSecretUntil && now.previousSecretUntil > Date.now()
          ? html`<dt>Old secret</dt><dd>signs too until ${time(now.previousSecretUntil)}</dd>`
          : null
      }
      ${now.set ? html`<dt>Policy set</dt><dd>${now.set}</dd>` : null}
      <dt>Created</dt><dd>${time(now.createdAt)} by ${actorLink(now.createdBy, me, now.createdByName)}</dd>
      <dt>Activity</dt><dd><a href="/console/activity?target=${encodeURIComponent(id)}">What was done with
        it</a></dd></dl>
    <p class="actions"><a class="button" id="webhook-edit" href="${withQuery({
      form: "edit",
      state: null,
      cursor: null,
    })}">Edit</a>
      <button type="button" id="webhook-test" @click=${test}>Send a test</button>
      ${
        now.state === "ENABLED"
          ? html`<button type="button" id="webhook-switch" @click=${() => enable(false)}>Disable</button>`
          : html`<button type="button" id="webhook-switch" class="primary" @click=${() => enable(true)}>Enable</button>`
      }
      <button type="button" id="webhook-rotate" @click=${rotate}>Rotate secret…</button>
      <button type="button" class="danger" id="webhook-delete" @click=${remove}>Delete ${now.name}…</button></p>`;

  /** @param {{cursor: string | null, deliveries: Delivery[]}} found @param {URLSearchParams} query */
  const deliveries = (found, query) => {
    const state = query.get("state") ?? "";
    return html`<div class="row deliveries-head">
      <label>Show <select id="delivery-state" @change=${filter}>${[
        ["", "all"],
        ["WAITING", "waiting"],
        ["DELIVERED", "delivered"],
      ].map(
        ([value, word]) => html`<option
        value="${value}" ?selected=${value === state}>${word}</option>`,
      )}</select></label>
      ${
        now.state !== "DISABLED"
          ? html`${
              now.waiting
                ? html`<button type="button" id="replay-waiting" @click=${() => replay()}>Send waiting deliveries
                  now</button>`
                : null
            }
        <button type="button" id="replay-since-button" @click=${replaySince}>Replay since…</button>`
          : null
      }</div>
      ${
        found.deliveries.length
          ? html`<ul class="plain-list delivery-list">${found.deliveries.map(delivery)}</ul>`
          : html`<p class="quiet">${
              state || query.get("cursor")
                ? "No delivery matches."
                : "Nothing was delivered in 30 days, and nothing waits."
            }</p>`
      }
      <nav class="pager" aria-label="Pages of deliveries"><span>${
        query.get("cursor") ? html`<a href="${withQuery({ cursor: null })}">‹ Newest</a>` : null
      }</span>
        <span>${
          found.cursor
            ? html`<a rel="next" id="older-deliveries" href="${withQuery({ cursor: found.cursor })}">Older ›</a>`
            : null
        }</span></nav>`;
  };

  /** @param {Event} event */
  const filter = (event) => {
    void goQuery({ state: /** @type {HTMLSelectElement} */ (event.target).value, cursor: null });
  };

  /** @param {Delivery} one */
  const delivery = (one) => {
    const attempt = one.attempts.at(-1);
    /** @param {Event} event */
    const keep = (event) =>
      /** @type {HTMLDetailsElement} */ (event.currentTarget).open ? opened.add(one.id) : opened.delete(one.id);
    return html`<li><details .open=${opened.has(one.id)} @toggle=${keep}><summary id="delivery-${one.id}">${
      one.state === "DELIVERED"
        ? status("live", "delivered")
        : attempt
          ? status("failed", "not accepted")
          : status("waiting")
    } <code>${one.type}</code> <span class="quiet small">${attempt ? html`${answered(attempt)} · ` : null}<time
        datetime="${new Date(one.createdAt).toISOString()}" data-moment="${one.createdAt}"
          title="${exact(one.createdAt)} · ${utc(one.createdAt)}"
        >${relative(one.createdAt)}</time></span></summary>
      <dl class="facts small"><dt>Created</dt><dd>${fullTime(one.createdAt)}</dd><dt>Delivered</dt>
        <dd>${fullTime(one.deliveredAt, "not yet")}</dd>
        <dt>Message</dt><dd><code>${one.messageId}</code></dd></dl>
      <ol class="steps small">${one.attempts.map(
        (attempted) =>
          html`<li>${time(attempted.at)}: ${answered(attempted)} in ${number(attempted.millis)}
            ms${answerOf(attempted)}</li>`,
      )}</ol>
      ${codeBox(pretty(one.payload), "Copy the message")}
      ${
        now.state === "DISABLED"
          ? null
          : html`<p><button type="button" id="again-${one.id}" @click=${() => replay({ deliveryId: one.id })}>Send
            again</button></p>`
      }
    </details></li>`;
  };

  render(facts, shown());
  return { id, node, show };
}

/** @param {Attempt} attempt */
const answered = (attempt) => (attempt.status === null ? (attempt.error ?? "no answer") : `status ${attempt.status}`);

/** The first kilobyte of the answer, as text. @param {Attempt} attempt */
const answerOf = (attempt) =>
  attempt.answer
    ? html`<pre class="answer" tabindex="0" role="region" aria-label="Answer of the receiver">${attempt.answer}</pre>`
    : null;

/** @param {{queued: number, until: number | null}} replayed */
const queued = ({ queued, until }) =>
  notice(
    html`${counted(queued, "delivery", "deliveries")} to send.${
      until === null ? null : html` Not all events had room: replay since ${fullTime(until)} once these are delivered.`
    }`,
  );

/** @param {string} payload */
function pretty(payload) {
  try {
    return JSON.stringify(JSON.parse(payload), null, 2);
  } catch {
    return payload;
  }
}
