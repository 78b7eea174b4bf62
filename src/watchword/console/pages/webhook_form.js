/** The form of one webhook: where it sends, and which events. */

import { html } from "../html.js";
import { graphql } from "../api.js";
import { field, panel, warning } from "../components.js";
import { actorPicker } from "../actor_picker.js";
import { keepDraft } from "../drafts.js";
import { send } from "./forms.js";
import { WEBHOOK } from "./webhook_display.js";
import { makingSecret, showWebhookSecret } from "./webhook_secret.js";

/** @typedef {import("./webhook_display.js").Webhook} Webhook */

const ACTIONS = "{ listEventActions { name description } }";
const CREATE = `mutation Create($input: CreateWebhookInput!) { createWebhook(input: $input) { secret webhook {
  ${WEBHOOK} } } }`;
const UPDATE = `mutation Update($id: String!, $input: UpdateWebhookInput!) { updateWebhook(id: $id, input: $input) {
  ${WEBHOOK} } }`;
const FIELDS = {
  name: "hook-name",
  id: "hook-id",
  url: "hook-url",
  actions: "hook-actions",
  actorUrns: "hook-actors",
  groupUrns: "hook-groups",
};

/**
 * @param {{root: HTMLElement, webhook: Webhook | null, me: import("../shell.js").Me, close: string,
 *   signal: AbortSignal, done: (webhook: Webhook) => Promise<void>}} what without a webhook: a new one, whose secret is
 *   shown
 */
export async function webhookForm({ root, webhook, me, close, signal, done }) {
  /** @type {{name: string, description: string}[]} */
  const actions = (await graphql(ACTIONS, {}, { signal })).listEventActions;
  const kinds = [...new Set(actions.map((one) => one.name.split(".")[0]))].sort();
  const chosen = new Set(webhook?.actions);
  /** @param {string[]} [urns] */
  const found = (urns) => urns?.map((urn) => ({ urn }));
  const actors = actorPicker(me, {
    id: "hook-actors",
    name: "actors",
    many: true,
    chosen: found(webhook?.actorUrns),
    describedby: "hook-actors-hint",
  });
  const groups = actorPicker(me, {
    id: "hook-groups",
    name: "groups",
    kinds: "groups",
    many: true,
    chosen: found(webhook?.groupUrns),
    describedby: "hook-groups-hint",
  });

  /** @param {Event} event */
  const save = (event) =>
    send(
      event,
      async (form) => {
        const given = new FormData(form);
        actors.check("actorUrns");
        groups.check("groupUrns");
        const input = {
          name: String(given.get("name")),
          url: String(given.get("url")).trim(),
          actions: given.get("which") === "all" ? [] : given.getAll("action"),
          actorUrns: actors.urns(),
          groupUrns: groups.urns(),
        };
        if (webhook) {
          const { updateWebhook } = await graphql(UPDATE, { id: webhook.id, input });
          saved();
          await done(updateWebhook);
        } else {
          const id = String(given.get("id")).trim() || null;
          const made = await makingSecret(root, input.name, () => graphql(CREATE, { input: { ...input, id } }));
          saved();
          showWebhookSecret(root, "Your new webhook", made.createWebhook);
        }
      },
      FIELDS,
    );

  /** Choosing an action chooses "these", and all of a kind include each of it. @param {Event} event */
  const pick = (event) => {
    const box = /** @type {HTMLInputElement} */ (event.target);
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    if (box.name !== "action") return;
    /** @type {HTMLInputElement} */ (form.querySelector("#hook-some")).checked = true;
    const kind = box.value.split(".")[0];
    const of = [
      .../** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll(`[data-kind="${kind}"] [name=action]`)),
    ];
    if (box.value.endsWith(".*"))
      of.slice(1).forEach((one) => {
        one.checked = false;
      });
    else of[0].checked = false;
  };

  /** @param {string} kind */
  const all = (kind) => `${kind}.*`;
  const node = panel({
    title: webhook ? `Edit ${webhook.name}` : "New webhook",
    close,
    content: html`${
      webhook?.set
        ? warning(html`The policy set <strong>${webhook.set}</strong> declares it: the next time its file is
        applied, it overwrites your changes. Change the file too.`)
        : null
    }
      <form id="webhook-form" @submit=${save} @change=${pick}>
      ${field({
        id: "hook-name",
        label: "Name",
        control: html`<input id="hook-name" name="name" required maxlength="200" autocomplete="off"
        .value=${webhook?.name ?? ""}>`,
      })}
      ${field({
        id: "hook-url",
        label: "URL",
        hint:
          "It gets a POST with one event at a time. https, to a public address, unless the service's settings " +
          "allow others.",
        control: html`<input id="hook-url" name="url" type="url" data-secret required maxlength="2000"
          autocomplete="off" spellcheck="false"
          aria-describedby="hook-url-hint" .value=${webhook?.url ?? ""}>`,
      })}
      ${
        webhook
          ? null
          : field({
              id: "hook-id",
              label: "Id",
              optional: true,
              hint: "Lower-case letters, digits, hyphens. Generated if empty. It never changes.",
              control: html`<input id="hook-id" name="id" maxlength="60" pattern="[a-z0-9\\-]+" autocomplete="off"
                spellcheck="false" aria-describedby="hook-id-hint">`,
            })
      }
      <fieldset data-field="hook-actions" id="hook-actions" tabindex="-1"><legend>Events</legend>
        <label class="choice"><input type="radio" name="which" value="all" .checked=${!chosen.size}><span>All
          events</span></label>
        <label class="choice"><input type="radio" name="which" value="some" id="hook-some"
          .checked=${chosen.size > 0}><span>These</span></label>
        <div class="inner">${kinds.map((kind) => {
          const of = actions.filter((one) => one.name.startsWith(`${kind}.`));
          return html`<details data-kind="${kind}" .open=${
            chosen.has(all(kind)) || of.some((one) => chosen.has(one.name))
          }><summary>${kind}</summary>
            <label class="choice"><input type="checkbox" name="action" value="${all(kind)}"
              .checked=${chosen.has(all(kind))}><span>All about
              <code>${kind}</code></span></label>
            ${of.map(
              (one) => html`<label class="choice"><input type="checkbox" name="action" value="${one.name}"
                .checked=${chosen.has(one.name)}
              ><span><code>${one.name}</code><small>${one.description}</small></span></label>`,
            )}</details>`;
        })}</div>
        <div class="field-error"></div></fieldset>
      ${field({
        id: "hook-actors",
        label: "Only events by",
        optional: true,
        hint: "Type a part of a name and choose.",
        control: actors.node,
      })}
      ${field({
        id: "hook-groups",
        label: "Only events about tokens of groups",
        optional: true,
        hint: "Type a part of a name and choose.",
        control: groups.node,
      })}
      <div class="form-error"></div>
      <p class="actions"><button type="submit" class="primary">${webhook ? "Save webhook" : "Create webhook"}</button>
        <a class="button" href="${close}">Cancel</a></p></form>`,
  });
  const saved = keepDraft(
    /** @type {HTMLFormElement} */ (node.querySelector("form")),
    `webhook ${webhook?.id ?? "new"}`,
  );
  return node;
}
