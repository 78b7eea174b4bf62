/** The secret of a webhook: shown once, like a new token. Leaving the page needs a confirmation. */

import { html, render } from "../html.js";
import { ask, copyButton, warning } from "../components.js";
import { confirmLeave, go, setHooks } from "../router.js";
import { webhookPath } from "./webhook_display.js";

/**
 * Make a secret while the page cannot be left without a confirmation.
 * @template Made @param {HTMLElement} root @param {string} name of the webhook @param {() => Promise<Made>} make
 * @returns {Promise<Made>}
 */
export async function makingSecret(root, name, make) {
  const letGo = confirmLeave(root, () => mayLeave(name));
  try {
    return await make();
  } finally {
    letGo();
  }
}

/**
 * Show a secret in the place of the page, until the user confirms that it is stored.
 * @param {HTMLElement} root @param {string} heading
 * @param {{secret: string, webhook: import("./webhook_display.js").Webhook}} made
 */
export function showWebhookSecret(root, heading, { secret, webhook }) {
  const stored = () => {
    setHooks(root, {});
    void go(webhookPath(webhook.id), { replace: true, sure: true });
  };
  render(
    root,
    html`<div class="stack narrow">
    <h1 tabindex="-1">${heading}</h1>
    ${warning(html`<p><strong>This is the only time the secret is shown.</strong> Give it to the receiver, which
      verifies each message of <strong>${webhook.name}</strong> with it.</p>`)}
    <div class="field"><span class="label" id="secret-label">The secret</span>
      <div class="code secret"><pre tabindex="0" role="region" aria-labelledby="secret-label"><code
        id="secret">${secret}</code></pre>
      ${copyButton(secret, "Copy the secret")}</div>
      <p class="hint">Libraries of the Standard Webhooks specification take it as it is.</p></div>
    <p class="actions"><button type="button" class="primary" id="stored" @click=${stored}>I have stored it</button></p>
  </div>`,
  );
  root.querySelector("h1")?.focus();
  setHooks(root, { leave: () => mayLeave(webhook.name) });
}

/** @param {string} name */
const mayLeave = (name) =>
  ask({
    title: "Leave without the secret?",
    content: html`<p>The secret will not be shown again. If you have not stored it, rotate the secret of
      <strong>${name}</strong>.</p>`,
    action: "Leave",
    cancel: "Stay",
    danger: true,
  });
