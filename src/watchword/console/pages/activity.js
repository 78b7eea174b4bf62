/** Activity: the audit log, newest first, filtered by action, actor, target and time. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { exact, inTerminal, nameOf, number, short, time, tokenPath, utc } from "../format.js";
import { empty, loadList, table } from "../components.js";
import { goQuery, setHooks, withQuery } from "../router.js";
import { actorInput, actorLink, actorPath, actorName, groupName, userUrn } from "./actor_names.js";

/**
 * @typedef {{id: string, at: number, action: string, actorUrn: string, actorName: string | null, tokenId: string | null, target: string, peer: string,
 *   requestId: string, detail: Record<string, unknown>}} Happened
 */

const LIST = `query Events($input: ListEventsInput) { listEvents(input: $input) { count cursor events {
  id at action actorUrn actorName tokenId target peer requestId detail } } }`;
const ACTIONS = `{ listEventActions { name description } }`;
const NAMES = ["action", "actor", "target", "since", "until"];

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  context.title("Activity");
  /** @type {{name: string, description: string}[]} */
  const actions = (await graphql(ACTIONS, {}, { signal: context.signal })).listEventActions;
  let at = context;
  render(root, html`<div class="page-head"><h1>Activity</h1></div>
    <p class="quiet lead">The audit log: every change and every denied request. Events cannot be changed.</p>
    <div class="filters" id="filters"></div><div id="list" class="stack"></div>`);
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @param {import("../router.js").Context} now */
  async function show(now) {
    at = now;
    showFilters();
    const one = (/** @type {string} */ name) => (at.query.get(name) ? [at.query.get(name)] : undefined);
    const moment = (/** @type {string} */ name) => momentOf(at.query.get(name)) ?? (at.query.get(name) || undefined); // the server says what is wrong
    const input = {
      count: 30, cursor: at.query.get("cursor") ?? undefined, actions: one("action"), targets: one("target"),
      actorUrns: at.query.get("actor") ? [userUrn(at.query.get("actor") ?? "")] : undefined, since: moment("since"), until: moment("until"),
    };
    await loadList(place("list"), at.signal, async (signal) => {
      const found = (await graphql(LIST, { input }, { signal })).listEvents;
      render(place("list"), found.events.length ? html`${events(found.events)}${further(found.cursor)}` : nothing());
    });
  }

  /** @param {Record<string, string | number | null>} changes */
  const narrow = (changes) => goQuery({ cursor: null, ...changes });
  const isNarrowed = () => NAMES.some((name) => at.query.get(name));

  function showFilters() {
    const chosen = at.query.get("action") ?? "";
    render(place("filters"), html`<label>Action <select id="filter-action" @change=${(/** @type {Event} */ e) => narrow({ action: value(e) })}>
        <option value="">Any</option>${kinds(actions).map(([kind, some]) => html`<optgroup label="${kind}">${some.map((one) => html`<option
          value="${one.name}" title="${one.description}" .selected=${one.name === chosen}>${one.name}</option>`)}</optgroup>`)}</select></label>
      <label>Actor ${actorInput(me, { id: "filter-actor", value: actorName(userUrn(at.query.get("actor") ?? "")), placeholder: "Any",
        change: (urn) => narrow({ actor: urn }) })}</label>
      <label>Target <input id="filter-target" data-key="search" placeholder="Id or urn" autocomplete="off" spellcheck="false" maxlength="500"
        .value=${at.query.get("target") ?? ""} @change=${(/** @type {Event} */ e) => narrow({ target: value(e) })}></label>
      ${["since", "until"].map((name) => html`<label>${name === "since" ? "From" : "Before"} <input id="filter-${name}" type="datetime-local" step="1"
        .value=${local(at.query.get(name))} @change=${(/** @type {Event} */ e) => narrow({ [name]: value(e) ? new Date(value(e)).getTime() : null })}></label>`)}
      ${isNarrowed() ? html`<a class="button" href="/console/activity">Clear filters</a>` : null}`);
  }

  const events = (/** @type {Happened[]} */ rows) => table({
    caption: "Events, newest first", rows,
    columns: [
      { label: "Time", class: "nowrap light", cell: (event) => time(event.at) },
      { label: "Action", cell: (event) => html`<a href="${withQuery({ action: event.action, cursor: null })}"
          title="${actions.find((one) => one.name === event.action)?.description ?? ""}">${event.action}</a>` },
      { label: "Actor", cell: (event) => who(event) },
      { label: "Target", cell: (event) => target(event) },
      { label: "", cell: (event) => html`<details><summary>Details<span class="unseen"> of ${event.action} at ${exact(event.at)}</span></summary>${details(event)}</details>` },
    ],
  });

  /** @param {Happened} event */
  function who(event) {
    const name = nameOf(event.actorUrn);
    if (name === "__system") return html`<span class="quiet" title="${event.actorUrn}">the service</span>`;
    if (name === "__unknown") return html`<span class="quiet" title="${event.actorUrn}">unknown</span>`;
    return actorLink(event.actorUrn, me, event.actorName);
  }

  /** @param {Happened} event */
  function target({ target: to }) {
    if (/^[A-Za-z0-9+/]{43}=$/.test(to)) return html`<a href="${tokenPath(to)}" title="${to}">token <code>${short(to)}</code></a>`;
    if (to.startsWith("urn:li:servicePolicy:") && me.privileges.managePolicies) {
      return html`<a href="/console/policies/${encodeURIComponent(to)}" title="${to}">policy ${short(nameOf(to), 10)}</a>`;
    }
    if (to.startsWith("urn:li:corpGroup:") && me.privileges.managePolicies) {
      return html`<a href="${actorPath(to)}?show=groups" title="${to}">group ${groupName(to)}</a>`;
    }
    if (to.startsWith("urn:li:corpuser:")) return actorLink(to, me);
    if (/^[0-9a-f]+:\d+$/.test(to) && me.privileges.truncateTimeseries) {
      return html`<a href="/console/operations/${encodeURIComponent(to)}" title="${to}">operation <code>${short(to)}</code></a>`;
    }
    return html`<span title="${to}">${short(to, 16)}</span>`;
  }

  /** @param {Happened} event */
  const details = (event) => html`<dl class="facts small"><dt>Time</dt><dd>${exact(event.at)}<br>${utc(event.at)}</dd>
    <dt>Target</dt><dd><a href="${withQuery({ target: event.target, cursor: null })}"><code>${event.target}</code></a></dd>
    ${event.tokenId ? html`<dt>Token</dt><dd><a href="${tokenPath(event.tokenId)}">token <code>${short(event.tokenId)}</code></a></dd>` : null}
    <dt>Client</dt><dd>${event.peer || "–"}</dd><dt>Request</dt><dd><code>${event.requestId || "–"}</code></dd>
    ${Object.entries(event.detail).map(([name, told]) => html`<dt>${name}</dt><dd>${spoken(name, told)}</dd>`)}</dl>`;

  /** @param {string | null} next */
  const further = (next) => html`<nav class="pager" aria-label="Pages"><span>${at.query.get("cursor")
    ? html`<a href="${withQuery({ cursor: null })}">‹ Newest</a>` : null}</span><span>${next
    ? html`<a rel="next" href="${withQuery({ cursor: next })}">Older ›</a>` : html`<span class="quiet">No older events</span>`}</span></nav>`;

  const nothing = () => empty({
    title: isNarrowed() ? "No event matches" : "No events yet",
    sentence: "Events older than the configured retention are deleted.",
    action: isNarrowed() ? html`<a class="button" href="/console/activity">Clear filters</a>` : undefined,
    command: inTerminal("watchword event list", me),
  });

  setHooks(root, { again: show });
  await show(context);
}

/** @param {string} name @param {unknown} told @returns {unknown} a value of an event's details as text */
function spoken(name, told) {
  if (told === null || told === undefined) return "–";
  if (typeof told === "number" && (name.endsWith("At") || name.endsWith("Millis"))) return time(told);
  if (typeof told === "number") return number(told);
  if (Array.isArray(told)) return told.map(String).join(", ") || "–";
  return typeof told === "object" ? JSON.stringify(told) : String(told);
}

/** Grouped by the part before the dot. @param {{name: string, description: string}[]} actions @returns {[string, {name: string, description: string}[]][]} */
function kinds(actions) {
  /** @type {Map<string, {name: string, description: string}[]>} */
  const found = new Map();
  for (const one of actions) {
    const kind = one.name.slice(0, one.name.indexOf("."));
    found.set(kind, [...(found.get(kind) ?? []), one]);
  }
  return [...found];
}

/** A time in the form of the input, in the user's time zone. @param {string | null} moment */
function local(moment) {
  const millis = momentOf(moment);
  if (millis === null) return "";
  const date = new Date(millis);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** Milliseconds in the range of Date. @param {string | null} text */
const momentOf = (text) => (/^-?\d{1,14}$/.test(text ?? "") ? Number(text) : null);

/** @param {Event} event */
const value = (event) => /** @type {HTMLInputElement} */ (event.currentTarget).value.trim();
