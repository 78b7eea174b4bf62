/**
 * The form for a new token: for the caller, for another actor if allowed (`?for=`), with the limits of another token
 * (`?like=`), or derived from the session's token (`?derive=1`).
 */

import { html, render } from "../html.js";
import { ApiError, graphql, newKey } from "../api.js";
import { ACCOUNT, DAY, HOUR, MINUTE, counted, exact, pathToId, utc } from "../format.js";
import { field, say, showErrorAt, warning } from "../components.js";
import { creating, showSecret } from "../created_token.js";
import { WHOLE } from "../token_display.js";
import { keepDraft } from "../drafts.js";
import { actorPicker } from "../actor_picker.js";
import { actorName, wordsIn } from "./actor_names.js";
import { showWhyNot } from "./missing_privilege.js";

/** @typedef {import("../token_display.js").Privilege} Privilege */
/** @typedef {import("../token_display.js").Token} Token */

const KNOWN = `query Known($me: GetGrantedPrivilegesInput!) { allowedDurations listPrivileges {
  name displayName allows includes }
  getGrantedPrivileges(input: $me) { privileges } }`;
const ONE = `query One($id: String!) { getAccessToken(id: $id) { ${WHOLE} } }`;
const CREATE = `mutation Create($input: GetAccessTokenInput!) {
  createAccessToken(input: $input) { accessToken metadata { ${WHOLE} } } }`;
const DERIVE = `mutation Derive($input: DeriveAccessTokenInput!) {
  deriveAccessToken(input: $input) { accessToken metadata { ${WHOLE} } } }`;

const listing = new Intl.ListFormat("en");
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
/** A chosen limit must name something: the choice, its field in the API, and what to say otherwise. */
const REQUIRED = [
  ["scopes", "scopes", "Select at least one scope, “None” or “Everything”."],
  ["networks", "allowedNetworks", "Enter at least one network, or choose any network."],
  ["audience", "audience", "Enter at least one service, or choose all."],
];
/** @type {Record<string, [string, string, number]>} */
const UNITS = {
  M: ["PT", "minutes", MINUTE],
  H: ["PT", "hours", HOUR],
  D: ["P", "days", DAY],
  W: ["P", "weeks", 7 * DAY],
};

/** @typedef {Record<string, string | string[]>} Filled what to fill into the form, by the names of its controls */
/** @type {{name: string, about: string, lifetime: string, filled: Filled, needs?: string}[]} */
const TEMPLATES = [
  {
    name: "CI job",
    about: "Up to 30 days, only the scopes you choose, only from the network of the runners.",
    lifetime: "ONE_MONTH",
    filled: { name: "ci", scopes: "some", networks: "some" },
  },
  {
    name: "A person’s laptop",
    about: "Up to 7 days, everything the person may do, from anywhere.",
    lifetime: "ONE_WEEK",
    filled: { name: "laptop", scopes: "all", networks: "all" },
  },
  {
    name: "Gateway",
    about: "Up to 90 days, may only introspect tokens, only from the network of the gateway.",
    lifetime: "THREE_MONTHS",
    filled: { name: "gateway", scopes: "some", privilege: ["INTROSPECT_TOKENS"], networks: "some" },
    needs: "INTROSPECT_TOKENS",
  },
];

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me, query, signal } = context;
  const derives = query.has("derive") && me.tokenId !== null;
  context.title("New token");
  /** @type {Token | null} a token like which one is wanted */
  const like = query.get("like")
    ? (await graphql(ONE, { id: pathToId(query.get("like") ?? "") }, { signal })).getAccessToken
    : null;
  const { generatePersonalAccessTokens, manageServiceAccounts, manageTokens } = me.privileges;
  const target =
    [like?.actorUrn, query.get("for")].find(
      (urn) => urn && (manageTokens || (manageServiceAccounts && ACCOUNT.test(urn))),
    ) ?? me.urn;
  if (!generatePersonalAccessTokens && target === me.urn) {
    await showWhyNot(context);
    return;
  }
  const [found, /** @type {Token | null} */ maker] = await Promise.all([
    graphql(KNOWN, { me: { actorUrn: me.urn } }, { signal }),
    me.tokenId
      ? graphql(ONE, { id: me.tokenId }, { signal }).then(
          (answer) => answer.getAccessToken,
          () => null,
        )
      : null,
  ]);
  if (signal.aborted) return;
  /** @type {Privilege[]} */
  const offered =
    target !== me.urn
      ? found.listPrivileges
      : found.listPrivileges.filter(
          (/** @type {Privilege} */ one) =>
            found.getGrantedPrivileges.privileges.includes(one.name) || like?.scopes?.includes(one.name),
        );
  /** @type {string[]} */
  const allowed = found.allowedDurations;
  const title = derives
    ? `Derive from ${maker?.name ?? "this session’s token"}`
    : like
      ? `New token like ${like.name}`
      : "New token";
  context.title(title);
  const mayChoose = !derives && (manageTokens || target !== me.urn);
  const picker = mayChoose
    ? actorPicker(me, {
        id: "actorUrn",
        required: true,
        chosen: [target === me.urn ? me : { urn: target }],
        describedby: "actorUrn-hint",
      })
    : null;

  render(
    root,
    html`<form class="narrow new-token" novalidate @submit=${submit} @input=${showChosen}>
    <div class="page-head"><h1>${title}</h1></div>
    ${
      derives
        ? html`<p class="lead">It can do no more than its parent. It is revoked and expires with it.</p>`
        : bounded(maker)
    }
    ${derives || like ? null : templates(offered, useTemplate)}
    ${field({
      id: "name",
      label: "Name",
      hint: "What the token is for.",
      control: html`<input id="name" name="name"
      required maxlength="200" autocomplete="off" aria-describedby="name-hint">`,
    })}
    ${field({
      id: "description",
      label: "Description",
      optional: true,
      control: html`<textarea id="description" name="description"
      maxlength="1000" rows="2"></textarea>`,
    })}
    ${
      picker
        ? field({ id: "actorUrn", label: "Acts as", hint: "Type a part of a name and choose.", control: picker.node })
        : null
    }
    ${lifetime(derives, allowed)}
    ${scopes(offered, derives)}
    ${networks(derives)}
    ${audience(derives)}
    <p class="summary" id="summary"></p>
    <div class="form-error"></div>
    <p class="actions"><button type="submit" class="primary" aria-describedby="summary">${
      derives ? "Derive token" : "Create token"
    }</button>
      <a class="button" href="/console/tokens">Cancel</a></p>
  </form>`,
  );
  const form = /** @type {HTMLFormElement} */ (root.querySelector("form"));
  /** @param {string} name */
  const value = (name) => String(new FormData(form).get(name) ?? "").trim();
  const actorUrn = () => picker?.urns()[0] ?? target;
  const actsAs = () =>
    picker?.pending()
      ? `“${picker.pending()}”, who is not chosen yet`
      : actorUrn() === me.urn
        ? null
        : (picker?.name() ?? actorName(actorUrn()));
  if (like) fill(form, filledLike(like, allowed));
  showChosen();
  const saved = keepDraft(form, `new token ${query}`);
  /** @type {HTMLElement} */ (form.querySelector("#name")).focus();

  /** @param {typeof TEMPLATES[number]} template */
  function useTemplate({ name, lifetime: longest, filled }) {
    const typed = value("name");
    const named = typed && !TEMPLATES.some((one) => one.filled.name === typed) ? typed : filled.name;
    fill(form, { privilege: [], others: "", ...filled, name: named, duration: atMost(longest, allowed) });
    say(`Filled in for ${name}.`);
  }

  function showChosen() {
    const place = /** @type {HTMLElement} */ (form.querySelector(".exact-end"));
    const own = value("duration") === "own";
    /** @type {HTMLElement} */ (form.querySelector(".own-length")).hidden = !own;
    const [, , unit] = UNITS[value("unit")] ?? UNITS.D;
    const length = own ? Number(value("length")) * unit : DURATIONS.find(([word]) => word === value("duration"))?.[2];
    let end = length === undefined || Number.isNaN(length) ? null : length === null ? Infinity : Date.now() + length;
    if (value("duration") === "parent") end = maker?.expiresAt ?? Infinity;
    const text =
      end === null || (Math.abs(end) > 8e15 && end !== Infinity)
        ? "Enter a length."
        : end === Infinity
          ? "It never expires. Revoke it when it is no longer needed."
          : `Expires ${exact(end)} · ${utc(end)}, if created now.`;
    if (place.textContent !== text) place.textContent = text;
    for (const box of form.querySelectorAll("[data-if]")) {
      const [name, wanted] = (box.getAttribute("data-if") ?? "").split("=");
      /** @type {HTMLElement} */ (box).hidden = value(name) !== wanted;
    }
    const summary = /** @type {HTMLElement} */ (form.querySelector("#summary"));
    summary.textContent = inWords(new FormData(form), offered, derives, derives ? null : actsAs());
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
    try {
      picker?.check("actorUrn");
    } catch (error) {
      showProblem(form, error);
      return;
    }
    const input = read(new FormData(form), derives, actorUrn());
    const missing = REQUIRED.find(
      ([choice, name]) => value(choice) === "some" && !(/** @type {string[]} */ (input[name]).length),
    );
    if (missing) {
      showProblem(form, new ApiError(missing[2], { details: { field: missing[1] } }), "[name=privilege]");
      return;
    }
    const text = JSON.stringify(input);
    // Sending the same input again, after a lost answer, returns the same token.
    if (text !== before) key = newKey();
    before = text;
    button.disabled = true;
    try {
      const answer = await creating(root, value("name"), () => graphql(derives ? DERIVE : CREATE, { input }, { key }));
      saved();
      const made = answer.createAccessToken ?? answer.deriveAccessToken;
      if (root.isConnected) context.title(`Created ${made.metadata.name}`);
      showSecret(root, made, { heading: `Created ${made.metadata.name}` });
    } catch (error) {
      button.disabled = false;
      showProblem(form, error);
    }
  }
}

/**
 * @param {HTMLFormElement} form
 * @param {unknown} error beside the field that the server names @param {string} [first] the control to focus
 */
function showProblem(form, error, first = "textarea:not([hidden], [hidden] *)") {
  const named = !(error instanceof ApiError)
    ? ""
    : error.reason === "missing_scope"
      ? "scopes"
      : (error.field ?? "").split(/[.[]/)[0];
  const name = named === "durationIso" ? "duration" : named === "type" ? "actorUrn" : named;
  const box = name ? form.querySelector(`[data-field="${CSS.escape(name)}"]`) : null;
  const place = box?.querySelector(".field-error") ?? form.querySelector(".form-error");
  showErrorAt(place, error);
  // Prefer the text field over the radio button above it.
  const control = [
    first,
    "textarea:not([hidden], [hidden] *)",
    "input:not([type=radio], [type=checkbox], [hidden] *)",
    "select",
    "input:checked",
    "input",
  ]
    .map((which) => box?.querySelector(which))
    .find(Boolean);
  if (control instanceof HTMLElement) {
    control.setAttribute("aria-invalid", "true");
    control.focus();
  }
}

/** The form as input of the API. @param {FormData} data @param {boolean} derives @param {string} actorUrn */
function read(data, derives, actorUrn) {
  /** @param {string} name */
  const text = (name) => String(data.get(name) ?? "").trim();
  /** @type {Record<string, unknown>} */
  const input = { name: text("name"), description: text("description") || null };
  const duration = text("duration");
  if (duration === "own") input.durationIso = `${UNITS[text("unit")]?.[0] ?? "P"}${text("length") || 0}${text("unit")}`;
  else if (duration !== "parent") input.duration = duration;
  if (text("scopes") === "some") input.scopes = [...data.getAll("privilege").map(String), ...wordsIn(text("others"))];
  if (text("scopes") === "none") input.scopes = [];
  if (text("networks") === "some") input.allowedNetworks = wordsIn(text("allowedNetworks"));
  if (text("audience") === "some") input.audience = wordsIn(text("audiences"));
  return derives ? input : { ...input, actorUrn, type: ACCOUNT.test(actorUrn) ? "SERVICE_ACCOUNT" : "PERSONAL" };
}

/**
 * The token in words, such as “reports, for 30 days, may only List index sizes, from 10.0.0.0/8.”
 * @param {FormData} data @param {Privilege[]} offered @param {boolean} derives
 * @param {string | null} actor null: the caller
 */
function inWords(data, offered, derives, actor) {
  const text = (/** @type {string} */ name) => String(data.get(name) ?? "").trim();
  const duration = text("duration");
  const length =
    duration === "own"
      ? `for ${counted(Number(text("length")), UNITS[text("unit")]?.[1].slice(0, -1) ?? "day")}`
      : duration === "parent"
        ? "as long as its parent"
        : duration === "NO_EXPIRY"
          ? "without an end"
          : `for ${DURATIONS.find(([word]) => word === duration)?.[1]}`;
  const chosen = [
    ...data.getAll("privilege").map((name) => offered.find((one) => one.name === name)?.displayName ?? String(name)),
    ...wordsIn(text("others")),
  ];
  const may =
    text("scopes") === "all"
      ? `may do everything that ${derives ? "its parent" : (actor ?? "you")} may`
      : text("scopes") === "none"
        ? "may do nothing and only identifies its actor"
        : chosen.length
          ? `may only ${listing.format(chosen)}`
          : "may do nothing yet: select scopes";
  /** @param {string} choice @param {string} name @param {string} open @param {string} all */
  const limit = (choice, name, open, all) =>
    text(choice) === "some" ? listing.format(wordsIn(text(name))) || open : all;
  const from = limit(
    "networks",
    "allowedNetworks",
    "networks that you enter",
    derives ? "the networks of its parent" : "anywhere",
  );
  const services = limit("audience", "audiences", "services that you enter", "");
  const who = `${text("name") || "This token"}${actor ? `, as ${actor}` : ""}`;
  return `${who}, ${length}, ${may}, from ${from}${services ? `, only for ${services}` : ""}.`;
}

/** Fill controls as if they were typed. @param {HTMLFormElement} form @param {Filled} filled */
function fill(form, filled) {
  for (const control of form.elements) {
    if (
      !(
        control instanceof HTMLInputElement ||
        control instanceof HTMLSelectElement ||
        control instanceof HTMLTextAreaElement
      )
    )
      continue;
    const wanted = filled[control.name];
    if (wanted === undefined) continue;
    if (control instanceof HTMLInputElement && ["radio", "checkbox"].includes(control.type)) {
      control.checked = Array.isArray(wanted) ? wanted.includes(control.value) : wanted === control.value;
    } else control.value = String(wanted);
  }
  form.dispatchEvent(new Event("input", { bubbles: true }));
}

/** The limits, lifetime and next name of a token. @param {Token} token @param {string[]} allowed @returns {Filled} */
function filledLike(token, allowed) {
  const end = token.expiresAtOnceUsed ?? token.expiresAt;
  const length = end === null ? null : end - token.createdAt;
  const word = DURATIONS.find(
    ([, , one]) => one === length || (one !== null && length !== null && Math.abs(one - length) < MINUTE),
  )?.[0];
  const unit = ["D", "H"].find((letter) => (length ?? 0) >= UNITS[letter][2]) ?? "M";
  const [, name = token.name, last = "1"] = /^(.*) (\d{1,6})$/.exec(token.name) ?? [];
  const privileges = (token.scopes ?? []).filter((scope) => /^[A-Z_]+$/.test(scope));
  return {
    name: `${name.slice(0, 190)} ${Number(last) + 1}`,
    description: token.description ?? "",
    ...(word && allowed.includes(word)
      ? { duration: word }
      : length === null
        ? {}
        : { duration: "own", unit, length: String(Math.max(1, Math.round(length / UNITS[unit][2]))) }),
    scopes: token.scopes === null ? "all" : token.scopes.length ? "some" : "none",
    privilege: privileges,
    others: (token.scopes ?? []).filter((scope) => !privileges.includes(scope)).join(" "),
    networks: token.allowedNetworks ? "some" : "all",
    allowedNetworks: (token.allowedNetworks ?? []).join("\n"),
    audience: token.audience ? "some" : "all",
    audiences: (token.audience ?? []).join("\n"),
  };
}

/** @param {Privilege[]} offered @param {(template: typeof TEMPLATES[number]) => void} use */
const templates = (offered, use) => html`<fieldset class="templates"><legend>Start from</legend>
  <div class="row">${TEMPLATES.map((one) => {
    const lacks = one.needs && !offered.some(({ name }) => name === one.needs);
    return html`<button type="button" class="template" ?disabled=${lacks} @click=${() => use(one)}><span>${one.name}
      <small>${
        lacks ? "Needs the privilege Introspect Tokens, which no policy grants you." : one.about
      }</small></span></button>`;
  })}</div></fieldset>`;

/** A token created with a limited token inherits its limits. @param {Token | null} maker */
function bounded(maker) {
  if (!maker || !(maker.scopes || maker.audience || maker.allowedNetworks || maker.parentId)) return null;
  return warning(html`<p>You are signed in with <strong>${maker.name}</strong>, which is
    ${maker.parentId ? "derived" : "limited"}: the
    new token inherits its limits and expires no later.</p>`);
}

/** The longest allowed lifetime up to this one. @param {string} longest @param {string[]} allowed */
function atMost(longest, allowed) {
  const words = DURATIONS.map(([word]) => word);
  return (
    words
      .slice(0, words.indexOf(longest) + 1)
      .filter((word) => allowed.includes(word))
      .at(-1) ??
    allowed[0] ??
    "own"
  );
}

/** @param {boolean} derives @param {string[]} allowed */
const lifetime = (derives, allowed) => html`<div class="field" data-field="duration">
  <label for="duration">Lifetime</label>
  <div class="row"><select id="duration" name="duration" aria-describedby="duration-end">
    ${derives ? html`<option value="parent" selected>Same as its parent</option>` : null}
    ${DURATIONS.filter(([word]) => allowed.includes(word) && !(derives && word === "NO_EXPIRY")).map(
      ([word, words]) => html`<option value="${word}"
      ?selected=${!derives && word === atMost("ONE_MONTH", allowed)}>${words}</option>`,
    )}
    <option value="own">Custom…</option></select>
    <span class="own-length row" hidden><input id="length" name="length" type="number" min="1" value="3"
      aria-label="Length" class="short">
      <select name="unit" aria-label="Unit">${Object.entries(UNITS).map(
        ([letter, [, words]]) => html`<option value="${letter}"
        ?selected=${letter === "D"}>${words}</option>`,
      )}</select></span></div>
  <p class="hint exact-end" id="duration-end" aria-live="polite"></p><div class="field-error"></div></div>`;

/** @param {string} name @param {string} value @param {string} label @param {unknown} more @param {boolean} [checked] */
const choice = (
  name,
  value,
  label,
  more,
  checked = false,
) => html`<label class="choice"><input type="radio" name="${name}" value="${value}"
  ?checked=${checked}><span>${label}${more ? html`<small>${more}</small>` : null}</span></label>`;

/**
 * The least first: nothing is selected, and everything is a choice with a warning.
 * @param {Privilege[]} offered @param {boolean} derives
 */
const scopes = (offered, derives) => html`<fieldset data-field="scopes"><legend>Scopes</legend>
  ${choice("scopes", "some", "Only selected scopes", "Never more than its actor may do.", true)}
  <div class="inner" data-if="scopes=some" hidden>
    ${offered.map(
      (one) => html`<label class="choice"><input type="checkbox" name="privilege"
        value="${one.name}"><span>${one.displayName}
      <small>${one.allows}</small></span></label>`,
    )}
    <label class="field" for="others">Scopes of other services
      <input id="others" name="others" class="mono" autocomplete="off" spellcheck="false"
        placeholder="orders:read orders:write"
        aria-describedby="others-hint"></label>
    <p class="hint" id="others-hint">Separated by spaces. A policy must grant each of them to the actor of the
      token.</p>
  </div>
  ${choice("scopes", "none", "None", "The token only identifies its actor.")}
  ${choice(
    "scopes",
    "all",
    derives ? "Everything its parent may do" : "Everything its actor may do",
    html`<span class="status soon"><span
    aria-hidden="true">▲</span> unlimited</span> Changes when policies change.`,
  )}
  <div class="inner" data-if="scopes=all" hidden>${warning(
    html`<p>Anyone who gets this token can do everything that ${
      derives ? "its parent" : "its actor"
    } may do. Select scopes if its user needs less.</p>`,
  )}</div>
  <div class="field-error"></div></fieldset>`;

/** @param {boolean} derives */
const networks = (derives) => html`<fieldset data-field="allowedNetworks"><legend>Networks</legend>
  ${choice("networks", "all", derives ? "The networks of its parent" : "Any network", "", true)}
  ${choice("networks", "some", "Only from these networks", "Requests from other addresses are rejected.")}
  <div class="inner" data-if="networks=some" hidden><textarea name="allowedNetworks" rows="2" class="mono"
    spellcheck="false"
    aria-label="Networks" aria-describedby="networks-hint" placeholder="10.0.0.0/8"></textarea>
    <p class="hint" id="networks-hint">One per line, such as 10.0.0.0/8, 192.0.2.7/32 for one address, or
      2001:db8::/32.</p></div>
  <div class="field-error"></div></fieldset>`;

/** @param {boolean} derives */
const audience = (derives) => html`<fieldset data-field="audience"><legend>Audience</legend>
  ${choice(
    "audience",
    "all",
    derives ? "The audience of its parent" : "Watchword, and services that verify tokens with it",
    "",
    true,
  )}
  ${choice(
    "audience",
    "some",
    "Only for these services",
    "Other services reject it. So does Watchword, unless its issuer is listed.",
  )}
  <div class="inner" data-if="audience=some" hidden><textarea name="audiences" rows="2" class="mono" spellcheck="false"
    aria-label="Services"
    aria-describedby="audience-hint" placeholder="https://api.example"></textarea>
    <p class="hint" id="audience-hint">One per line: the name that the service checks.</p></div>
  <div class="field-error"></div></fieldset>`;
