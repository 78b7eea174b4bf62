/**
 * Sign in: at the identity provider, if there is one; or exchange a token for a session. In local mode the name of an
 * actor is enough.
 */

import { html, render } from "../html.js";
import { session } from "../api.js";
import { onServer } from "../format.js";
import { codeBox, errorLine, warning } from "../components.js";
import { go } from "../router.js";

/** @param {import("../router.js").Context} context */
export async function page(context) {
  signIn({ ...context, session: await session.read(), problem: null });
}

/**
 * @param {import("../router.js").Context & {session: import("../api.js").Session,
 *   problem: import("../api.js").ApiError | null}} context
 */
export function signIn(context) {
  const { root, query, session: current, problem } = context;
  context.title("Sign in");
  const next = home(query.get("next"));
  if (current.signedIn && !problem) {
    void go(next, { replace: true });
    return;
  }
  render(
    root,
    html`<div class="sign-in stack">
    <h1>Sign in</h1>
    <div class="sign-in-problem stack">${
      problem
        ? html`${errorLine(problem)}<p>Sign in again to continue where you left off. What you had
      typed into a form is kept in this tab.</p>`
        : null
    }</div>
    ${
      current.provider
        ? html`<p><a class="button primary" id="provider"
      href="/sign-in?next=${encodeURIComponent(next)}">Sign in with ${current.provider}</a></p>
      <p class="quiet small">You sign in there with your usual account and come back here.</p>`
        : null
    }
    ${current.localMode ? byActor(next) : null}
    ${
      current.provider
        ? html`<details class="stack"><summary>Sign in with a token</summary>${byToken(current, next)}</details>`
        : byToken(current, next)
    }
    <details class="stack"><summary>No token yet?</summary>${firstToken(current)}</details>
  </div>`,
  );
  const first = root.querySelector("#provider, input");
  if (first instanceof HTMLElement) first.focus();
}

/** @param {import("../api.js").Session} current @param {string} next */
function byToken(current, next) {
  return html`<form class="stack" @submit=${(/** @type {Event} */ event) => submit(event, next, "token")}>
      ${current.localMode && !current.provider ? html`<h2>Or with a token</h2>` : null}
      <div class="field">
        <label for="token">Access token</label>
        <input id="token" name="token" type="password" autocomplete="current-password" required spellcheck="false"
          autocapitalize="off" aria-describedby="token-hint">
        <p class="hint" id="token-hint">It is exchanged for a session, which ends with the token or after some
          hours. The page does not store the token.</p>
      </div>
      <div class="form-error"></div>
      <p><button class="${current.localMode || current.provider ? "" : "primary"}" type="submit">Sign in</button></p>
    </form>`;
}

/** @param {import("../api.js").Session} current */
const firstToken = (
  current,
) => html`<p>${current.provider ? "With the button above you need none." : null} Ask someone who manages
    tokens to create one for you.</p>
  <p>If no one has a token yet, create the first on the server's machine, as the user who runs the service${
    current.dataDir ? "" : html`, with its settings (<code>--data-dir</code>, or its environment)`
  }. It acts as the root actor:</p>
  ${codeBox(onServer("watchword token create --local --name console", current))}`;

/** @param {string} next */
function byActor(next) {
  return html`${warning(html`<p><strong>Local mode.</strong> Anyone who can reach this address can act as any actor,
    without a credential. Turn it off with
    <code>WATCHWORD_LOCAL_MODE=off</code> before others can reach this machine.</p>`)}
    <form class="stack" @submit=${(/** @type {Event} */ event) => submit(event, next, "actor")}>
      <div class="field">
        <label for="actor">Act as</label>
        <input id="actor" name="actor" data-secret required spellcheck="false" autocapitalize="off"
          autocomplete="username"
          placeholder="urn:li:corpuser:admin" aria-describedby="actor-hint">
        <p class="hint" id="actor-hint">The urn of an actor, or a name for urn:li:corpuser:&lt;name&gt;.</p>
      </div>
      <div class="form-error"></div>
      <p><button class="primary" type="submit">Act as this actor</button></p>
    </form>`;
}

/** @param {Event} event @param {string} next @param {"token" | "actor"} kind */
async function submit(event, next, kind) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.currentTarget);
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  const input = /** @type {HTMLInputElement} */ (form.elements.namedItem(kind));
  const place = /** @type {HTMLElement} */ (form.querySelector(".form-error"));
  const given = input.value.trim();
  button.disabled = true;
  render(place, null);
  try {
    await session.signIn(
      kind === "token" ? { token: given } : { actor: given.includes(":") ? given : `urn:li:corpuser:${given}` },
    );
    input.value = "";
    await go(next, { replace: true });
  } catch (error) {
    render(place, errorLine(error));
    button.disabled = false;
    input.focus();
  }
}

/** Only addresses of the console. @param {string | null} address */
function home(address) {
  if (!address || !/^\/(console(\/|$)|device($|\?)|$|\?)/.test(address) || address.startsWith("/console/sign-in"))
    return "/";
  return address;
}
