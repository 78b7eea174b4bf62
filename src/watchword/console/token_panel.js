/**
 * The details of one token: its record, use, history and lineage, and its actions.
 */

import { element, html, render } from "./html.js";
import { ApiError, graphql } from "./api.js";
import { actor, counted, fullTime, idToPath, number, time, tokenPath } from "./format.js";
import { barChart } from "./charts.js";
import { errorLine, idCode, loading, panel, say } from "./components.js";
import { EVENT, sentence } from "./event_sentences.js";
import { withSameQuery } from "./router.js";
import { ANY_STATUS, ROW, WHOLE, endsSoon, mayCreate, mayRevoke, mayRotate, statusOf } from "./token_display.js";
import { edit, revoke, rotate } from "./token_actions.js";

/** @typedef {import("./token_display.js").Token} Token */
/** @typedef {import("./router.js").Context} Context */
/** @typedef {import("./event_sentences.js").AuditEvent} AuditEvent */

const DAYS = 30;
const GET = `query Token($id: String!) { getAccessToken(id: $id) { ${WHOLE} usesByDay(days: ${DAYS}) { day count }
  networks }
  listPrivileges { name displayName allows } }`;
const KIN = `query Kin($input: ListAccessTokensInput) { listAccessTokens(input: $input) { tokens { ${ROW} createdWith }
  } }`;
const MADE = `query Made($derived: ListAccessTokensInput, $created: ListAccessTokensInput) {
  derived: listAccessTokens(input: $derived) { total tokens { ${ROW} createdWith } }
  created: listAccessTokens(input: $created) { total tokens { ${ROW} createdWith } } }`;
const EVENTS = `query History($input: ListEventsInput) { listEvents(input: $input) { events { ${EVENT} } } }`;
const MOST_EVENTS = 20;
const MOST_LEVELS = 8;
const MOST_NODES = 200;

/**
 * Show a token's details over the page. `changed` is called with what was done to it.
 * @param {Context} context @param {string} id @param {string} close where closing leads
 * @param {(what: unknown) => Promise<void>} changed
 * @param {(id: string) => string} [path] where details of others are shown
 */
export async function showToken(context, id, close, changed, path = (other) => withSameQuery(tokenPath(other))) {
  const shown = () => showToken(context, id, close, changed, path);
  const place = { close, changed, path, shown };
  const { root } = context;
  const old = root.querySelector(".panel");
  const body = element(html`<div class="stack">${loading()}</div>`);
  const box = panel({ title: "Token", close, content: body });
  box.classList.add("token-panel");
  const heading = /** @type {HTMLElement} */ (box.querySelector("h2"));
  if (old) old.replaceWith(box);
  else root.append(box);
  heading.focus({ preventScroll: true });
  try {
    const { getAccessToken: token, listPrivileges: known } = await graphql(GET, { id }, { signal: context.signal });
    heading.textContent = token.name;
    say(`Details of ${token.name}`);
    render(body, details(context, token, known, place));
    startAction(context, token, place);
    await Promise.all([
      showLineage(context, token, /** @type {HTMLElement} */ (body.querySelector(".lineage")), place),
      showHistory(context, token, /** @type {HTMLElement} */ (body.querySelector(".history"))),
    ]);
  } catch (error) {
    if (error instanceof DOMException) return;
    render(body, errorLine(error, shown));
  }
}

/**
 * @typedef {{close: string, changed: (what: unknown) => Promise<void>, path: (id: string) => string,
 *   shown: () => Promise<void>}} Place `shown` shows the token again
 */

/**
 * An address that ends with #revoke or #rotate opens the dialog too.
 * @param {Context} context @param {Token} token @param {Place} place
 */
function startAction(context, token, place) {
  const { hash } = location;
  if (!["#revoke", "#rotate"].includes(hash)) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  if (hash === "#revoke" && token.status === "ACTIVE" && mayRevoke(token, context.me))
    void revoke(context, token, place);
  if (hash === "#rotate" && mayRotate(token, context.me)) void rotate(context, token);
}

/** @typedef {Token & {usesByDay: import("./charts.js").DayCount[], networks: string[]}} UsedToken */

/**
 * @param {Context} context
 * @param {UsedToken} token @param {import("./token_display.js").Privilege[]} known @param {Place} place
 */
function details(context, token, known, place) {
  const { me } = context;
  const own = token.id === me.tokenId;
  const saved = async () => {
    await Promise.all([place.changed("Saved the name and description."), place.shown()]);
  };
  return html`
    ${token.description ? html`<p class="text">${token.description}</p>` : null}
    ${own ? html`<p class="quiet">You are signed in with this token.</p>` : null}
    <p class="row">
      ${
        mayRotate(token, me)
          ? html`<button type="button" @click=${() => rotate(context, token)}>Rotate…</button>`
          : null
      }
      ${
        token.status !== "REVOKED" && mayRevoke(token, me)
          ? html`<button type="button" @click=${() => edit(token, saved)}>Edit…</button>`
          : null
      }
      ${
        mayCreate(token, me)
          ? html`<a class="button" href="/console/tokens/new?like=${idToPath(token.id)}">Create one like this</a>`
          : null
      }
      ${
        own && token.status === "ACTIVE" && me.privileges.generatePersonalAccessTokens
          ? html`<a class="button" href="/console/tokens/new?derive=1">Derive a token…</a>`
          : null
      }
      ${
        token.status === "ACTIVE" && mayRevoke(token, me)
          ? html`<button type="button" class="danger" @click=${() => revoke(context, token, place)}>Revoke
            ${token.name}…</button>`
          : null
      }
    </p>
    <dl class="facts">
      <dt>Status</dt><dd>${statusOf(token)}${
        endsSoon(token)
          ? html` <span class="status soon"><span aria-hidden="true">▲</span>
        expires soon</span>`
          : null
      }</dd>
      ${
        token.revokedAt === null
          ? html`<dt>Expires</dt><dd>${fullTime(token.expiresAt)}</dd>`
          : html`<dt>Revoked</dt><dd>${fullTime(token.revokedAt)}</dd>`
      }
      ${
        token.awaitsFirstUse
          ? html`<dt>Handover</dt><dd>Its first use starts it: the old token then expires after its grace period, and
        this one is valid until ${fullTime(token.expiresAtOnceUsed, "it is revoked")}. Unused, it expires at the time
        above.</dd>`
          : null
      }
      <dt>Last used</dt><dd>${time(token.lastUsedAt)}${
        token.lastNetwork ? html` from <code>${token.lastNetwork}</code>` : null
      }</dd>
      <dt>Uses</dt><dd>${counted(token.useCount, "time")}</dd>
      <dt>May</dt><dd>${scopes(token.scopes, known)}</dd>
      <dt>From</dt><dd>${token.allowedNetworks ? listed(token.allowedNetworks) : "anywhere"}</dd>
      <dt>For</dt><dd>${token.audience ? listed(token.audience) : "this service"}</dd>
      <dt>Acts as</dt><dd>${actor(token.actorUrn, token.actorName)} <span
        class="quiet small mono">${token.actorUrn}</span></dd>
      <dt>Created by</dt><dd>${actor(token.ownerUrn, token.ownerName)}, ${time(token.createdAt)}</dd>
      <dt>Id</dt><dd>${idCode(token.id)}</dd>
    </dl>
    ${use(token)}
    <div class="lineage"></div>
    <h3>History</h3>
    <div class="history">${loading()}</div>
    ${
      me.privileges.viewAuditLog
        ? html`<p><a href="/console/activity?target=${encodeURIComponent(token.id)}">All its activity</a></p>`
        : null
    }`;
}

/** @param {UsedToken} token */
const use = (token) => html`<h3>Use in ${DAYS} days</h3>
  ${
    token.usesByDay.some(({ count }) => count)
      ? barChart({
          label: `Uses of ${token.name} by day`,
          series: [{ name: "Uses", kind: "used", days: token.usesByDay }],
        })
      : html`<p class="quiet">It was not used.</p>`
  }
  ${
    token.networks.length ? html`<dl class="facts"><dt>Networks seen</dt><dd>${listed(token.networks)}</dd></dl>` : null
  }`;

/**
 * Its life in sentences, newest first: its latest events for callers who may read them, and what its record says.
 * @param {Context} context @param {Token} token @param {HTMLElement} node
 */
async function showHistory(context, token, node) {
  try {
    /** @type {AuditEvent[]} */
    const events = context.me.privileges.viewAuditLog
      ? (await graphql(EVENTS, { input: { targets: [token.id], count: MOST_EVENTS } }, { signal: context.signal }))
          .listEvents.events
      : [];
    const told = recorded(token).filter(([, , actions]) => !events.some((event) => actions.includes(event.action)));
    const lines = [
      ...told,
      ...events.map((event) => /** @type {Told} */ ([event.at, html`${sentence(event, context.me)}.`, []])),
    ];
    render(
      node,
      html`<ol class="timeline">${lines
        .filter(([at]) => at !== null)
        .sort(([one], [other]) => Number(other) - Number(one))
        .map(([at, words]) => html`<li>${time(at)} <span>${words}</span></li>`)}</ol>`,
    );
  } catch (error) {
    if (!(error instanceof DOMException))
      render(
        node,
        errorLine(error, () => showHistory(context, token, node)),
      );
  }
}

/** @typedef {[number | null, unknown, string[]]} Told a time, what happened, and the events that say the same */

/** @param {Token} token @returns {Told[]} */
const recorded = (token) => [
  [token.revokedAt, "It was revoked.", ["token.revoked"]],
  [token.status === "EXPIRED" ? token.expiresAt : null, "It expired.", []],
  [token.replacedAt, "Its successor was used for the first time.", ["token.replaced"]],
  [
    token.lastUsedAt,
    html`It was last used${token.lastNetwork ? html` from <code>${token.lastNetwork}</code>` : null}.`,
    [],
  ],
  [
    token.createdAt,
    html`${actor(token.ownerUrn, token.ownerName)} ${
      token.parentId ? "derived" : token.replaces ? "rotated another token into" : "created"
    } it.`,
    ["token.created", "token.derived", "token.rotated", "token.imported"],
  ],
];

/** @param {string[]} values */
const listed = (values) =>
  html`<ul class="plain-list">${values.map((value) => html`<li><code>${value}</code></li>`)}</ul>`;

/** @param {string[] | null} scopes @param {import("./token_display.js").Privilege[]} known */
function scopes(scopes, known) {
  if (scopes === null) return "everything its actor may";
  if (!scopes.length) return "nothing; it only identifies its actor";
  return html`<ul class="plain-list">${scopes.map((scope) => {
    const about = known.find((privilege) => privilege.name === scope);
    return about
      ? html`<li>${about.displayName} <span class="quiet small">${about.allows}</span></li>`
      : html`<li><code>${scope}</code> <span class="quiet small">scope of other services, while a policy grants
        it</span></li>`;
  })}</ul>`;
}

/**
 * The tokens that this one comes from, that replace it and that were created with it; one request per level.
 * @param {Context} context @param {Token} token @param {HTMLElement} node @param {Place} place
 */
async function showLineage(context, token, node, place) {
  try {
    const [{ above, known }, { children, more }] = await Promise.all([
      ancestors(context, token),
      descendants(context, token),
    ]);
    if (!above.length && !children.size && !token.replaces && !token.replacedBy) return;
    const live = [...children.values()].flat().filter((child) => child.status === "ACTIVE").length;
    const here = html`<li><strong aria-current="true">${token.name}</strong> ${statusOf(token)} <span
      class="quiet small">${origin(token)}</span>
      ${succession(token, known, place)}${branch(children, token.id, place)}</li>`;
    const tree = above.reduce(
      (inner, one) => html`<li>${other(one.id, one.token, place)} <ul class="tree">${inner}</ul></li>`,
      here,
    );
    render(
      node,
      html`<h3>Lineage</h3><ul class="tree">${tree}</ul>
      ${more ? html`<p class="quiet small">and ${number(more)} more</p>` : null}
      ${
        token.status !== "ACTIVE" && live && mayRevoke(token, context.me)
          ? html`<p><button type="button" class="danger"
        @click=${() => revoke(context, token, place)}>Revoke the tokens created with ${token.name}…</button></p>`
          : null
      }`,
    );
  } catch (error) {
    // Without the privilege to list them, nothing is shown.
    if (error instanceof ApiError && error.reason !== "missing_privilege")
      render(
        node,
        errorLine(error, () => showLineage(context, token, node, place)),
      );
  }
}

/** @typedef {{id: string, token: Token | undefined}} Known a token of which at least the id is known */

/**
 * What it was derived from or created with, nearest first, and the tokens of its rotation.
 * @param {Context} context @param {Token} token
 */
async function ancestors(context, token) {
  /** @type {Known[]} */
  const above = [];
  /** @type {Map<string, Token>} */
  const known = new Map();
  let next = token.parentId ?? token.createdWith;
  let wanted = [next, token.replaces, token.replacedBy].filter((id) => id !== null);
  while (wanted.length) {
    const input = asked(context, token, "id", wanted);
    for (const one of (await graphql(KIN, { input }, { signal: context.signal })).listAccessTokens.tokens)
      known.set(one.id, one);
    const found = next === null ? undefined : known.get(next);
    if (next !== null) above.push({ id: next, token: found });
    next = found ? (found.parentId ?? found.createdWith) : null;
    wanted = next === null || above.length >= MOST_LEVELS || above.some(({ id }) => id === next) ? [] : [next];
  }
  return { above, known };
}

/** All tokens created with it, by the id of the one above them. @param {Context} context @param {Token} token */
async function descendants(context, token) {
  /** @type {Map<string, Token[]>} */
  const children = new Map();
  const seen = new Set([token.id]);
  let level = [token.id];
  let more = 0;
  for (let depth = 0; level.length && depth < MOST_LEVELS && seen.size <= MOST_NODES; depth += 1) {
    const found = await graphql(
      MADE,
      { derived: asked(context, token, "parentId", level), created: asked(context, token, "createdWith", level) },
      { signal: context.signal },
    );
    level = [];
    for (const child of [...found.derived.tokens, ...found.created.tokens]) {
      if (seen.has(child.id)) continue;
      seen.add(child.id);
      level.push(child.id);
      const under = child.parentId && seen.has(child.parentId) ? child.parentId : child.createdWith;
      children.set(under, [...(children.get(under) ?? []), child]);
    }
    more +=
      Math.max(found.derived.total - found.derived.tokens.length, 0) +
      Math.max(found.created.total - found.created.tokens.length, 0);
  }
  return { children, more };
}

/**
 * Among the tokens that the caller may list.
 * @param {Context} context @param {Token} token @param {string} field @param {string[]} ids
 */
const asked = ({ me }, token, field, ids) => ({
  count: MOST_NODES,
  filters: [
    { field, condition: "IN", values: ids },
    ANY_STATUS,
    ...(me.privileges.manageTokens
      ? []
      : token.actorUrn !== me.urn && token.ownerUrn === me.urn
        ? [{ field: "ownerUrn", value: me.urn }]
        : [{ field: "actorUrn", value: token.actorUrn }]),
  ],
});

/** @param {Token} token how it came to be */
const origin = (token) =>
  token.parentId
    ? "derived: it is revoked and expires with the token above"
    : token.createdWith
      ? "created with the token above; stays valid without it"
      : "";

/** @param {Token} token @param {Map<string, Token>} known @param {Place} place */
const succession = (
  token,
  known,
  place,
) => html`${token.replaces ? html`<p>replaces ${other(token.replaces, known.get(token.replaces), place)}</p>` : null}
  ${
    token.replacedBy
      ? html`<p>replaced by ${other(token.replacedBy, known.get(token.replacedBy), place)}${
          token.replacedAt === null ? ", after its first use" : html`, in use since ${time(token.replacedAt)}`
        }</p>`
      : null
  }`;

/** @param {string} id @param {Token | undefined} token undefined: the caller may not see it @param {Place} place */
const other = (id, token, place) =>
  token
    ? html`<a href="${place.path(id)}">${token.name}</a> ${statusOf(token)}`
    : html`<span class="mono quiet" title="${id}">${id.slice(0, 8)}…</span>`;

/** @param {Map<string, Token[]>} children @param {string} id @param {Place} place @returns {unknown} */
function branch(children, id, place) {
  const here = children.get(id);
  return here
    ? html`<ul class="tree">${here.map(
        (child) => html`<li><a href="${place.path(child.id)}">${child.name}</a>
    ${statusOf(child)} <span class="quiet small">${
      child.parentId === id ? "derived: revoked with it" : "created with it: stays valid"
    }</span>
    ${branch(children, child.id, place)}</li>`,
      )}</ul>`
    : null;
}
