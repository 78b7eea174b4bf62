/**
 * The form for a new token: for the caller, for another actor if allowed, or derived from the session's token
 * (`?derive=1`).
 */

import { html, render } from "../html.js";
import { ApiError, graphql, newKey } from "../api.js";
import { ACCOUNT, DAY, HOUR, MINUTE, exact, utc } from "../format.js";
import { errorLine, field, warning } from "../components.js";
import { creating, showSecret } from "../created_token.js";
import { WHOLE } from "../token_display.js";
import { showWhyNot } from "./tokens.js";

/** @typedef {import("../token_display.js").Privilege} Privilege */
/** @typedef {import("../token_display.js").Token} Token */

const KNOWN = `query Known($me: GetGrantedPrivilegesInput!) { allowedDurations listPrivileges { name displayName allows includes }
  getGrantedPrivileges(input: $me) { privileges } }`;
const MAKER = `query Maker($id: String!) { getAccessToken(id: $id) { ${WHOLE} } }`;
const CREATE = `mutation Create($input: GetAccessTokenInput!) {
  createAccessToken(input: $input) { accessToken metadata { ${WHOLE} } } }`;
const DERIVE = `mutation Derive($input: DeriveAccessTokenInput!) {
  deriveAccessToken(input: $input) { accessToken metadata { ${WHOLE} } } }`;

/** @type {[string, string, number | null][]} */
const DURATIONS = [
  ["ONE_HOUR", "1 hour", HOUR],
  ["ONE_DAY", "1 day", DAY],
  ["ONE_WEEK", "7 days", 7 * DAY],
  ["ONE_MONTH", "30 days", 30 * DAY],
  ["THREE_MONTHS", "90 days", 90 * DAY],
  ["SIX_MONTHS", "180 days", 180 * DAY],
  ["ONE_YEAR", "365 days", 365 * DAY],
  ["NO_EXPIRY", "No expiry", null],
];
/** @type {Record<string, [string, string, number]>} */
const UNITS = { M: ["PT", "minutes", MINUTE], H: ["PT", "hours", HOUR], D: ["P", "days", DAY], W: ["P", "weeks", 7 * DAY] };

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me, query, signal } = context;
  const derives = query.has("derive") && me.tokenId !== null;
  const account = ACCOUNT.test(query.get("for") ?? "");
  context.title("New token");
  if (!me.privileges.generatePersonalAccessTokens && !(account && me.privileges.manageServiceAccounts)) {
    await showWhyNot(context);
    return;
  }
  const found = await graphql(KNOWN, { me: { actorUrn: me.urn } }, { signal });
  /** @type {Token | null} */
  const maker = me.tokenId ? await graphql(MAKER, { id: me.tokenId }, { signal }).then((answer) => answer.getAccessToken, () => null) : null;
  if (signal.aborted) return;
  const offered = query.get("for") && query.get("for") !== me.urn ? found.listPrivileges
    : found.listPrivileges.filter((/** @type {Privilege} */ one) => found.getGrantedPrivileges.privileges.includes(one.name));
  const title = derives ? `Derive from ${maker?.name ?? "this session’s token"}` : "New token";
  context.title(title);
  const mayChoose = !derives && (me.privileges.manageTokens || (account && me.privileges.manageServiceAccounts));

  render(root, html`<form class="narrow new-token" novalidate @submit=${submit} @input=${showEnd}>
    <div class="page-head"><h1>${title}</h1></div>
    ${derives ? html`<p class="lead">It can do no more than its parent. It is revoked and expires with it.</p>` : bounded(maker)}
    ${field({ id: "name", label: "Name", hint: "What the token is for.", control: html`<input id="name" name="name"
      required maxlength="200" autocomplete="off" aria-describedby="name-hint">` })}
    ${field({ id: "description", label: "Description", optional: true, control: html`<textarea id="description" name="description"
      maxlength="1000" rows="2"></textarea>` })}
    ${mayChoose ? field({ id: "actorUrn", label: "Acts as", hint: "The token acts as this actor.", control: html`<input id="actorUrn"
      name="actorUrn" class="mono" spellcheck="false" autocomplete="off" .value=${query.get("for") ?? me.urn} aria-describedby="actorUrn-hint">` }) : null}
    ${lifetime(derives, found.allowedDurations)}
    ${scopes(offered, derives)}
    ${networks(derives)}
    ${audience(derives)}
    <div class="form-error"></div>
    <p class="actions"><button type="submit" class="primary">${derives ? "Derive token" : "Create token"}</button>
      <a class="button" href="/console/tokens">Cancel</a></p>
  </form>`);
  const form = /** @type {HTMLFormElement} */ (root.querySelector("form"));
  /** @param {string} name */
  const value = (name) => String(new FormData(form).get(name) ?? "").trim();
  showEnd();
  /** @type {HTMLElement} */ (form.querySelector("#name")).focus();

  function showEnd() {
    const place = /** @type {HTMLElement} */ (form.querySelector(".exact-end"));
    const own = value("duration") === "own";
    /** @type {HTMLElement} */ (form.querySelector(".own-length")).hidden = !own;
    const [, , unit] = UNITS[value("unit")] ?? UNITS.D;
    const length = own ? Number(value("length")) * unit : DURATIONS.find(([word]) => word === value("duration"))?.[2];
    let end = length === undefined || Number.isNaN(length) ? null : length === null ? Infinity : Date.now() + length;
    if (value("duration") === "parent") end = maker?.expiresAt ?? Infinity;
    const text = end === null || Math.abs(end) > 8e15 && end !== Infinity ? "Enter a length."
      : end === Infinity ? "It never expires. Revoke it when it is no longer needed."
        : `Expires ${exact(end)} · ${utc(end)}, if created now.`;
    if (place.textContent !== text) place.textContent = text;
    for (const name of ["scopes", "networks", "audience"]) {
      const box = form.querySelector(`[data-of="${name}"]`);
      if (box instanceof HTMLElement) box.hidden = value(name) !== "some";
    }
  }

  let key = newKey();
  let before = "";
  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    const button = /** @type {HTMLButtonElement} */ (form.querySelector("button[type=submit]"));
    if (button.disabled) return;
    form.querySelectorAll(".field-error, .form-error").forEach((place) => render(place, null));
    form.querySelectorAll("[aria-invalid]").forEach((node) => node.removeAttribute("aria-invalid"));
    const input = read(new FormData(form), derives, me.urn);
    if (value("scopes") === "some" && !(/** @type {string[]} */ (input.scopes).length)) {
      showProblem(form, new ApiError("Select at least one scope, or “None”.", { details: { field: "scopes" } }));
      return;
    }
    const text = JSON.stringify(input);
    // Sending the same input again, after a lost answer, returns the same token.
    if (text !== before) key = newKey();
    before = text;
    button.disabled = true;
    try {
      const answer = await creating(root, value("name"), () => graphql(derives ? DERIVE : CREATE, { input }, { key }));
      const made = answer.createAccessToken ?? answer.deriveAccessToken;
      if (root.isConnected) context.title(`Created ${made.metadata.name}`);
      showSecret(root, made, { heading: `Created ${made.metadata.name}` });
    } catch (error) {
      button.disabled = false;
      showProblem(form, error);
    }
  }
}

/** @param {HTMLFormElement} form @param {unknown} error beside the field that the server names */
function showProblem(form, error) {
  const named = !(error instanceof ApiError) ? "" : error.reason === "missing_scope" ? "scopes" : (error.field ?? "").split(/[.[]/)[0];
  const name = named === "durationIso" ? "duration" : named === "type" ? "actorUrn" : named;
  const box = name ? form.querySelector(`[data-field="${CSS.escape(name)}"]`) : null;
  const place = box?.querySelector(".field-error") ?? form.querySelector(".form-error");
  if (place) render(place, errorLine(error));
  // Prefer the text field over the radio button above it.
  const control = ["textarea:not([hidden] *)", "input:not([type=radio], [type=checkbox], [hidden] *)", "select", "input:checked", "input"]
    .map((which) => box?.querySelector(which)).find(Boolean);
  if (control instanceof HTMLElement) {
    control.setAttribute("aria-invalid", "true");
    control.focus();
  }
}

/** The form as input of the API. @param {FormData} data @param {boolean} derives @param {string} urn */
function read(data, derives, urn) {
  /** @param {string} name */
  const text = (name) => String(data.get(name) ?? "").trim();
  /** @param {string} name */
  const words = (name) => text(name).split(/[\s,]+/).filter(Boolean);
  /** @type {Record<string, unknown>} */
  const input = { name: text("name"), description: text("description") || null };
  const duration = text("duration");
  if (duration === "own") input.durationIso = `${UNITS[text("unit")]?.[0] ?? "P"}${text("length") || 0}${text("unit")}`;
  else if (duration !== "parent") input.duration = duration;
  if (text("scopes") === "some") input.scopes = [...data.getAll("privilege").map(String), ...words("others")];
  if (text("scopes") === "none") input.scopes = [];
  if (text("networks") === "some") input.allowedNetworks = words("allowedNetworks");
  if (text("audience") === "some") input.audience = words("audiences");
  if (derives) return input;
  const actorUrn = text("actorUrn") || urn;
  return { ...input, actorUrn, type: ACCOUNT.test(actorUrn) ? "SERVICE_ACCOUNT" : "PERSONAL" };
}

/** A token created with a limited token inherits its limits. @param {Token | null} maker */
function bounded(maker) {
  if (!maker || !(maker.scopes || maker.audience || maker.allowedNetworks || maker.parentId)) return null;
  return warning(html`<p>You are signed in with <strong>${maker.name}</strong>, which is ${maker.parentId ? "derived" : "limited"}: the
    new token inherits its limits and expires no later.</p>`);
}

/** The default: the longest of these that is allowed. @param {string[]} allowed */
const usual = (allowed) => ["ONE_MONTH", "ONE_WEEK", "ONE_DAY", "ONE_HOUR"].find((word) => allowed.includes(word)) ?? allowed[0];

/** @param {boolean} derives @param {string[]} allowed */
const lifetime = (derives, allowed) => html`<div class="field" data-field="duration">
  <label for="duration">Lifetime</label>
  <div class="row"><select id="duration" name="duration" aria-describedby="duration-end">
    ${derives ? html`<option value="parent" selected>Same as its parent</option>` : null}
    ${DURATIONS.filter(([word]) => allowed.includes(word) && !(derives && word === "NO_EXPIRY")).map(([word, words]) => html`<option value="${word}"
      ?selected=${!derives && word === usual(allowed)}>${words}</option>`)}
    <option value="own">Custom…</option></select>
    <span class="own-length row" hidden><input id="length" name="length" type="number" min="1" value="3" aria-label="Length" class="short">
      <select name="unit" aria-label="Unit">${Object.entries(UNITS).map(([letter, [, words]]) => html`<option value="${letter}"
        ?selected=${letter === "D"}>${words}</option>`)}</select></span></div>
  <p class="hint exact-end" id="duration-end" aria-live="polite"></p><div class="field-error"></div></div>`;

/** @param {string} name @param {string} value @param {string} label @param {unknown} more @param {boolean} [checked] */
const choice = (name, value, label, more, checked = false) => html`<label class="choice"><input type="radio" name="${name}" value="${value}"
  ?checked=${checked}><span>${label}${more ? html`<small>${more}</small>` : null}</span></label>`;

/** @param {Privilege[]} offered @param {boolean} derives */
const scopes = (offered, derives) => html`<fieldset data-field="scopes"><legend>Scopes</legend>
  ${choice("scopes", "all", derives ? "Everything its parent may do" : "Everything its actor may do", "Changes when policies change.", true)}
  ${choice("scopes", "some", "Only selected scopes", "Never more than its actor may do.")}
  <div class="inner" data-of="scopes" hidden>
    ${offered.map((one) => html`<label class="choice"><input type="checkbox" name="privilege" value="${one.name}"><span>${one.displayName}
      <small>${one.allows}</small></span></label>`)}
    <label class="field" for="others">Scopes of other services
      <input id="others" name="others" class="mono" autocomplete="off" spellcheck="false" placeholder="orders:read orders:write"
        aria-describedby="others-hint"></label>
    <p class="hint" id="others-hint">Separated by spaces. A policy must grant each of them to the actor of the token.</p>
  </div>
  ${choice("scopes", "none", "None", "The token only identifies its actor.")}
  <div class="field-error"></div></fieldset>`;

/** @param {boolean} derives */
const networks = (derives) => html`<fieldset data-field="allowedNetworks"><legend>Networks</legend>
  ${choice("networks", "all", derives ? "The networks of its parent" : "Any network", "", true)}
  ${choice("networks", "some", "Only from these networks", "Requests from other addresses are rejected.")}
  <div class="inner" data-of="networks" hidden><textarea name="allowedNetworks" rows="2" class="mono" spellcheck="false"
    aria-label="Networks" aria-describedby="networks-hint" placeholder="10.0.0.0/8"></textarea>
    <p class="hint" id="networks-hint">One per line, such as 10.0.0.0/8, 192.0.2.7/32 for one address, or 2001:db8::/32.</p></div>
  <div class="field-error"></div></fieldset>`;

/** @param {boolean} derives */
const audience = (derives) => html`<fieldset data-field="audience"><legend>Audience</legend>
  ${choice("audience", "all", derives ? "The audience of its parent" : "Watchword, and services that verify tokens with it", "", true)}
  ${choice("audience", "some", "Only for these services", "Other services reject it. So does Watchword, unless its issuer is listed.")}
  <div class="inner" data-of="audience" hidden><textarea name="audiences" rows="2" class="mono" spellcheck="false" aria-label="Services"
    aria-describedby="audience-hint" placeholder="https://api.example"></textarea>
    <p class="hint" id="audience-hint">One per line: the name that the service checks.</p></div>
  <div class="field-error"></div></fieldset>`;
