/**
 * A new token: shown once, with a check that is not a use and examples of its use. Leaving the page needs a
 * confirmation.
 */

import { html, render } from "./html.js";
import { graphql } from "./api.js";
import { actor, exact, fullTime, span, tokenPath } from "./format.js";
import { ask, codeBox, copyButton, errorLine, notice, tabs, warning } from "./components.js";
import { go, confirmLeave, setHooks } from "./router.js";
import { WHOLE, statusOf } from "./token_display.js";

/** @typedef {import("./token_display.js").Token} Token */

const CHECK = `query Check($token: String!) { getAccessTokenMetadata(token: $token) { ${WHOLE} } }`;

/**
 * Show a new token in the place of the page, until the user confirms that it is stored.
 * @param {HTMLElement} root
 * @param {{accessToken: string, metadata: Token}} made
 * @param {{heading: string, grace?: number}} about `grace`: it is a successor, and its first use starts the handover
 */
export function showSecret(root, { accessToken, metadata }, { heading, grace }) {
  const stored = () => {
    setHooks(root, {});
    void go(tokenPath(metadata.id), { replace: true, sure: true });
  };
  const check = async () => {
    const place = /** @type {HTMLElement} */ (root.querySelector(".checked"));
    try {
      render(place, known((await graphql(CHECK, { token: accessToken })).getAccessTokenMetadata));
    } catch (error) {
      render(place, errorLine(error));
    }
  };
  render(
    root,
    html`<div class="stack narrow">
    <h1 tabindex="-1">${heading}</h1>
    ${warning(html`<p><strong>This is the only time the token is shown.</strong> Store it where only its user can read
      it.</p>`)}
    <div class="field"><span class="label" id="secret-label">The token</span>
      <div class="code secret"><pre tabindex="0" role="region" aria-labelledby="secret-label"><code
        id="secret">${accessToken}</code></pre>
      ${copyButton(accessToken, "Copy the token")}</div></div>
    <dl class="facts"><dt>Acts as</dt><dd>${actor(metadata.actorUrn, metadata.actorName)}</dd>
      <dt>Expires</dt><dd>${fullTime(grace === undefined ? metadata.expiresAt : metadata.expiresAtOnceUsed)}</dd></dl>
    <h2>Check without using it</h2>
    <p>This asks the server about the token with your session. It does not count as a
      use${grace === undefined ? "." : ": the old token stays valid."}
      In a terminal: <code>watchword token show - &lt; FILE</code></p>
    <p><button type="button" @click=${check}>Check without using it</button></p>
    <div class="checked" aria-live="polite"></div>
    ${
      grace === undefined
        ? html`<h2>Use it</h2><p>These lines ask the server who the token acts as. That counts as a use.</p>`
        : handover(metadata, grace)
    }
    ${
      metadata.audience
        ? html`<p class="hint">Its audience is ${metadata.audience.join(", ")}. Watchword rejects it unless
      that includes Watchword.</p>`
        : null
    }
    ${
      metadata.allowedNetworks
        ? html`<p class="hint">It works only from ${metadata.allowedNetworks.join(", ")}.</p>`
        : null
    }
    ${tabs(
      "Ways to use the token",
      ways(location.origin, accessToken).map(({ name, text }) => ({
        name,
        content: codeBox(text, `Copy the ${name} lines`),
      })),
    )}
    <p class="actions"><button type="button" class="primary" id="stored" @click=${stored}>I have stored it</button></p>
  </div>`,
  );
  root.querySelector("h1")?.focus();
  setHooks(root, { leave: () => mayLeave(metadata.name) });
}

/** What the first use of a successor does, and when. @param {Token} token @param {number} grace */
const handover = (token, grace) => html`<h2>Start the handover</h2>
  ${warning(html`<p>The first use of the new token starts the end of the old one. This cannot be undone. Store the new
    token everywhere first. The lines below use it.</p>`)}
  <ol class="steps">
    <li><strong>Until its first use</strong> both tokens work. If it is not used by ${exact(token.expiresAt ?? 0)}, it
      expires and the old token stays valid.</li>
    <li><strong>${grace ? `${span(grace)} after its first use` : "At its first use"}</strong> the old token
      expires.</li>
    <li><strong>From its first use</strong> the new token is valid until ${
      token.expiresAtOnceUsed === null ? "it is revoked" : exact(token.expiresAtOnceUsed)
    }.</li></ol>`;

/** What the server knows about the token. @param {Token} token */
const known = (token) =>
  token.effectiveStatus === "ACTIVE"
    ? notice(html`<p>The server accepts this token${token.expiresAt === null ? "" : ` until ${exact(token.expiresAt)}`}.
    It acts as ${actor(token.actorUrn, token.actorName)}. ${
      token.lastUsedAt === null ? "No use is recorded." : "It has been used."
    } This check was not a use.</p>`)
    : warning(html`<p>The server knows this token and rejects it: ${statusOf(token)}.</p>`);

/** @param {string} name */
const mayLeave = (name) =>
  ask({
    title: "Leave without the token?",
    content: html`<p>The token will not be shown again. If you have not stored it, revoke <strong>${name}</strong> and
      create another.</p>`,
    action: "Leave",
    cancel: "Stay",
    danger: true,
  });

/**
 * Create a token while the page cannot be left without a confirmation.
 * @template Made @param {HTMLElement} root @param {string} name @param {() => Promise<Made>} make
 * @returns {Promise<Made>}
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
    text:
      `printf 'Authorization: Bearer %s' '${token}' |\n  curl -sS -H @- -H 'Content-Type: application/json' ` +
      `-d '{"query": "{ me { corpUser { urn } } }"}' '${origin}/api/graphql'`,
  },
  {
    name: "Python",
    text:
      `from watchword.client import Client\n\nwith Client("${origin}", token="${token}") as watchword:\n` +
      "    print(watchword.me().urn)",
  },
  { name: "CLI", text: `export WATCHWORD_URL='${origin}'\nexport WATCHWORD_TOKEN='${token}'\nwatchword whoami` },
];
