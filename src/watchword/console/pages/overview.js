/** Overview: what there is, what happens to it, and what needs attention; of all tokens, or of the caller's own. */

import { html, render, svg } from "../html.js";
import { graphql } from "../api.js";
import { DAY, actor, counted, fullTime, inTerminal, number, time } from "../format.js";
import { codeBox, loadList, loading } from "../components.js";
import { go, setHooks } from "../router.js";
import { barChart, dayName, fullDay, startOf } from "../charts.js";
import { finder } from "../palette.js";
import { ROW, detailsPath, mayRevoke, mayRotate } from "../token_display.js";
import { actorPath } from "./actor_names.js";

/**
 * @typedef {import("../charts.js").DayCount} DayCount
 * @typedef {import("../router.js").Context} Context
 * @typedef {import("../token_display.js").Token} Token
 * @typedef {{live: number, expiring7Days: number, unused90Days: number | null, neverExpiring: number,
 *   suspended: number, usesByDay: DayCount[], expiriesByDay: DayCount[], denialsByDay: DayCount[] | null,
 *   failedSignInsByDay: DayCount[] | null, owners: {actorUrn: string, actorName: string | null, count: number}[],
 *   people: {urn: string, displayName: string | null}[] | null}} Numbers `people`: who is suspended, for those who may
 *   offboard them
 * @typedef {{text: unknown, action: string, href: string, risky?: boolean}} Need a problem to fix, and the link to it
 */

const OVERVIEW = `query Overview($all: Boolean, $people: Boolean!) { overview(input: {all: $all}) {
  live expiring7Days unused90Days neverExpiring suspended
  usesByDay { day count } expiriesByDay { day count } denialsByDay { day count } failedSignInsByDay { day count }
  owners { actorUrn actorName count } }
  listActors(input: {onlySuspended: true, count: 100}) @include(if: $people) { actors { urn displayName } } }`;
const TOKENS = `query NeedingTokens($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total tokens {
  ${ROW} } } }`;
const WEBHOOKS = `{ listWebhooks(input: {count: 100}) { webhooks { id name state failingSince } } }`;
const RUNS = `{ retentionRuns(input: {count: 100}) { runs { number series state plan { rowsToDelete } } } }`;
/** How many tokens of a kind are named. */
const NAMED = 4;
const WEEK = 7 * DAY;

/** @param {Context} first */
export async function page(first) {
  const { root, me } = first;
  const { privileges: may } = me;
  first.title("Overview");
  const all = may.manageTokens;
  const list = all ? "/console/all-tokens" : "/console/tokens";
  let { signal } = first;
  render(
    root,
    html`<div class="page-head"><h1>Overview</h1>${
      may.generatePersonalAccessTokens
        ? html`<a class="button primary" data-key="new" href="/console/tokens/new">New token</a>`
        : null
    }</div>
    ${finder(me, { inline: true })}
    <div class="overview"><div id="numbers">${loading()}</div>
      <section class="card" aria-labelledby="needs-title"><h2 id="needs-title">Needs attention</h2><div
        id="needs">${loading()}</div></section>
      <div id="charts" class="charts"></div></div>`,
  );
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @type {Numbers | null} */
  let found = null;
  /** @type {Promise<void> | null} */
  let needs = null;

  const showNumbers = () =>
    loadList(place("numbers"), signal, async (mine) => {
      if (!may.generatePersonalAccessTokens && !all) {
        render(
          place("numbers"),
          html`<p>No policy lets you create or list tokens of your own. Tokens that others created for you
        work. <a href="/console/tokens">What to ask for</a></p>`,
        );
        return;
      }
      const answer = await graphql(OVERVIEW, { all, people: may.managePolicies && may.manageTokens }, { signal: mine });
      const numbers = /** @type {Numbers} */ ({ ...answer.overview, people: answer.listActors?.actors ?? null });
      found = numbers;
      render(place("numbers"), isEmpty(numbers, me) ? firstSteps(me) : tiles(numbers, list));
      // The charts come after what is above them, so that nothing moves.
      needs = showNeeds().then(() => render(place("charts"), charts(numbers, list, all)));
    });

  const showNeeds = () =>
    loadList(place("needs"), signal, async (mine) => {
      const rows = (
        await Promise.all([
          ...(found
            ? [expiring(found, me, all, list, mine), unused(found, me, all, list, mine), suspended(found, mine)]
            : []),
          webhooks(me, mine),
          waitingRuns(me, mine),
        ])
      ).flat();
      render(
        place("needs"),
        rows.length
          ? html`<ul class="needs-list">${rows.map(
              (need) => html`<li><span>${need.text}</span><a
      class="button ${need.risky ? "danger" : ""}" href="${need.href}">${need.action}</a></li>`,
            )}</ul>`
          : found &&
              html`<p class="quiet">Nothing: no token in use expires within 7 days, and nothing waits for you.</p>`,
      );
    });

  async function show() {
    needs = null;
    await showNumbers();
    // Without the numbers: what does not need them.
    await (needs ?? showNeeds());
  }

  setHooks(root, {
    again: async (next) => {
      ({ signal } = next);
      await show();
    },
  });
  await show();
}

/**
 * Only the token that the caller signed in with, or none.
 * @param {Numbers} found @param {import("../shell.js").Me} me
 */
const isEmpty = (found, me) =>
  found.live <= (me.tokenId ? 1 : 0) && !found.suspended && me.privileges.generatePersonalAccessTokens;

/** @param {import("../shell.js").Me} me */
function firstSteps(me) {
  const signIn = me.localMode ? "" : `watchword login --url ${location.origin}\n`;
  const create = inTerminal("watchword token create --name first", me);
  const revoke = inTerminal("watchword token revoke - --yes", me);
  return html`<section class="card start" aria-labelledby="start-title"><h2 id="start-title">Start in three steps</h2>
    <ol class="steps">
    <li><p><strong>Create a token.</strong> <a href="/console/tokens/new">Here</a>, or in a
      terminal:</p>${codeBox(`${signIn}TOKEN=$(${create})`)}</li>
    <li><p><strong>Verify it</strong>, as a gateway does for each request. The answer is 204, with the actor in a
      header:</p>
      ${codeBox(`printf 'Authorization: Bearer %s' "$TOKEN" | curl -sS -i -H @- '${location.origin}/auth'`)}</li>
    <li><p><strong>Revoke it.</strong> The next request with it gets
      401:</p>${codeBox(`printf '%s' "$TOKEN" | ${revoke}`)}</li></ol>
    ${
      me.dataDir ? html`<p class="quiet small">The server keeps its data in <code>${me.dataDir}</code>.</p>` : null
    }</section>`;
}

/** @param {Numbers} found @param {string} list */
const tiles = (found, list) =>
  html`<ul class="tiles" aria-label="Summary">${
    /** @type {[string, number | null, string][]} */ ([
      ["live", found.live, "status=live"],
      ["expire within 7 days", found.expiring7Days, "status=live&expires=week"],
      ["not used in 90 days", found.unused90Days, "status=live&used=idle90"],
      ["never expire", found.neverExpiring, "status=live&expires=never"],
    ]).map(
      ([words, count, query]) =>
        html`<li><a class="tile" href="${list}?${query}"><strong>${count === null ? "…" : number(count)}</strong>
          ${words}</a></li>`,
    )
  }</ul>`;

/** @param {Numbers} found @param {string} list @param {boolean} all */
function charts(found, list, all) {
  const { denialsByDay: denied, failedSignInsByDay: signIns } = found;
  return html`${card(
    "Use, 30 days",
    html`${barChart({
      label: "Accepted requests by day",
      series: [{ name: "accepted", kind: "used", days: found.usesByDay }],
    })}`,
  )}
    ${
      denied && signIns
        ? card(
            "Denials and failed sign-ins, 30 days",
            html`${barChart({
              label: "Denied requests and failed sign-ins by day",
              series: [
                { name: "denied", kind: "denied", days: denied },
                { name: "failed sign-ins", kind: "failed-sign-in", days: signIns },
              ],
              onBrush: (from, to) =>
                go(`/console/activity?show=denials&since=${startOf(from)}&until=${startOf(to) + DAY}`),
            })}
      <p class="row"><a href="/console/activity?show=denials">Denials</a> <a
        href="/console/activity?show=sign-ins">Sign-ins</a></p>`,
          )
        : null
    }
    ${card("Expiries, 12 weeks", calendar(found.expiriesByDay, list))}
    ${all && found.owners.length ? card("Live tokens by owner", owners(found.owners)) : null}`;
}

/** @param {string} title @param {unknown} content */
const card = (title, content) => html`<section class="card"><h2>${title}</h2>${content}</section>`;

/** @param {Numbers["owners"]} rows */
function owners(rows) {
  const most = Math.max(1, ...rows.map((one) => one.count));
  return html`<table class="owners"><caption class="unseen">Live tokens by owner</caption><tbody>${rows.map(
    (one) => html`<tr><th scope="row"><a
    href="/console/all-tokens?status=live&amp;owner=${encodeURIComponent(one.actorUrn)}">${actor(
      one.actorUrn,
      one.actorName,
    )}</a></th>
    <td class="owner-bar"><svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none"
      aria-hidden="true">${svg`<rect class="ground"
      width="100" height="10"></rect><rect class="stay" width="${(one.count / most) * 100}" height="10">
        </rect>`}</svg></td><td class="number">${number(one.count)}</td></tr>`,
  )}</tbody></table>`;
}

/**
 * A column a week from today on, a row a day of the week. Arrow keys go from one day with tokens to the next.
 * @param {DayCount[]} days @param {string} list
 */
function calendar(days, list) {
  const most = Math.max(1, ...days.map((one) => one.count));
  const weeks = Math.ceil(days.length / 7);
  const first = days.findIndex((one) => one.count);
  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const step = { ArrowLeft: -7, ArrowRight: 7, ArrowUp: -1, ArrowDown: 1 }[event.key];
    const grid = /** @type {HTMLElement} */ (event.currentTarget);
    const here = event.target instanceof HTMLElement ? Number(event.target.dataset.at) : NaN;
    if (!step || Number.isNaN(here)) return;
    event.preventDefault();
    const links = [...grid.querySelectorAll("a")]
      .map((link) => ({ link, at: Number(link.dataset.at) }))
      .sort((a, b) => a.at - b.at);
    const next = step > 0 ? links.find(({ at }) => at >= here + step) : links.findLast(({ at }) => at <= here + step);
    if (!next) return;
    links.forEach(({ link }) => link.setAttribute("tabindex", link === next.link ? "0" : "-1"));
    next.link.focus();
  };
  return html`<table class="calendar" role="grid" @keydown=${move}><caption class="unseen">Tokens that expire, by
    day</caption>
    <thead><tr><th scope="col"><span class="unseen">Day</span></th>${Array.from(
      { length: weeks },
      (_, week) => html`<th scope="col"><span
      class="${week % 3 ? "unseen" : ""}">${dayName(days[week * 7].day)}</span></th>`,
    )}</tr></thead>
    <tbody>${days.slice(0, 7).map(
      (row, weekday) =>
        html`<tr><th scope="row">${weekdayOf(row.day)}</th>${Array.from({ length: weeks }, (_, week) => {
          const at = week * 7 + weekday;
          const one = days[at];
          if (!one) return html`<td></td>`;
          return one.count
            ? html`<td class="level-${Math.ceil((Math.log(one.count + 1) / Math.log(most + 1)) * 4)}"><a
              href="${list}?status=live&amp;expires=${one.day}"
        data-at="${at}" tabindex="${at === first ? "0" : "-1"}"
          aria-label="${counted(one.count, "token")} ${one.count === 1 ? "expires" : "expire"} on ${fullDay(one.day)}"
        title="${fullDay(one.day)}: ${counted(one.count, "token")}">${one.count > 99 ? "99+" : one.count}</a></td>`
            : html`<td title="${fullDay(one.day)}"><span class="unseen">none</span></td>`;
        })}</tr>`,
    )}</tbody></table>`;
}

const weekday = new Intl.DateTimeFormat("en-GB", { weekday: "short", timeZone: "UTC" });
/** @param {string} day */
const weekdayOf = (day) => weekday.format(startOf(day));

/**
 * @param {import("../shell.js").Me} me @param {boolean} all @param {import("../token_display.js").Filter[]} filters
 * @param {string} sort @param {AbortSignal} signal @returns {Promise<{total: number, tokens: Token[]}>}
 */
async function tokensWith(me, all, filters, sort, signal) {
  const own = all ? [] : [{ field: "actorUrn", value: me.urn }];
  const input = {
    count: NAMED,
    filters: [...own, { field: "effectiveStatus", value: "ACTIVE" }, ...filters],
    sort: { field: sort, order: "ASCENDING" },
  };
  return (await graphql(TOKENS, { input }, { signal })).listAccessTokens;
}

/**
 * @param {Numbers} found @param {import("../shell.js").Me} me @param {boolean} all @param {string} list
 * @param {AbortSignal} signal
 * @returns {Promise<Need[]>}
 */
async function expiring(found, me, all, list, signal) {
  if (!found.expiring7Days) return [];
  const now = Date.now();
  const { total, tokens } = await tokensWith(
    me,
    all,
    [
      { field: "expiresAt", condition: "GREATER_THAN", value: String(now) },
      { field: "expiresAt", condition: "LESS_THAN", value: String(now + WEEK) },
      { field: "lastUsedAt", condition: "GREATER_THAN", value: "P7D" },
    ],
    "expiresAt",
    signal,
  );
  const shown = tokens.filter((token) => mayRotate(token, me));
  const successors = shown.flatMap((token) => token.replacedBy ?? []);
  // A successor that was not used in time has expired.
  const waiting = successors.length
    ? (await tokensWith(me, all, [{ field: "id", condition: "IN", values: successors }], "name", signal)).tokens
    : [];
  const rest = total - tokens.length;
  return [
    ...shown.map((token) => {
      const next = waiting.find((one) => one.id === token.replacedBy);
      return {
        text: html`<strong>${token.name}</strong>${whose(token, me)} is in use and expires ${time(token.expiresAt)}.${
          next ? html` Its successor waits for its first use until ${fullTime(next.expiresAt)}.` : null
        }`,
        ...(next
          ? { action: "Open successor", href: detailsPath(next, me) }
          : { action: "Rotate…", href: `${detailsPath(token, me)}#rotate` }),
      };
    }),
    ...(rest
      ? [
          {
            text: html`<strong>${counted(rest, "more token")}</strong> in use ${rest === 1 ? "expires" : "expire"}
              within 7 days.`,
            action: "Show all…",
            href: `${list}?status=live&expires=week&used=week`,
          },
        ]
      : []),
  ];
}

/** @param {Token} token @param {import("../shell.js").Me} me */
const whose = (token, me) => (token.actorUrn === me.urn ? null : html` of ${actor(token.actorUrn, token.actorName)}`);

/**
 * Of all tokens only the number, which the service keeps: to find them would take a look at each.
 * @param {Numbers} found @param {import("../shell.js").Me} me @param {boolean} all @param {string} list
 * @param {AbortSignal} signal
 * @returns {Promise<Need[]>}
 */
async function unused(found, me, all, list, signal) {
  if (!found.unused90Days) return [];
  if (all || found.unused90Days > NAMED) {
    return [
      {
        text: html`<strong>${counted(found.unused90Days, "live token")}</strong> not used in 90 days.`,
        action: "Review and revoke…",
        href: `${list}?status=live&used=idle90`,
      },
    ];
  }
  const { tokens } = await tokensWith(
    me,
    all,
    [{ field: "lastActivityAt", condition: "LESS_THAN", value: "P90D" }],
    "lastActivityAt",
    signal,
  );
  return tokens
    .filter((token) => mayRevoke(token, me))
    .map((token) => ({
      text: html`<strong>${token.name}</strong> was ${
        token.lastUsedAt === null ? "never used" : html`last used ${time(token.lastUsedAt)}`
      }.`,
      action: "Revoke…",
      href: `${detailsPath(token, me)}#revoke`,
      risky: true,
    }));
}

/** @param {Numbers} found @param {AbortSignal} signal @returns {Promise<Need[]>} */
async function suspended({ suspended: count, people }, signal) {
  if (!count || !people) return [];
  // By actor, so that an index finds them.
  const filters = [
    { field: "actorUrn", condition: "IN", values: people.map((one) => one.urn) },
    { field: "status", value: "ACTIVE" },
  ];
  /** @type {Token[]} */
  const tokens = people.length
    ? (await graphql(TOKENS, { input: { count: 100, filters } }, { signal })).listAccessTokens.tokens
    : [];
  const named = people.filter((one) => tokens.some((token) => token.actorUrn === one.urn)).slice(0, NAMED);
  if (!named.length) {
    return [
      {
        text: html`<strong>${counted(count, "token")}</strong> of suspended people ${count === 1 ? "is" : "are"} not
          revoked.`,
        action: "Review and revoke…",
        href: "/console/all-tokens?status=suspended",
      },
    ];
  }
  return named.map((one) => ({
    text: html`${actor(one.urn, one.displayName)} is suspended and has tokens that are not revoked.`,
    action: "Offboard…",
    href: `${actorPath(one.urn)}/offboard`,
  }));
}

/** @param {import("../shell.js").Me} me @param {AbortSignal} signal @returns {Promise<Need[]>} */
async function webhooks({ privileges: may }, signal) {
  if (!may.manageWebhooks || !may.viewAuditLog) return [];
  /** @type {{id: string, name: string, state: string, failingSince: number | null}[]} */
  const found = (await graphql(WEBHOOKS, {}, { signal })).listWebhooks.webhooks;
  return found
    .filter((one) => one.state === "STOPPED" || one.failingSince !== null)
    .slice(0, NAMED)
    .map((one) => ({
      text: html`The webhook <strong>${one.name}</strong> ${
        one.state === "STOPPED" ? "stopped: its receiver failed" : html`fails since ${time(one.failingSince)}`
      }.`,
      action: "See deliveries",
      href: `/console/webhooks/${encodeURIComponent(one.id)}`,
    }));
}

/** @param {import("../shell.js").Me} me @param {AbortSignal} signal @returns {Promise<Need[]>} */
async function waitingRuns({ privileges: may }, signal) {
  if (!may.truncateTimeseries) return [];
  /** @type {{number: number, series: string, state: string, plan: {rowsToDelete: number} | null}[]} */
  const runs = (await graphql(RUNS, {}, { signal })).retentionRuns.runs;
  return runs
    .filter((one) => one.state === "WAITING")
    .slice(0, NAMED)
    .map((one) => ({
      text: html`The retention run ${number(one.number)} of <strong>${one.series}</strong> waits for
        approval${one.plan ? ` to remove ${counted(one.plan.rowsToDelete, "row")}` : ""}.`,
      action: "Review…",
      href: `/console/retention/${encodeURIComponent(one.series)}`,
    }));
}
