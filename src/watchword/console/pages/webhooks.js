/** Webhooks: create, change, test, rotate and delete them. The panel of one has its deliveries. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { counted, inTerminal, number, time } from "../format.js";
import { empty, loadList, notice, table } from "../components.js";
import { go, setHooks, withQuery } from "../router.js";
import { backTo, openPanel, openingPanel } from "./forms.js";
import { WEBHOOK, hostOf, webhookPath, webhookState } from "./webhook_display.js";
import { webhookForm } from "./webhook_form.js";
import { webhookPanel } from "./webhook_panel.js";

/** @typedef {import("./webhook_display.js").Webhook} Webhook */

const LIST = `query Webhooks($input: ListWebhooksInput) { listWebhooks(input: $input) { webhooks { ${WEBHOOK} } } }`;
const ONE = `query Webhook($id: String!) { getWebhook(id: $id) { ${WEBHOOK} } }`;

const ANSWER = `query LastAnswer($input: ListWebhookDeliveriesInput!) { listWebhookDeliveries(input: $input) {
  deliveries { attempts {
  at status error } } } }`;
/** Of how many failing webhooks the last answer is asked for. */
const MOST_ASKED = 10;

/** @param {string} id @param {AbortSignal} signal */
async function lastAnswer(id, signal) {
  const { deliveries } = (await graphql(ANSWER, { input: { id, state: "WAITING", count: 20 } }, { signal }))
    .listWebhookDeliveries;
  /** @type {{at: number, status: number | null, error: string | null}[]} */
  const attempts = deliveries.flatMap((/** @type {{attempts: unknown[]}} */ one) => one.attempts);
  const last = attempts.sort((one, other) => other.at - one.at)[0];
  return last ? (last.status === null ? (last.error ?? "no answer") : `status ${last.status}`) : "";
}

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  let at = context;
  render(
    root,
    html`<div class="page-head"><h1>Webhooks</h1>
      <a class="button primary" data-key="new" href="/console/webhooks?form=new">New webhook</a></div>
    <p class="quiet lead">Each sends new events of the audit log to a URL, signed.</p>
    <div id="said-here"></div><div id="list" class="stack"></div>`,
  );
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @param {import("../router.js").Context} now */
  async function show(now) {
    const was = at.params[0];
    at = now;
    at.title("Webhooks");
    await Promise.all([list(), panelOf(at.params[0])]);
    backTo(was, now);
  }

  /** What the receivers that fail answered last. @type {Map<string, string>} */
  let answers = new Map();
  const list = () =>
    loadList(place("list"), at.signal, async (signal) => {
      const found = (await graphql(LIST, { input: { count: 100 } }, { signal })).listWebhooks;
      const rows = /** @type {Webhook[]} */ (found.webhooks);
      const failing = rows.filter((one) => one.failingSince !== null).slice(0, MOST_ASKED);
      answers = new Map(
        await Promise.all(
          failing.map(async ({ id }) => /** @type {[string, string]} */ ([id, await lastAnswer(id, signal)])),
        ),
      );
      render(
        place("list"),
        rows.length
          ? hooks(rows)
          : empty({
              title: "No webhooks yet",
              sentence:
                "A webhook tells another service, such as a chat or an alarm, what happens here: a token was " +
                "revoked, a scan found one.",
              action: html`<a class="button" href="/console/webhooks?form=new">New webhook</a>`,
              command: inTerminal("watchword webhook create --name Chat --to URL --action token.revoked", me),
            }),
      );
    });

  const hooks = (/** @type {Webhook[]} */ rows) =>
    table({
      caption: "Webhooks",
      rows,
      rowClass: (one) => (one.id === at.params[0] ? "here" : ""),
      columns: [
        { label: "Name", cell: (one) => html`<a id="${one.id}" href="${webhookPath(one.id)}">${one.name}</a>` },
        { label: "Receiver", cell: (one) => html`<span class="mono">${hostOf(one.url)}</span>` },
        { label: "Events", cell: (one) => (one.actions.length ? counted(one.actions.length, "action") : "all") },
        {
          label: "State",
          cell: (one) =>
            html`${webhookState(one)}${
              answers.get(one.id) ? html`<span class="quiet small block">${answers.get(one.id)}</span>` : null
            }`,
        },
        { label: "Last delivery", cell: (one) => time(one.lastDeliveredAt, "none in 30 days") },
        { label: "Waiting", class: "number", cell: (one) => number(one.waiting) },
      ],
    });

  const close = "/console/webhooks";

  /** @type {ReturnType<typeof webhookPanel> | null} */
  let panel = null;

  /** @param {string | undefined} id */
  async function panelOf(id) {
    const now = at;
    const wanted = at.query.get("form");
    if (panel && id === panel.id && !wanted && panel.node.isConnected) {
      await panel.show(now);
      return;
    }
    panel = null;
    if (!id && wanted !== "new") {
      openPanel(root, null);
      return;
    }
    await openingPanel(root, async () => {
      const webhook = id ? (await graphql(ONE, { id }, { signal: at.signal })).getWebhook : null;
      if (!webhook || wanted) {
        const node = await webhookForm({
          root,
          webhook,
          me,
          close: webhook ? withQuery({ form: null }) : close,
          signal: at.signal,
          done: saved,
        });
        if (!now.signal.aborted) openPanel(root, node);
        return;
      }
      panel = webhookPanel({ root, webhook, me, close: close, changed: () => void list(), deleted });
      openPanel(root, panel.node);
      await panel.show(now);
    });
  }

  /** @param {Webhook} webhook */
  async function saved(webhook) {
    render(place("said-here"), notice(html`Changed the webhook <strong>${webhook.name}</strong>.`));
    await go(webhookPath(webhook.id), { sure: true });
  }

  /** @param {Webhook} webhook */
  async function deleted(webhook) {
    render(place("said-here"), notice(html`Deleted the webhook <strong>${webhook.name}</strong>.`));
    await go(close);
  }

  setHooks(root, { again: show });
  await show(context);
}
