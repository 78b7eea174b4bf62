/**
 * The secret: shown once, here, with what it takes to use it; nobody leaves it behind by accident.
 */

import { html, render } from "./html.js";
import { fullTime, tokenPath } from "./format.js";
import { ask, codeBox, copyButton, tabs, warning } from "./parts.js";
import { go, hold, keep } from "./router.js";

/**
 * Show a token that was just made in the place of the page, until its reader says that it is stored.
 * @param {HTMLElement} root
 * @param {{accessToken: string, metadata: import("./tokens.js").Token}} made
 * @param {{heading: string, more?: unknown}} about
 */
export function showSecret(root, { accessToken, metadata }, { heading, more }) {
  const stored = () => {
    keep(root, {});
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
      <dt>Ends</dt><dd>${fullTime(metadata.expiresAt)}</dd></dl>
    <h2>Try it</h2>
    ${metadata.audience ? html`<p class="hint">It is for ${metadata.audience.join(", ")}; this service itself refuses it
      unless that names it.</p>` : null}
    ${metadata.allowedNetworks ? html`<p class="hint">It works from ${metadata.allowedNetworks.join(", ")} alone.</p>` : null}
    ${tabs("Ways to use the token", ways(location.origin, accessToken).map(({ name, text }) => ({
      name,
      content: codeBox(text, `Copy the ${name} lines`),
    })))}
    <p class="actions"><button type="button" class="primary" id="stored" @click=${stored}>I have stored it</button></p>
  </div>`);
  root.querySelector("h1")?.focus();
  keep(root, { leave: () => mayLeave(metadata.name) });
}

/** @param {string} name */
const mayLeave = (name) => ask({
  title: "Leave without the token?",
  content: html`<p>It is shown only here and only now. If it is not stored, revoke <strong>${name}</strong> and make another.</p>`,
  deed: "Leave",
  cancel: "Stay",
  danger: true,
});

/**
 * What makes a token, for a page that is not left unasked meanwhile: nobody else is shown what comes.
 * @template Made @param {HTMLElement} root @param {string} name @param {() => Promise<Made>} make @returns {Promise<Made>}
 */
export async function making(root, name, make) {
  const letGo = hold(root, () => mayLeave(name));
  try {
    return await make();
  } finally {
    letGo();
  }
}

/** Each asks the server who the token acts as. @param {string} origin @param {string} token */
export const ways = (origin, token) => [
  {
    name: "curl",
    // By its standard input, so that the token is in no list of processes.
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
