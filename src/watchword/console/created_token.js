/**
 * A new token: shown once, with examples of its use. Leaving the page needs a confirmation.
 */

import { html, render } from "./html.js";
import { fullTime, tokenPath } from "./format.js";
import { ask, codeBox, copyButton, tabs, warning } from "./components.js";
import { go, confirmLeave, setHooks } from "./router.js";

/**
 * Show a new token in the place of the page, until the user confirms that it is stored.
 * @param {HTMLElement} root
 * @param {{accessToken: string, metadata: import("./token_display.js").Token}} made
 * @param {{heading: string, more?: unknown}} about
 */
export function showSecret(root, { accessToken, metadata }, { heading, more }) {
  const stored = () => {
    setHooks(root, {});
    void go(tokenPath(metadata.id), { replace: true, sure: true });
  };
  render(root, html`<div class="stack narrow">
    <h1 tabindex="-1">${heading}</h1>
    ${warning(html`<p><strong>This is the only time the token is shown.</strong> Store it where only its user can read it.</p>`)}
    <div class="field"><span class="label" id="secret-label">The token</span>
      <div class="code secret"><pre tabindex="0" role="region" aria-labelledby="secret-label"><code id="secret">${accessToken}</code></pre>
      ${copyButton(accessToken, "Copy the token")}</div></div>
    ${more}
    <dl class="facts"><dt>Acts as</dt><dd class="mono">${metadata.actorUrn}</dd>
      <dt>Expires</dt><dd>${fullTime(metadata.expiresAt)}</dd></dl>
    <h2>Try it</h2>
    ${metadata.audience ? html`<p class="hint">Its audience is ${metadata.audience.join(", ")}. Watchword rejects it unless
      that includes Watchword.</p>` : null}
    ${metadata.allowedNetworks ? html`<p class="hint">It works only from ${metadata.allowedNetworks.join(", ")}.</p>` : null}
    ${tabs("Ways to use the token", ways(location.origin, accessToken).map(({ name, text }) => ({
      name,
      content: codeBox(text, `Copy the ${name} lines`),
    })))}
    <p class="actions"><button type="button" class="primary" id="stored" @click=${stored}>I have stored it</button></p>
  </div>`);
  root.querySelector("h1")?.focus();
  setHooks(root, { leave: () => mayLeave(metadata.name) });
}

/** @param {string} name */
const mayLeave = (name) => ask({
  title: "Leave without the token?",
  content: html`<p>The token will not be shown again. If you have not stored it, revoke <strong>${name}</strong> and create another.</p>`,
  action: "Leave",
  cancel: "Stay",
  danger: true,
});

/**
 * Create a token while the page cannot be left without a confirmation.
 * @template Made @param {HTMLElement} root @param {string} name @param {() => Promise<Made>} make @returns {Promise<Made>}
 */
export async function creating(root, name, make) {
  const letGo = confirmLeave(root, () => mayLeave(name));
  try {
    return await make();
  } finally {
    letGo();
  }
}

/** Each example asks the server who the token acts as. @param {string} origin @param {string} token */
export const ways = (origin, token) => [
  {
    name: "curl",
    // Through standard input, so that the token is not in the process list.
    text: `printf 'Authorization: Bearer %s' '${token}' |\n  curl -sS -H @- -H 'Content-Type: application/json' `
      + `-d '{"query": "{ me { corpUser { urn } } }"}' '${origin}/api/graphql'`,
  },
  {
    name: "Python",
    text: `from watchword.client import Client\n\nwith Client("${origin}", token="${token}") as watchword:\n`
      + "    print(watchword.me().urn)",
  },
  { name: "CLI", text: `export WATCHWORD_URL='${origin}'\nexport WATCHWORD_TOKEN='${token}'\nwatchword whoami` },
];
