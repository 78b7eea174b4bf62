/**
 * The details of one token: its record, its use, the tokens created with it, and its actions.
 */

import { element, html, render } from "./html.js";
import { ApiError, graphql } from "./api.js";
import { actor, counted, fullTime, number, time, tokenPath } from "./format.js";
import { errorLine, idCode, loading, panel, say } from "./components.js";
import { withSameQuery } from "./router.js";
import { ANY_STATUS, ROW, WHOLE, endsSoon, mayRevoke, mayRotate, statusOf } from "./token_display.js";
import { revoke, rotate } from "./token_actions.js";

/** @typedef {import("./token_display.js").Token} Token */
/** @typedef {import("./router.js").Context} Context */

const GET = `query Token($id: String!) { getAccessToken(id: $id) { ${WHOLE} } listPrivileges { name displayName allows } }`;
const MADE = `query Made($derived: ListAccessTokensInput, $minted: ListAccessTokensInput) {
  derived: listAccessTokens(input: $derived) { total tokens { ${ROW} mintedWith } }
  minted: listAccessTokens(input: $minted) { total tokens { ${ROW} mintedWith } } }`;
const MOST_LEVELS = 8;
const MOST_NODES = 200;

/**
 * Show a token's details over the page. `changed` is called with what was done to it.
 * @param {Context} context @param {string} id @param {string} close where closing leads
 * @param {(what: unknown) => Promise<void>} changed @param {(id: string) => string} [path] where details of others are shown
 */
export async function showToken(context, id, close, changed, path = (other) => withSameQuery(tokenPath(other))) {
  const place = { close, changed, path };
  const { root } = context;
  const old = root.querySelector(".panel");
  const body = element(html`<div class="stack">${loading()}</div>`);
  const box = panel({ title: "Token", close, content: body });
  const heading = /** @type {HTMLElement} */ (box.querySelector("h2"));
  if (old) old.replaceWith(box);
  else root.append(box);
  heading.focus({ preventScroll: true });
  try {
    const { getAccessToken: token, listPrivileges: known } = await graphql(GET, { id }, { signal: context.signal });
    heading.textContent = token.name;
    say(`Details of ${token.name}`);
    render(body, details(context, token, known, place));
    await showTree(context, token, /** @type {HTMLElement} */ (body.querySelector(".tree-place")), place);
  } catch (error) {
    if (error instanceof DOMException) return;
    render(body, errorLine(error));
  }
}

/** @typedef {{close: string, changed: (what: unknown) => Promise<void>, path: (id: string) => string}} Place */

/** @param {Context} context @param {Token} token @param {import("./token_display.js").Privilege[]} known @param {Place} place */
function details(context, token, known, place) {
  const { me } = context;
  const own = token.id === me.tokenId;
  return html`
    ${token.description ? html`<p class="text">${token.description}</p>` : null}
    ${own ? html`<p class="quiet">You are signed in with this token.</p>` : null}
    <p class="row">
      ${mayRotate(token, me) ? html`<button type="button" @click=${() => rotate(context, token)}>Rotate…</button>` : null}
      ${own && token.status === "ACTIVE" && me.privileges.generatePersonalAccessTokens
        ? html`<a class="button" href="/console/tokens/new?derive=1">Derive a token…</a>` : null}
      ${token.status === "ACTIVE" && mayRevoke(token, me)
        ? html`<button type="button" class="danger" @click=${() => revoke(context, token, place)}>Revoke ${token.name}…</button>` : null}
    </p>
    <dl class="facts">
      <dt>Status</dt><dd>${statusOf(token)}${endsSoon(token) ? html` <span class="status soon"><span aria-hidden="true">▲</span>
        expires soon</span>` : null}</dd>
      ${token.revokedAt === null ? html`<dt>Expires</dt><dd>${fullTime(token.expiresAt)}</dd>`
        : html`<dt>Revoked</dt><dd>${fullTime(token.revokedAt)}</dd>`}
      ${succession(token, place)}
      <dt>Last used</dt><dd>${time(token.lastUsedAt)}${token.lastNetwork ? html` from <code>${token.lastNetwork}</code>` : null}</dd>
      <dt>Uses</dt><dd>${counted(token.useCount, "time")}</dd>
      <dt>May</dt><dd>${scopes(token.scopes, known)}</dd>
      <dt>From</dt><dd>${token.allowedNetworks ? listed(token.allowedNetworks) : "anywhere"}</dd>
      <dt>For</dt><dd>${token.audience ? listed(token.audience) : "this service"}</dd>
      <dt>Acts as</dt><dd>${actor(token.actorUrn, token.actorName)} <span class="quiet small mono">${token.actorUrn}</span></dd>
      <dt>Created by</dt><dd>${actor(token.ownerUrn, token.ownerName)}, ${time(token.createdAt)}</dd>
      ${token.parentId ? html`<dt>Derived from</dt><dd>${other(token.parentId, place)}; it is revoked and expires with it</dd>` : null}
      ${token.mintedWith && token.mintedWith !== token.parentId ? html`<dt>Created with</dt><dd>${other(token.mintedWith, place)}</dd>` : null}
      <dt>Id</dt><dd>${idCode(token.id)}</dd>
    </dl>
    ${me.privileges.viewAuditLog ? html`<p><a href="/console/activity?target=${encodeURIComponent(token.id)}">Activity</a></p>` : null}
    <div class="tree-place"></div>`;
}

/** @param {Token} token @param {Place} place */
function succession(token, place) {
  return html`${token.replaces ? html`<dt>Replaces</dt><dd>${other(token.replaces, place)}</dd>` : null}
    ${token.replacedBy ? html`<dt>Replaced by</dt><dd>${other(token.replacedBy, place)}${token.replacedAt === null
      ? ", after its first use" : html`, in use since ${time(token.replacedAt)}`}</dd>` : null}
    ${token.awaitsFirstUse ? html`<dt>After first use</dt><dd>valid until ${fullTime(token.expiresAtOnceUsed, "it is revoked")}; unused, it
      expires at the time above</dd>` : null}`;
}

/** @param {string[]} values */
const listed = (values) => html`<ul class="plain-list">${values.map((value) => html`<li><code>${value}</code></li>`)}</ul>`;

/** @param {string} id another token, of which only the id is known @param {Place} place */
const other = (id, place) => html`<a class="mono" href="${place.path(id)}" title="${id}">${id.slice(0, 8)}…</a>`;

/** @param {string[] | null} scopes @param {import("./token_display.js").Privilege[]} known */
function scopes(scopes, known) {
  if (scopes === null) return "everything its actor may";
  if (!scopes.length) return "nothing; it only identifies its actor";
  return html`<ul class="plain-list">${scopes.map((scope) => {
    const about = known.find((privilege) => privilege.name === scope);
    return about ? html`<li>${about.displayName} <span class="quiet small">${about.allows}</span></li>`
      : html`<li><code>${scope}</code> <span class="quiet small">scope of other services, while a policy grants it</span></li>`;
  })}</ul>`;
}

/**
 * All tokens created with this one, one request per level.
 * @param {Context} context @param {Token} token @param {HTMLElement} node @param {Place} place
 */
async function showTree(context, token, node, place) {
  /** @type {Map<string, Token[]>} */
  const children = new Map();
  const seen = new Set([token.id]);
  let level = [token.id];
  let more = 0;
  try {
    for (let depth = 0; level.length && depth < MOST_LEVELS && seen.size <= MOST_NODES; depth += 1) {
      const found = await graphql(MADE, {
        derived: asked(context, token, "parentId", level),
        minted: asked(context, token, "mintedWith", level),
      }, { signal: context.signal });
      level = [];
      for (const child of [...found.derived.tokens, ...found.minted.tokens]) {
        if (seen.has(child.id)) continue;
        seen.add(child.id);
        level.push(child.id);
        const under = child.parentId && seen.has(child.parentId) ? child.parentId : child.mintedWith;
        children.set(under, [...(children.get(under) ?? []), child]);
      }
      more += Math.max(found.derived.total - found.derived.tokens.length, 0) + Math.max(found.minted.total - found.minted.tokens.length, 0);
    }
  } catch (error) {
    // Without the privilege to list them, nothing is shown.
    if (error instanceof ApiError && error.reason !== "missing_privilege") render(node, errorLine(error));
    return;
  }
  if (seen.size === 1) return;
  const live = [...children.values()].flat().filter((child) => child.status === "ACTIVE").length;
  render(node, html`<h3>Created with this token</h3>${branch(children, token.id, place)}
    ${more ? html`<p class="quiet small">and ${number(more)} more</p>` : null}
    ${token.status !== "ACTIVE" && live && mayRevoke(token, context.me) ? html`<p><button type="button" class="danger"
      @click=${() => revoke(context, token, place)}>Revoke the tokens created with ${token.name}…</button></p>` : null}`);
}

/** @param {Context} context @param {Token} token @param {string} field @param {string[]} ids */
const asked = (context, token, field, ids) => ({
  count: MOST_NODES,
  filters: [
    { field, condition: "IN", values: ids },
    ANY_STATUS,
    ...(context.me.privileges.manageTokens ? [] : [{ field: "actorUrn", value: token.actorUrn }]),
  ],
});

/** @param {Map<string, Token[]>} children @param {string} id @param {Place} place @returns {unknown} */
function branch(children, id, place) {
  const here = children.get(id);
  return here ? html`<ul class="tree">${here.map((child) => html`<li><a href="${place.path(child.id)}">${child.name}</a>
    ${statusOf(child)} <span class="quiet small">${child.parentId === id ? "derived: revoked with it" : "created with it: stays valid"}</span>
    ${branch(children, child.id, place)}</li>`)}</ul>` : null;
}
