/** Revoking many tokens: a dry run with the count by actor, the count typed to confirm, and a receipt. */

import { element, html, render } from "../html.js";
import { ApiError, graphql } from "../api.js";
import { actor, counted, fullTime, number } from "../format.js";
import { ask, copyButton, errorLine, loading, newId, notice, table, warning } from "../components.js";

/**
 * @typedef {{count: number, digest: string, revokedAt: number, words: string, actorUrn: string}} Receipt
 * @typedef {{dryRun: boolean, count: number, actors: {actorUrn: string, actorName: string | null, count: number}[] | null, digest: string | null,
 *   revokedAt: number | null}} Result
 */

const REVOKE = `mutation RevokeMany($input: RevokeAccessTokensInput!) { revokeAccessTokens(input: $input) {
  dryRun count actors { actorUrn actorName count } digest revokedAt } }`;
const MINE = `query Mine($filters: [FacetFilterInput!]) { listAccessTokens(input: {count: 0, filters: $filters}) { total } }`;
const MOST_ROWS = 10;
const KEPT = "watchword-receipts";
/** The number of the latest plan. A count of an earlier plan is ignored. */
let turn = 0;

/**
 * Show a dry run in the place, and revoke on confirmation.
 * @param {{place: HTMLElement, input: Record<string, unknown>, words: string, me: import("../shell.js").Me,
 *   done: (receipt: Receipt) => unknown}} what
 */
export async function revokeMany({ place, input, words, me, done }) {
  let cascade = false;

  async function plan() {
    turn += 1;
    const mine = turn;
    if (!place.firstElementChild) render(place, loading("Counting…"));
    try {
      const [{ revokeAccessTokens: found }, own] = await Promise.all([
        graphql(REVOKE, { input: { ...input, cascade, dryRun: true } }), isOwnAmong(),
      ]);
      if (mine === turn) show(found, own);
    } catch (error) {
      if (mine === turn) render(place, html`<div class="card">${errorLine(error)}<p class="actions">${away()}</p></div>`);
    }
  }

  /** Whether the token of this session would be revoked too. @returns {Promise<boolean>} */
  async function isOwnAmong() {
    if (!me.tokenId) return false;
    if (input.all) return true;
    if (Array.isArray(input.ids)) return input.ids.includes(me.tokenId);
    const filters = [.../** @type {unknown[]} */ (input.filters), { field: "id", value: me.tokenId }];
    return (await graphql(MINE, { filters })).listAccessTokens.total > 0;
  }

  const away = () => html`<button type="button" @click=${leave}>Cancel</button>`;

  function leave() {
    turn += 1;
    render(place, null);
  }

  /** @param {Result} found @param {boolean} own */
  function show(found, own) {
    const id = newId("plan");
    const actors = found.actors ?? [];
    const many = counted(found.count, "token");
    const whose = `${actors.length < 100 ? "" : "at least "}${counted(actors.length, "actor")}`;
    const box = element(html`<section class="card stack" aria-labelledby="${id}">
      <h2 id="${id}" tabindex="-1">${found.count ? `Dry run: ${many} of ${whose}` : "Dry run: nothing to revoke"}</h2>
      <p>${found.count ? html`Selected: ${words}, including tokens derived from them. Nothing has been revoked yet.`
        : html`Selected: ${words}. None of them is live.`}</p>
      ${own ? warning("The token of this session is included: you will be signed out.") : null}
      ${found.count ? whoseTable(actors) : null}
      <label class="choice"><input type="checkbox" id="cascade" .checked=${cascade} @change=${toggle}><span>Also revoke tokens
        created with them<small>Tokens created with one of these tokens, and tokens created with those.</small></span></label>
      <p class="actions">${found.count ? html`<button type="button" class="danger" id="revoke-planned" @click=${() => confirm(found, whose)}>Revoke
        ${many}…</button>` : null}${away()}</p></section>`);
    const again = document.activeElement?.id === "cascade";
    render(place, box);
    (again ? box.querySelector("input") : box.querySelector("h2"))?.focus();
  }

  /** @param {Event} event */
  function toggle(event) {
    cascade = /** @type {HTMLInputElement} */ (event.currentTarget).checked;
    void plan();
  }

  /** @param {Result} found @param {string} whose */
  async function confirm(found, whose) {
    const many = counted(found.count, "token");
    /** @type {Result | null} */
    let result = null;
    let outgrown = false;
    const sure = await ask({
      title: `Revoke ${many}?`, danger: true, action: `Revoke ${many}`, typed: String(found.count),
      content: html`<p>Everything that uses ${words} stops working immediately, for ${whose}. This cannot be undone.</p>`,
      act: async () => {
        try {
          result = (await graphql(REVOKE, { input: { ...input, cascade, dryRun: false, atMost: found.count } })).revokeAccessTokens;
        } catch (error) {
          outgrown ||= error instanceof ApiError && error.reason === "more_than_allowed_for";
          throw error;
        }
      },
    });
    const made = /** @type {Result | null} */ (result);
    if (outgrown && !made) await plan();
    if (!sure || !made) return;
    leave();
    const told = done({ count: made.count, digest: made.digest ?? "", revokedAt: made.revokedAt ?? Date.now(), words, actorUrn: me.urn });
    /** @type {HTMLElement | null | undefined} */ (place.closest(".page")?.querySelector("#receipts .notice"))?.focus();
    await told;
  }

  await plan();
}

/** @param {{actorUrn: string, actorName: string | null, count: number}[]} actors */
function whoseTable(actors) {
  const rest = actors.slice(MOST_ROWS);
  const left = rest.reduce((sum, one) => sum + one.count, 0);
  return html`${table({
    caption: "Tokens by actor", rows: actors.slice(0, MOST_ROWS),
    columns: [
      { label: "Acts as", cell: (one) => actor(one.actorUrn, one.actorName) },
      { label: "Tokens", class: "number", cell: (one) => number(one.count) },
    ],
  })}${rest.length ? html`<p class="quiet small">And ${counted(left, "token")} of ${counted(rest.length, "more actor")}.</p>` : null}`;
}

/**
 * The receipts of this tab and this actor. They stay until they are dismissed, also when the session ends.
 * @param {HTMLElement} place @param {string} actorUrn
 */
export function receipts(place, actorUrn) {
  /** @type {Receipt[]} */
  let all = read().filter((one) => one.actorUrn === actorUrn);
  const show = () => render(place, all.map((one) => notice(html`<p><strong>Revoked ${counted(one.count, "token")}</strong>
      (${one.words}) at ${fullTime(one.revokedAt)}. No instance accepts any of them.</p>
    <p class="small">Receipt: SHA-256 of their ids <code class="digest">${one.digest}</code>
      ${copyButton(`${one.count} tokens, ${new Date(one.revokedAt).toISOString()}, ${one.digest}`, "Copy receipt")}
      <button type="button" class="plain" @click=${() => put(all.filter((other) => other !== one))}>Dismiss</button></p>`)));
  /** @param {Receipt[]} changed */
  const put = (changed) => {
    all = changed;
    try {
      sessionStorage.setItem(KEPT, JSON.stringify(all));
    } catch {
      // Without storage the receipt is shown on this page only.
    }
    show();
  };
  show();
  return { add: (/** @type {Receipt} */ receipt) => put([receipt, ...all].slice(0, 20)) };
}

/** @returns {Receipt[]} */
function read() {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}
