/**
 * Revoking, rotating and editing a token. Each dialog says before what it will do, to whom, and until when.
 */

import { html, render } from "./html.js";
import { graphql, newKey } from "./api.js";
import { DAY, HOUR, MINUTE, actor, counted, exact, span, time, utc } from "./format.js";
import { ask, field, warning } from "./components.js";
import { go } from "./router.js";
import { creating, showSecret } from "./created_token.js";
import { WHOLE } from "./token_display.js";

/** @typedef {import("./token_display.js").Token} Token */
/** @typedef {import("./router.js").Context} Context */

const PROSPECT = `mutation Prospect($one: RevokeAccessTokensInput!, $all: RevokeAccessTokensInput!) {
  one: revokeAccessTokens(input: $one) { count } all: revokeAccessTokens(input: $all) { count } }`;
const REVOKE = `mutation Revoke($id: String!, $cascade: Boolean) { revokeAccessToken(tokenId: $id, cascade: $cascade)
  }`;
const EDIT = `mutation Edit($id: String!, $input: UpdateAccessTokenInput!) {
  updateAccessToken(tokenId: $id, input: $input) { id } }`;
const ROTATE = `mutation Rotate($id: String!, $overlap: String, $grace: String) {
  rotateAccessToken(tokenId: $id, overlap: $overlap, grace: $grace) { accessToken metadata { ${WHOLE} } } }`;

/** @type {[string, number][]} */
const OVERLAPS = [
  ["PT1H", HOUR],
  ["P1D", DAY],
  ["P7D", 7 * DAY],
  ["P30D", 30 * DAY],
];
const LONGEST_OVERLAP = 90 * DAY;
/** For reading the dialog before it is confirmed. */
const SPARE_MINUTES = 30;
/** @type {[string, number][]} */
const GRACES = [
  ["PT0S", 0],
  ["PT5M", 5 * MINUTE],
  ["PT1H", HOUR],
  ["P1D", DAY],
  ["P7D", 7 * DAY],
];

/**
 * @param {Context} context
 * @param {Token} token @param {{close: string, changed: (what: unknown) => Promise<void>}} place where it is shown
 */
export async function revoke(context, token, { close, changed }) {
  const dead = token.status !== "ACTIVE";
  // The server counts by a dry run of the same revocation.
  const of = (/** @type {boolean} */ cascade) => ({ ids: [token.id], cascade, dryRun: true });
  /** @type {{one: {count: number}, all: {count: number}} | null} */
  let counts = null;
  try {
    counts = await graphql(PROSPECT, { one: of(dead), all: of(true) });
  } catch {
    // Ask without the numbers: the revocation may be urgent.
  }
  // The user has left the page meanwhile.
  if (context.signal.aborted) return;
  const ends = counts ? counts.one.count : 1;
  // It may have expired since it was shown; then nothing else is revoked with it.
  const withIt = dead ? ends : Math.max(0, ends - 1);
  const createdWithIt = counts ? counts.all.count - counts.one.count : 0;
  let cascade = dead;
  const signedIn = token.id === context.me.tokenId;
  const done = await ask({
    title: dead ? `Revoke the tokens created with ${token.name}?` : `Revoke ${token.name}?`,
    danger: true,
    action: dead ? `Revoke ${counted(ends, "token")}` : `Revoke ${token.name}`,
    content: html`
      <p>${dead ? html`All tokens created with it stop` : html`<strong>${token.name}</strong> stops`} working
        immediately, everywhere. This cannot be undone.</p>
      <dl class="facts">
        <dt>Last used</dt><dd>${
          token.lastUsedAt === null
            ? "never"
            : html`${time(token.lastUsedAt)}, as ${actor(token.actorUrn, token.actorName)}${
                token.lastNetwork ? html`, from <code>${token.lastNetwork}</code>` : null
              }`
        }</dd>
        <dt>Uses</dt><dd>${counted(token.useCount, "time")}</dd>
        ${
          counts
            ? html`<dt>Also revoked</dt><dd>${
                withIt
                  ? html`<strong>${counted(withIt, dead ? "token" : "other token")}</strong>: derived from it,
          or its rotation partner`
                  : "no other token"
              }</dd>`
            : html`<dt>Also revoked</dt><dd>tokens derived from it; they could not be counted</dd>`
        }
      </dl>
      ${
        createdWithIt && !dead
          ? html`<label class="choice"><input type="checkbox" name="cascade"><span>Also revoke the
        ${counted(createdWithIt, "token")} created with it<small>Anyone who had this token may have created
          them.</small></span></label>`
          : null
      }
      ${signedIn ? warning(html`<p>You are signed in with this token: you will be signed out.</p>`) : null}`,
    act: async (form) => {
      cascade = dead || form.get("cascade") !== null;
      await graphql(REVOKE, { id: token.id, cascade });
    },
  });
  if (!done) return;
  const all = cascade ? (counts?.all.count ?? 1) : ends;
  if (signedIn) {
    await go("/console/tokens", { replace: true });
    return;
  }
  await go(close, { sure: true });
  const told = changed(html`Revoked <strong>${token.name}</strong>${
    all > 1 ? html` and ${counted(all - 1, "token")} with it` : null
  } at
    ${exact(Date.now())}. The server rejects it from now on.`);
  // Move the focus to the notice before the list reloads: the focused button is gone.
  /** @type {HTMLElement | null} */ (context.root.querySelector(".notice"))?.focus();
  await told;
}

/**
 * Edit the name and description. `saved` is called when they are.
 * @param {Token} token @param {() => Promise<void>} saved
 */
export async function edit(token, saved) {
  const done = await ask({
    title: `Edit ${token.name}`,
    draft: `token ${token.id}`,
    action: "Save",
    content: html`<p>Limits and expiry cannot be changed: rotate the token, or create one like it.</p>
      ${field({
        id: "edit-name",
        label: "Name",
        control: html`<input id="edit-name" name="name" required maxlength="200"
        autocomplete="off" .value=${token.name}>`,
      })}
      ${field({
        id: "edit-description",
        label: "Description",
        optional: true,
        control: html`<textarea id="edit-description"
        name="description" maxlength="1000" rows="3" .value=${token.description ?? ""}></textarea>`,
      })}`,
    act: async (form) => {
      const [name, description] = ["name", "description"].map((word) => String(form.get(word) ?? "").trim());
      await graphql(EDIT, { id: token.id, input: { name, description } });
    },
  });
  if (done) await saved();
}

/** @param {Context} context @param {Token} token */
export async function rotate(context, token) {
  const left = token.expiresAt === null ? Infinity : token.expiresAt - Date.now();
  const overlaps = OVERLAPS.filter(([, length]) => length < left);
  // The server rejects an overlap that ends after the old token, so this one ends minutes before. A second try sends
  // the same one, so that it gets the token of the first.
  const minutesLeft = Math.floor(left / MINUTE) - SPARE_MINUTES;
  // Without an overlap the server takes a day, or less if the old token expires before.
  const untilOldExpires = left > DAY ? `PT${minutesLeft}M` : null;
  /** @type {any} */
  let made = null;
  const key = newKey();
  let overlap = overlaps.some(([word]) => word === "P1D") ? "P1D" : "";
  let grace = "PT5M";
  const steps = document.createElement("ol");
  steps.className = "steps";
  const draw = () => {
    const wait = OVERLAPS.find(([word]) => word === overlap)?.[1] ?? (left > DAY ? minutesLeft * MINUTE : left);
    const rest = GRACES.find(([word]) => word === grace)?.[1] ?? 0;
    const until = Date.now() + wait;
    render(
      steps,
      html`<li><strong>Now</strong> the new token is shown. Both tokens work.</li>
      <li><strong>Until <span title="${utc(until)}">${exact(until)}</span></strong> the new token must be used once,
        which starts the handover. If it is not, it expires, and the old token stays valid.</li>
      <li><strong>${rest ? `${span(rest)} after its first use` : "At its first use"}</strong> the old token
        expires.</li>`,
    );
  };
  draw();
  const done = await ask({
    title: `Rotate ${token.name}?`,
    action: `Rotate ${token.name}`,
    content: html`<p>A new token with the same name, actor and limits replaces it without interruption.</p>
      ${
        token.replacedBy
          ? warning(html`<p>It has a successor that was never used. The new token replaces that successor.</p>`)
          : null
      }
      <div class="row">
        <label class="field" for="overlap">Time until the first use
          <select id="overlap" name="overlap" @change=${(/** @type {Event} */ event) => {
            overlap = /** @type {HTMLSelectElement} */ (event.currentTarget).value;
            draw();
          }}>${
            overlaps.length
              ? overlaps.map(
                  ([word, length]) =>
                    html`<option value="${word}" ?selected=${word === overlap}>${span(length)}</option>`,
                )
              : null
          }
          ${
            left < LONGEST_OVERLAP
              ? html`<option value="" ?selected=${!overlap}>until the old token expires</option>`
              : null
          }</select></label>
        <label class="field" for="grace">Grace period of the old token
          <select id="grace" name="grace" @change=${(/** @type {Event} */ event) => {
            grace = /** @type {HTMLSelectElement} */ (event.currentTarget).value;
            draw();
          }}>${GRACES.map(
            ([word, length]) => html`<option value="${word}" ?selected=${word === grace}>${span(length)}</option>`,
          )}</select></label>
      </div>${steps}`,
    act: async () => {
      const asked = { id: token.id, overlap: overlap || untilOldExpires, grace };
      const answer = await creating(context.root, token.name, () =>
        graphql(ROTATE, asked, { key: key + (asked.overlap ?? "") + grace }),
      );
      made = answer.rotateAccessToken;
    },
  });
  if (!done || !made) return;
  showSecret(context.root, made, {
    heading: `The new ${token.name}`,
    grace: GRACES.find(([word]) => word === grace)?.[1] ?? 0,
  });
  context.title(`The new ${token.name}`);
}
