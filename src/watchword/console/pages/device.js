/**
 * Sign in a terminal: compare the code that it shows, see what it will get, approve or deny.
 */

import { html, render } from "../html.js";
import { device, isAborted } from "../api.js";
import { errorLine, showErrorAt, loading, notice, warning } from "../components.js";
import { actorName, span, time } from "../format.js";

/** @param {import("../router.js").Context} context */
export async function page(context) {
  context.title("Sign in a terminal");
  const code = context.query.get("user_code") ?? "";
  render(
    context.root,
    html`<div class="stack narrow"><h1>Sign in a terminal</h1><div class="device stack"></div></div>`,
  );
  const place = /** @type {HTMLElement} */ (context.root.querySelector(".device"));
  if (code) await look(context, place, code);
  else askCode(context, place);
}

/**
 * @param {import("../router.js").Context} context
 * @param {HTMLElement} place @param {string} [code] @param {unknown} [error]
 */
function askCode(context, place, code = "", error = null) {
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const input = /** @type {HTMLInputElement} */ (place.querySelector("#user-code"));
    void look(context, place, input.value);
  };
  render(
    place,
    html`<form class="stack" @submit=${submit}>
    <div class="field">
      <label for="user-code">Code</label>
      <input id="user-code" name="user-code" class="mono" required maxlength="20" spellcheck="false"
        autocapitalize="characters"
        autocomplete="off" value="${code}" aria-describedby="user-code-hint">
      <p class="hint" id="user-code-hint">The code that the terminal shows, such as BCDF-GHJK.</p>
    </div>
    <div class="form-error">${errorLine(error)}</div>
    <p><button class="primary" type="submit">Continue</button></p>
  </form>`,
  );
  /** @type {HTMLInputElement} */ (place.querySelector("#user-code")).focus();
}

/** @param {import("../router.js").Context} context @param {HTMLElement} place @param {string} code */
async function look(context, place, code) {
  render(place, loading());
  try {
    show(context, place, await device({ userCode: code }, context.signal));
  } catch (error) {
    if (isAborted(error)) throw error;
    askCode(context, place, code, error);
  }
}

/**
 * @param {import("../router.js").Context} context
 * @param {HTMLElement} place @param {import("../api.js").Device} found
 */
function show(context, place, found) {
  const decide = (/** @type {boolean} */ approve) => async () => {
    const buttons = /** @type {NodeListOf<HTMLButtonElement>} */ (place.querySelectorAll("button"));
    buttons.forEach((button) => (button.disabled = true));
    try {
      await device({ userCode: found.userCode, approve });
      render(
        place,
        approve
          ? notice(html`<p><strong>Approved.</strong> The terminal signs in within seconds. You can close this page. Its
          token is in the list of <a href="/console/tokens">your tokens</a>, where you can revoke it.</p>`)
          : notice(html`<p><strong>Denied.</strong> The terminal gets no token. You can close this page.</p>`),
      );
      /** @type {HTMLElement} */ (place.querySelector(".notice")).focus();
    } catch (error) {
      showErrorAt(place.querySelector(".form-error"), error);
      buttons.forEach((button) => (button.disabled = false));
    }
  };
  render(
    place,
    html`
    <p>A terminal asks to act as <strong>${actorName(context.me.urn)}</strong>. Compare the code:</p>
    <p class="user-code mono" id="shown-code" tabindex="-1">${found.userCode}</p>
    ${warning(html`<p><strong>Approve only if you started this yourself and your terminal shows this code.</strong> Deny
      it if someone sent you a link or a code.</p>`)}
    <dl class="facts">
      <dt>Program</dt><dd class="mono">${found.client}</dd>
      <dt>Terminal</dt><dd>${
        found.host === null
          ? "The terminal says nothing about itself."
          : html`The terminal says it is
        <span class="mono">${found.host}</span>, which proves nothing.`
      }</dd>
      <dt>Address</dt><dd class="mono">${found.address}</dd>
      <dt>It will get</dt><dd>A personal token of yours, valid for up to ${span(found.tokenSeconds * 1000)}</dd>
      <dt>Scopes</dt><dd>${
        found.scopes === null
          ? "No limit: all that you may do"
          : found.scopes.length
            ? html`Only <span class="mono">${found.scopes.join(", ")}</span>`
            : "None"
      }</dd>
      <dt>Code expires</dt><dd>${time(found.expiresAt)}</dd>
    </dl>
    <div class="form-error"></div>
    <p class="actions"><button type="button" class="primary" @click=${decide(true)}>Approve</button>
      <button type="button" @click=${decide(false)}>Deny</button></p>`,
  );
  /** @type {HTMLElement} */ (place.querySelector("#shown-code")).focus();
}
