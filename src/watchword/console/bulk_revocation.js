/**
 * Revoking many tokens: a dry run with the tokens that were used last, a confirmation, and a receipt. Everywhere the
 * count is that of the dry run: the live tokens that are revoked, those revoked with the selected ones included.
 */

import { element, html, render } from "./html.js";
import { ApiError, graphql } from "./api.js";
import { typedFrom } from "./damage.js";
import { actor, counted, number, time } from "./format.js";
import { ask, errorLine, loading, newId, table, warning } from "./components.js";

/**
 * @typedef {import("./receipts.js").Receipt} Receipt
 * @typedef {{dryRun: boolean, count: number, actors: {actorUrn: string, actorName: string | null,
 *   count: number}[] | null, digest: string | null, revokedAt: number | null}} Result
 */

const REVOKE = `mutation RevokeMany($input: RevokeAccessTokensInput!) { revokeAccessTokens(input: $input) {
  dryRun count actors { actorUrn actorName count } digest revokedAt } }`;
const NAMED = `query Named($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total tokens {
  id name actorUrn actorName lastUsedAt lastNetwork } } }`;
/** How many tokens the plan names. */
const MOST_NAMED = 20;
const MOST_ACTORS = 10;
/** Values in one filter. */
const MOST_VALUES = 300;
/** The number of the latest plan. A count of an earlier plan is ignored. */
let turn = 0;

/**
 * @typedef {{id: string, name: string, actorUrn: string, actorName: string | null, lastUsedAt: number | null,
 *   lastNetwork: string | null}} Named
 * @typedef {import("./token_display.js").Filter} Filter
 */

/** @type {Filter} */
const LIVE = { field: "status", value: "ACTIVE" };

/**
 * Show a dry run in the place, and revoke on confirmation.
 * @param {{place: HTMLElement, selected: {ids?: string[], filters?: Filter[]}, words: string,
 *   me: import("./shell.js").Me, done: (receipt: Receipt) => unknown}} what
 */
export async function revokeMany({ place, selected, words, me, done }) {
  let cascade = false;

  async function plan() {
    turn += 1;
    const mine = turn;
    if (!place.firstElementChild) render(place, loading("Counting…"));
    try {
      const [{ revokeAccessTokens: found }, live, own] = await Promise.all([
        graphql(REVOKE, { input: { ...selected, cascade, dryRun: true } }),
        named(),
        isOwnAmong(),
      ]);
      if (mine === turn) show(found, live, own);
    } catch (error) {
      if (mine === turn)
        render(place, html`<div class="card">${errorLine(inWords(error), plan)}<p class="actions">${away()}</p></div>`);
    }
  }

  /**
   * The live tokens that are selected: their number, and those used last.
   * @returns {Promise<{total: number, tokens: Named[]}>}
   */
  async function named() {
    /** @type {Filter[][]} */
    const parts = selected.filters ? [selected.filters] : [];
    for (let at = 0; at < (selected.ids?.length ?? 0); at += MOST_VALUES) {
      parts.push([
        { field: "id", condition: "IN", values: selected.ids?.slice(at, at + MOST_VALUES) },
        ...(me.privileges.manageTokens ? [] : [{ field: "actorUrn", value: me.urn }]),
      ]);
    }
    const found = await Promise.all(
      parts.map((filters) =>
        graphql(NAMED, {
          input: { count: MOST_NAMED, filters: [...filters, LIVE], sort: { field: "lastUsedAt", order: "DESCENDING" } },
        }),
      ),
    );
    return {
      total: found.reduce((sum, one) => sum + one.listAccessTokens.total, 0),
      tokens: found
        .flatMap((one) => one.listAccessTokens.tokens)
        .sort((a, b) => (b.lastUsedAt ?? 0) - (a.lastUsedAt ?? 0))
        .slice(0, MOST_NAMED),
    };
  }

  /** Whether the token of this session would be revoked too. @returns {Promise<boolean>} */
  async function isOwnAmong() {
    if (!me.tokenId) return false;
    if (selected.ids) return selected.ids.includes(me.tokenId);
    const filters = [...(selected.filters ?? []), { field: "id", value: me.tokenId }];
    return (await graphql(NAMED, { input: { count: 0, filters } })).listAccessTokens.total > 0;
  }

  const away = () => html`<button type="button" @click=${leave}>Cancel</button>`;

  function leave() {
    turn += 1;
    render(place, null);
  }

  /** @param {Result} found @param {{total: number, tokens: Named[]}} live @param {boolean} own */
  function show(found, live, own) {
    const id = newId("plan");
    const actors = found.actors ?? [];
    const many = counted(found.count, "token");
    const whose = `${actors.length < 100 ? "" : "at least "}${counted(actors.length, "actor")}`;
    const others = Math.max(0, found.count - live.total);
    const box = element(html`<section class="card stack" aria-labelledby="${id}">
      <h2 id="${id}" tabindex="-1">${found.count ? `Dry run: ${many} of ${whose}` : "Dry run: nothing to revoke"}</h2>
      <p>${
        found.count
          ? html`Selected: ${words}. ${number(live.total)} of them ${live.total === 1 ? "is" : "are"} live${
              others
                ? html`; ${counted(others, "more token")} ${others === 1 ? "is" : "are"} revoked with them: derived from
                  them${cascade ? ", created with them" : ""}, or replaced by or replacing one of them`
                : null
            }.
        Nothing has been revoked yet.`
          : html`Selected: ${words}. None of them is live.`
      }</p>
      ${own ? warning("The token of this session is included: you will be signed out.") : null}
      ${
        found.count ? html`${lastUsed(live.tokens, found.count)}${actors.length > 1 ? whoseTable(actors) : null}` : null
      }
      <label class="choice"><input type="checkbox" id="cascade" .checked=${cascade} @change=${toggle}><span>Also revoke
        tokens created with them<small>Tokens created with one of these tokens, and tokens created with
          those.</small></span></label>
      <p class="actions">${
        found.count
          ? html`<button type="button" class="danger" id="revoke-planned" @click=${() => confirm(found, whose)}>Revoke
        ${many}…</button>`
          : null
      }${away()}</p></section>`);
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
      title: `Revoke ${many}?`,
      danger: true,
      action: `Revoke ${many}`,
      typed: typedFrom(found.count),
      content: html`<p>Everything that uses ${words} stops working immediately, for ${whose}. This cannot be
        undone.</p>`,
      act: async () => {
        try {
          result = (await graphql(REVOKE, { input: { ...selected, cascade, dryRun: false, atMost: found.count } }))
            .revokeAccessTokens;
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
    const told = done({
      count: made.count,
      digest: made.digest ?? "",
      revokedAt: made.revokedAt ?? Date.now(),
      words,
      actorUrn: me.urn,
    });
    /** @type {HTMLElement | null | undefined} */ (place.closest(".page")?.querySelector("#receipts .notice"))?.focus();
    await told;
  }

  await plan();
}

/** @param {unknown} error */
const inWords = (error) =>
  error instanceof ApiError && error.field === "all"
    ? new Error(
        "The filters match every live token. Narrow them; to revoke all tokens, use the command line: watchword " +
          "token revoke --all-actors.",
      )
    : error;

/** @param {Named[]} tokens @param {number} count of all that are revoked */
const lastUsed = (tokens, count) =>
  html`${table({
    caption: "Tokens to revoke, last used first",
    rows: tokens,
    columns: [
      { label: "Name", cell: (one) => one.name },
      { label: "Acts as", cell: (one) => actor(one.actorUrn, one.actorName) },
      {
        label: "Last used",
        cell: (one) =>
          html`${time(one.lastUsedAt)}${
            one.lastNetwork ? html` <span class="quiet small">from ${one.lastNetwork}</span>` : null
          }`,
      },
    ],
  })}${
    count > tokens.length ? html`<p class="quiet small">And ${counted(count - tokens.length, "more token")}.</p>` : null
  }`;

/** @param {{actorUrn: string, actorName: string | null, count: number}[]} actors */
function whoseTable(actors) {
  const rest = actors.slice(MOST_ACTORS);
  const left = rest.reduce((sum, one) => sum + one.count, 0);
  return html`${table({
    caption: "Tokens by actor",
    rows: actors.slice(0, MOST_ACTORS),
    columns: [
      { label: "Acts as", cell: (one) => actor(one.actorUrn, one.actorName) },
      { label: "Tokens", class: "number", cell: (one) => number(one.count) },
    ],
  })}${
    rest.length
      ? html`<p class="quiet small">And ${counted(left, "token")} of ${counted(rest.length, "more actor")}.</p>`
      : null
  }`;
}
