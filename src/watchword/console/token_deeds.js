/**
 * What is done to a token: each deed says before what it will do, to whom, and until when.
 */

import { html, render } from "./html.js";
import { graphql, newKey } from "./api.js";
import { DAY, HOUR, MINUTE, counted, exact, span, time, utc } from "./format.js";
import { ask, warning } from "./parts.js";
import { go } from "./router.js";
import { making, showSecret } from "./secret.js";
import { WHOLE } from "./tokens.js";

/** @typedef {import("./tokens.js").Token} Token */
/** @typedef {import("./router.js").Context} Context */

const PROSPECT = `mutation Prospect($one: RevokeAccessTokensInput!, $all: RevokeAccessTokensInput!) {
  one: revokeAccessTokens(input: $one) { count } all: revokeAccessTokens(input: $all) { count } }`;
const REVOKE = "mutation Revoke($id: String!, $cascade: Boolean) { revokeAccessToken(tokenId: $id, cascade: $cascade) }";
const ROTATE = `mutation Rotate($id: String!, $overlap: String, $grace: String) {
  rotateAccessToken(tokenId: $id, overlap: $overlap, grace: $grace) { accessToken metadata { ${WHOLE} } } }`;

/** @type {[string, number][]} */
const OVERLAPS = [["PT1H", HOUR], ["P1D", DAY], ["P7D", 7 * DAY], ["P30D", 30 * DAY]];
/** @type {[string, number][]} */
const GRACES = [["PT0S", 0], ["PT5M", 5 * MINUTE], ["PT1H", HOUR], ["P1D", DAY], ["P7D", 7 * DAY]];

/** @param {Context} context @param {Token} token @param {{close: string, changed: (what: unknown) => Promise<void>}} place where it is shown */
export async function revoke(context, token, { close, changed }) {
  const dead = token.status !== "ACTIVE";
  // How many end is the server's own count, by the dry run of the very same deed.
  const of = (/** @type {boolean} */ cascade) => ({ ids: [token.id], cascade, dryRun: true });
  /** @type {{one: {count: number}, all: {count: number}} | null} */
  let counts = null;
  try {
    counts = await graphql(PROSPECT, { one: of(dead), all: of(true) });
  } catch {
    // The question is asked without the numbers rather than not at all: whoever revokes is in a hurry.
  }
  // Whoever has left meanwhile is asked nothing.
  if (context.signal.aborted) return;
  const ends = counts ? counts.one.count : 1;
  // It may have ended since it was shown; then nothing else ends with it either.
  const withIt = dead ? ends : Math.max(0, ends - 1);
  const minted = counts ? counts.all.count - counts.one.count : 0;
  let cascade = dead;
  const signedIn = token.id === context.me.tokenId;
  const done = await ask({
    title: dead ? `Revoke what was made with ${token.name}?` : `Revoke ${token.name}?`,
    danger: true,
    deed: dead ? `Revoke ${counted(ends, "token")}` : `Revoke ${token.name}`,
    content: html`
      <p>${dead ? html`What was made with it` : html`<strong>${token.name}</strong>`} stops working at once, everywhere. This cannot be undone.</p>
      <dl class="facts">
        <dt>Last used</dt><dd>${token.lastUsedAt === null ? "never" : html`${time(token.lastUsedAt)}, as ${token.actorUrn}${token.lastNetwork
          ? html`, from <code>${token.lastNetwork}</code>` : null}`}</dd>
        <dt>Uses</dt><dd>${counted(token.useCount, "time")}</dd>
        ${counts ? html`<dt>With it</dt><dd>${withIt ? html`<strong>${counted(withIt, dead ? "token" : "other token")}</strong> ${withIt === 1 ? "dies" : "die"}
          too: derived from it, or the other half of its rotation` : "no other token dies"}</dd>`
          : html`<dt>With it</dt><dd>tokens derived from it die too; how many could not be counted</dd>`}
      </dl>
      ${minted && !dead ? html`<label class="choice"><input type="checkbox" name="cascade"><span>Also end the
        ${counted(minted, "token")} made with it<small>Whoever held it may have made them.</small></span></label>` : null}
      ${signedIn ? warning(html`<p>You are signed in with this token: this session ends with it.</p>`) : null}`,
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
  const told = changed(html`Revoked <strong>${token.name}</strong>${all > 1 ? html` and ${counted(all - 1, "token")} with it` : null} at
    ${exact(Date.now())}. It is refused from now on.`);
  // What had the focus is gone: go on from the line that says so, at once; when the rest has come, the reader may be elsewhere.
  /** @type {HTMLElement | null} */ (context.root.querySelector(".notice"))?.focus();
  await told;
}

/** @param {Context} context @param {Token} token */
export async function rotate(context, token) {
  const left = token.expiresAt === null ? Infinity : token.expiresAt - Date.now();
  const overlaps = OVERLAPS.filter(([, length]) => length < left);
  /** @type {any} */
  let made = null;
  const key = newKey();
  let overlap = overlaps.some(([word]) => word === "P1D") ? "P1D" : "";
  let grace = "PT5M";
  const steps = document.createElement("ol");
  steps.className = "steps";
  const draw = () => {
    const wait = OVERLAPS.find(([word]) => word === overlap)?.[1] ?? left;
    const rest = GRACES.find(([word]) => word === grace)?.[1] ?? 0;
    const until = Date.now() + wait;
    render(steps, html`<li><strong>Now</strong> the new secret is shown. Both work.</li>
      <li><strong>Until <span title="${utc(until)}">${exact(until)}</span></strong> the new one waits for its first use. If nobody
        uses it by then, it dies, and the old one goes on.</li>
      <li><strong>${rest ? `${span(rest)} after its first use` : "At its first use"}</strong> the old one ends.</li>`);
  };
  draw();
  const done = await ask({
    title: `Rotate ${token.name}?`,
    deed: `Rotate ${token.name}`,
    content: html`<p>It is replaced by a successor with the same name, actor and limits, without a gap.</p>
      ${token.replacedBy ? warning(html`<p>It has a successor that was never used, which this one replaces.</p>`) : null}
      <div class="row">
        <label class="field" for="overlap">Wait for the first use
          <select id="overlap" name="overlap" @change=${(/** @type {Event} */ event) => {
            overlap = /** @type {HTMLSelectElement} */ (event.currentTarget).value;
            draw();
          }}>${overlaps.length ? overlaps.map(([word, length]) => html`<option value="${word}" ?selected=${word === overlap}>${span(length)}</option>`) : null}
          ${overlap ? null : html`<option value="" selected>until the old one ends</option>`}</select></label>
        <label class="field" for="grace">Then keep the old one for
          <select id="grace" name="grace" @change=${(/** @type {Event} */ event) => {
            grace = /** @type {HTMLSelectElement} */ (event.currentTarget).value;
            draw();
          }}>${GRACES.map(([word, length]) => html`<option value="${word}" ?selected=${word === grace}>${span(length)}</option>`)}</select></label>
      </div>${steps}`,
    act: async () => {
      const asked = { id: token.id, overlap: overlap || null, grace };
      const answer = await making(context.root, token.name, () => graphql(ROTATE, asked, { key: key + overlap + grace }));
      made = answer.rotateAccessToken;
    },
  });
  if (!done || !made) return;
  showSecret(context.root, made, {
    heading: `The new ${token.name}`,
    more: html`<p>Use it before ${exact(made.metadata.expiresAt ?? 0)}: until then the old one goes on, and the new one dies if nobody
      uses it. Its first use starts the old one’s last ${GRACES.find(([word]) => word === grace)?.[1]
        ? span(GRACES.find(([word]) => word === grace)?.[1] ?? 0) : "moment"}.</p>`,
  });
  context.title(`The new ${token.name}`);
}
