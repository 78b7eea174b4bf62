/** Activity: the audit log in sentences, newest first, filtered by kind, people, target and time. */

import { html, render } from "../html.js";
import { ApiError, graphql, isAborted } from "../api.js";
import { DAY, HOUR, counted, exact, inTerminal, number, short, time, tokenPath, utc } from "../format.js";
import { empty, errorLine, loadList, notice, say, whileBusy } from "../components.js";
import { barChart } from "../charts.js";
import { csvText, csvTime, saveCsv, saveFile } from "../csv.js";
import { EVENT, sentence, sentenceText } from "../event_sentences.js";
import { actorPicker, isUrn, whoIs } from "../actor_picker.js";
import { goQuery, setHooks, withQuery } from "../router.js";

/**
 * @typedef {import("../event_sentences.js").AuditEvent} AuditEvent
 * @typedef {{name: string, description: string, kind: string}} Action
 * @typedef {{count: number, newest: AuditEvent, others: AuditEvent[]}} Run events with the same sentence, one after the
 *   other
 */

const LIST = `query Events($input: ListEventsInput) { listEvents(input: $input) { count cursor events { ${EVENT} } } }`;
const COUNTS = `query Counts($input: EventCountsInput!) { eventCounts(input: $input) { countedSince counts {
  start kind count } } }`;
const ACTIONS = `{ listEventActions { name description kind } }`;
const NAMES = ["show", "range", "action", "actor", "about", "target", "since", "until"];
const COUNT = 50;
const MOST_EXPORTED = 10_000;
const EXPORT_PAGE = 1_000;

/** The kinds of events, from the bottom of the bars. */
const KINDS = [
  { kind: "TOKENS", name: "tokens" },
  { kind: "ACCESS", name: "people and policies" },
  { kind: "SIGN_INS", name: "sign-ins" },
  { kind: "DATA", name: "retention and operations" },
  { kind: "SERVICE", name: "service" },
  { kind: "DENIALS", name: "denials" },
];
/** @type {Record<string, {label: string, since: (now: number) => number}>} */
const RANGES = {
  hour: { label: "Last hour", since: (now) => now - HOUR },
  today: { label: "Today", since: (now) => dayStart(now) },
  week: { label: "7 days", since: (now) => dayStart(now, 6) },
};
/** @type {Record<string, {label: string, has: (action: Action) => boolean}>} */
const SHOWN = {
  denials: { label: "Denials", has: (action) => action.kind === "DENIALS" },
  "sign-ins": {
    label: "Sign-ins",
    has: (action) => action.kind === "SIGN_INS" || action.name === "authentication.failed",
  },
  retention: { label: "Retention", has: (action) => action.kind === "DATA" },
};

const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });
const longDay = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" });

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  context.title("Activity");
  /** @type {Action[]} */
  let actions = [];
  let at = context;
  const pickers = ["actor", "about"].map((name) => ({
    name,
    picker: actorPicker(me, { id: `filter-${name}`, placeholder: "Anyone", change: (urn) => narrow({ [name]: urn }) }),
  }));
  /** A name in the address of which it is not known who it is. */
  const unchosen = () => pickers.map(({ name }) => at.query.get(name)).find((value) => value && !isUrn(value));
  render(
    root,
    html`<div class="page-head"><h1>Activity</h1></div>
    <p class="quiet lead">The audit log: every change and every denied request. Events cannot be changed.</p>
    <nav class="presets" aria-label="Presets" id="presets"></nav>
    <div class="filters" id="filters"></div>
    <div id="chart" class="picture"></div><div id="said-here"></div><div id="list" class="stack"></div>`,
  );
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @param {import("../router.js").Context} now */
  async function show(now) {
    at = now;
    showPresets();
    showFilters();
    render(place("said-here"), null);
    const known = learnActions(now.signal);
    if (at.query.get("show")) await known;
    await Promise.all([list(known), chart(), known]);
  }

  /** Asked for together with the events, and once. @param {AbortSignal} signal */
  async function learnActions(signal) {
    if (actions.length) return;
    actions = (await graphql(ACTIONS, {}, { signal })).listEventActions;
    showFilters();
  }

  const list = (/** @type {Promise<void>} */ known) =>
    loadList(place("list"), at.signal, async (signal) => {
      const whom = unchosen();
      if (whom) {
        render(place("list"), whoIs(whom));
        return;
      }
      const input = { ...filter(), count: COUNT, cursor: at.query.get("cursor") ?? undefined };
      const [{ listEvents: found }] = await Promise.all([graphql(LIST, { input }, { signal }), known]);
      render(
        place("list"),
        found.events.length ? html`${head(found.cursor)}${byDay(found.events)}${further(found.cursor)}` : nothing(),
      );
    });

  /** What the address asks for, as the API takes it. A wrong value is sent as it is: the server says what is wrong. */
  function filter() {
    const one = (/** @type {string} */ name) => (at.query.get(name) ? [at.query.get(name)] : undefined);
    const moment = (/** @type {string} */ name) => momentOf(at.query.get(name)) ?? (at.query.get(name) || undefined);
    const shown = SHOWN[at.query.get("show") ?? ""];
    return {
      actions: one("action") ?? (shown ? actions.filter(shown.has).map((action) => action.name) : undefined),
      actorUrns: one("actor"),
      aboutUrns: one("about"),
      targets: one("target"),
      since: moment("since") ?? RANGES[at.query.get("range") ?? ""]?.since(Date.now()),
      until: moment("until"),
    };
  }

  /** @param {Record<string, string | number | null>} changes */
  const narrow = (changes) => goQuery({ cursor: null, ...changes });
  const isNarrowed = () => NAMES.some((name) => at.query.get(name));

  function showPresets() {
    /** @param {string} name @param {string} value @param {string} label */
    const preset = (name, value, label) => {
      const chosen = at.query.get(name) === value && !at.query.get(name === "show" ? "action" : "since");
      const others = name === "show" ? { action: null } : { since: null, until: null };
      return html`<a id="preset-${value}" href="${withQuery({
        ...others,
        cursor: null,
        [name]: chosen ? null : value,
      })}"
        aria-current="${chosen ? "true" : null}">${label}</a>`;
    };
    render(
      place("presets"),
      html`${Object.entries(RANGES).map(([value, { label }]) => preset("range", value, label))}
      ${Object.entries(SHOWN).map(([value, { label }]) => preset("show", value, label))}`,
    );
  }

  function showFilters() {
    const chosen = at.query.get("action") ?? "";
    const exactly =
      ["since", "until"].some((name) => at.query.get(name)) || root.querySelector("#times[open]") !== null;
    pickers.forEach(({ name, picker }) => picker.set(at.query.get(name) ?? ""));
    render(
      place("filters"),
      html`<label>Action <select id="filter-action" @change=${(/** @type {Event} */ e) =>
        narrow({ action: value(e), show: null })}>
        <option value="">Any</option>${nouns(actions).map(
          ([noun, some]) =>
            html`<optgroup label="${noun}">${some.map(
              (one) => html`<option
          value="${one.name}" title="${one.description}" .selected=${one.name === chosen}>${one.name}</option>`,
            )}</optgroup>`,
        )}</select></label>
      ${pickers.map(
        ({ name, picker }) =>
          html`<div class="filter"><label for="filter-${name}">${
            name === "actor" ? "By" : "About"
          }</label>${picker.node}</div>`,
      )}
      <label>Target <input id="filter-target" placeholder="Id or urn" autocomplete="off" spellcheck="false"
        maxlength="500"
        .value=${at.query.get("target") ?? ""} @change=${(/** @type {Event} */ e) =>
          narrow({ target: value(e) })}></label>
      <details class="more" id="times" .open=${exactly}><summary id="exact-times">Exact times</summary><div
        class="filters">
      ${["since", "until"].map(
        (name) => html`<label>${name === "since" ? "From" : "Before"} <input id="filter-${name}" type="datetime-local"
          step="1"
        .value=${local(at.query.get(name))} @change=${(/** @type {Event} */ e) =>
          narrow({ range: null, [name]: value(e) ? new Date(value(e)).getTime() : null })}></label>`,
      )}</div></details>
      ${isNarrowed() ? html`<a class="button" href="/console/activity">Clear filters</a>` : null}`,
    );
  }

  /** The events of the filter over time. A wrong filter is reported with the list. */
  async function chart() {
    const { since, until, ...others } = filter();
    if (unchosen() || [since, until].some((one) => typeof one === "string")) {
      render(place("chart"), null);
      return;
    }
    const span = steps(/** @type {number | undefined} */ (since), /** @type {number | undefined} */ (until));
    try {
      await whileBusy(place("chart"), at.signal, async (signal) => {
        const input = { ...others, since: span.since, until: span.until, step: span.step };
        const found = (await graphql(COUNTS, { input }, { signal })).eventCounts;
        const { bars, named } = barsOf(span, found.counts);
        const series = KINDS.map(({ kind, name }) => ({
          name,
          kind: `kind-${kind.toLowerCase()}`,
          days: [...named.keys()].map((day) => ({ day, count: bars.get(`${kind} ${day}`) ?? 0 })),
        })).filter((one) => one.days.some(({ count }) => count));
        /** @param {string} from @param {string} to */
        const onBrush = (from, to) =>
          void narrow({ range: null, since: named.get(from)?.start ?? null, until: named.get(to)?.end ?? null });
        render(
          place("chart"),
          series.length
            ? html`${barChart({ label: span.byHour ? "Events by hour" : "Events by day", series, onBrush })}
          ${
            found.countedSince > span.since
              ? html`<p class="quiet small">Counted: the newest events, since ${exact(found.countedSince)}.</p>`
              : null
          }`
            : null,
        );
      });
    } catch (error) {
      if (isAborted(error)) return;
      // The list reports a wrong filter.
      render(place("chart"), error instanceof ApiError && error.status === 400 ? null : errorLine(error, chart));
    }
  }

  /** @param {AuditEvent[]} events under the days on which they happened */
  function byDay(events) {
    /** @type {Map<number, AuditEvent[]>} */
    const days = new Map();
    for (const event of events) {
      const day = dayStart(event.at);
      days.set(day, [...(days.get(day) ?? []), event]);
    }
    return [...days].map(
      ([
        day,
        some,
      ]) => html`<section class="event-day" aria-labelledby="day-${day}"><h2 id="day-${day}">${dayTitle(day)}</h2>
      <ol class="events">${runs(some).map(row)}</ol></section>`,
    );
  }

  /** @param {Run} run */
  const row = ({ count, newest, others }) => html`<li class="${newest.action.replaceAll(/[._]/g, "-")}">
    <time datetime="${new Date(
      newest.at,
    ).toISOString()}" title="${exact(newest.at)} · ${utc(newest.at)}">${clock.format(newest.at)}</time>
    <div>${sentence(newest, me)}${
      count > 1
        ? html` <span class="quiet">${
            isNotice(newest)
              ? `and so ${others.length === 1 ? "does" : "do"} ${counted(others.length, "other token")}`
              : times(count, newest, others)
          }</span>`
        : null
    }
      <details><summary>Details<span class="unseen"> of ${newest.action} at ${exact(newest.at)}</span></summary>
        ${
          isNotice(newest) && others.length
            ? html`<ul>${[newest, ...others].map((one) => html`<li>${sentence(one, me)}</li>`)}</ul>`
            : null
        }
        ${details(newest)}</details></div></li>`;

  /** @param {AuditEvent} event */
  const details = (event) => html`<dl class="facts small"><dt>Action</dt><dd><a href="${withQuery({
    action: event.action,
    show: null,
    cursor: null,
  })}"
      title="${actions.find((one) => one.name === event.action)?.description ?? ""}">${event.action}</a></dd>
    <dt>Time</dt><dd>${exact(event.at)}<br>${utc(event.at)}</dd>
    <dt>By</dt><dd><a href="${withQuery({
      actor: event.actorUrn,
      cursor: null,
    })}"><code>${event.actorUrn}</code></a></dd>
    <dt>Target</dt><dd><a href="${withQuery({
      target: event.target,
      cursor: null,
    })}"><code>${event.target}</code></a></dd>
    ${
      event.tokenId
        ? html`<dt>With token</dt><dd><a href="${tokenPath(event.tokenId)}">token
          <code>${short(event.tokenId)}</code></a></dd>`
        : null
    }
    <dt>Client</dt><dd>${event.peer || "–"}</dd><dt>Request</dt><dd><code>${event.requestId || "–"}</code></dd>
    ${Object.entries(event.detail).map(([name, value]) => html`<dt>${name}</dt><dd>${spoken(name, value)}</dd>`)}</dl>`;

  /** @param {string | null} next */
  const head = (next) => html`<div class="list-head">${further(next, "Pages, before the list")}<span class="row"><span
    class="quiet small">Export:</span>
    <button type="button" id="export-csv" @click=${() => save("csv")}>CSV</button>
    <button type="button" id="export-json" @click=${() => save("jsonl")}>JSON lines</button></span></div>`;

  /** @param {string | null} next @param {string} [label] */
  const further = (next, label = "Pages") =>
    html`<nav class="pager" aria-label="${label}"><span>${
      at.query.get("cursor") ? html`<a href="${withQuery({ cursor: null })}">‹ Newest</a>` : null
    }</span><span>${
      next
        ? html`<a rel="next" href="${withQuery({ cursor: next })}">Older ›</a>`
        : html`<span class="quiet">No older events</span>`
    }</span></nav>`;

  /** Save what is filtered as a file. @param {"csv" | "jsonl"} form */
  async function save(form) {
    const buttons = /** @type {NodeListOf<HTMLButtonElement>} */ (root.querySelectorAll(".list-head button"));
    buttons.forEach((button) => {
      button.disabled = true;
    });
    say("Exporting…");
    try {
      const { events, more } = await all();
      const name = `watchword-events-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.${form}`;
      if (form === "csv") saveCsv(name, csvOf(events));
      else
        saveFile(
          name,
          events
            .map((event) => `${JSON.stringify({ ...event, at: csvTime(event.at), sentence: sentenceText(event) })}\n`)
            .join(""),
          "application/jsonl",
        );
      render(
        place("said-here"),
        notice(
          html`Saved ${counted(events.length, "event")} as <code>${name}</code>.${
            more ? ` These are the newest; there are more. Narrow the filter, or use “watchword event list --all”.` : ""
          }`,
        ),
      );
    } catch (error) {
      if (isAborted(error)) return;
      render(
        place("said-here"),
        errorLine(error, () => save(form)),
      );
    } finally {
      buttons.forEach((button) => {
        button.disabled = false;
      });
    }
  }

  async function all() {
    /** @type {AuditEvent[]} */
    const events = [];
    const wanted = { ...filter(), count: EXPORT_PAGE };
    /** @type {string | null} */
    let cursor = null;
    do {
      /** @type {{events: AuditEvent[], cursor: string | null}} */
      const found = (await graphql(LIST, { input: { ...wanted, cursor } }, { signal: at.signal })).listEvents;
      events.push(...found.events);
      cursor = found.cursor;
    } while (cursor && events.length < MOST_EXPORTED);
    return { events: events.slice(0, MOST_EXPORTED), more: Boolean(cursor) || events.length > MOST_EXPORTED };
  }

  const nothing = () =>
    empty({
      title: isNarrowed() ? "No event matches" : "No events yet",
      sentence: "Events older than the configured retention are deleted.",
      action: isNarrowed() ? html`<a class="button" href="/console/activity">Clear filters</a>` : undefined,
      command: inTerminal("watchword event list", me),
    });

  setHooks(root, { again: show });
  await show(context);
}

/** Notices of expiry are written for many tokens at once. @param {AuditEvent} event */
const isNotice = (event) => event.action === "token.expiring";

/**
 * Neighbours with the same sentence as one, notices of expiry whatever the token.
 * @param {AuditEvent[]} events newest first @returns {Run[]}
 */
function runs(events) {
  /** @type {(Run & {text: string})[]} */
  const found = [];
  for (const event of events) {
    const text = isNotice(event) ? `${event.action} ${event.detail.days}` : sentenceText(event);
    const last = found[found.length - 1];
    const count = 1 + (Number(event.detail.leftOut) || 0);
    if (last?.text === text) {
      last.others.push(event);
      last.count += count;
    } else found.push({ text, count, newest: event, others: [] });
  }
  return found;
}

/** "42 times, 10:01–10:14". @param {number} count @param {AuditEvent} newest @param {AuditEvent[]} others */
function times(count, newest, others) {
  const [from, to] = [others.at(-1) ?? newest, newest].map(({ at }) => clock.format(at));
  return `${number(count)} times, ${from === to ? to : `${from}–${to}`}`;
}

/** @param {AuditEvent[]} events */
const csvOf = (events) =>
  csvText(
    [
      "time",
      "action",
      "what happened",
      "actor",
      "actor name",
      "target",
      "target name",
      "token",
      "client",
      "request",
      "details",
    ],
    events.map((event) => [
      csvTime(event.at),
      event.action,
      sentenceText(event),
      event.actorUrn,
      event.actorName,
      event.target,
      event.targetName,
      event.tokenId,
      event.peer,
      event.requestId,
      JSON.stringify(event.detail),
    ]),
  );

/**
 * The start of the day in the user's time zone, or of a day before it.
 * @param {number} moment @param {number} [before]
 */
function dayStart(moment, before = 0) {
  const date = new Date(moment);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() - before).getTime();
}

/** @param {number} day */
function dayTitle(day) {
  const today = dayStart(Date.now());
  return day === today ? "Today" : day === dayStart(today, 1) ? "Yesterday" : longDay.format(day);
}

/** @typedef {{since: number, until: number, step: number, byHour: boolean}} Span */

/**
 * What the chart shows: by hour for up to three days, else by day; an hour is shown with the day before it. Days are
 * counted by hours, so that each begins at midnight here; beyond 40, they are of 24 hours each.
 * @param {number | undefined} since @param {number | undefined} until @returns {Span}
 */
function steps(since, until) {
  const end = until ?? Date.now() + 1;
  const begin = Math.max(0, Math.min(since ?? dayStart(end - 1, 29), end - 1));
  const first = end - begin <= HOUR ? Math.max(0, end - DAY) : begin;
  const byHour = end - first <= 3 * DAY;
  const from = byHour ? first - (first % HOUR) : Math.max(0, dayStart(first));
  const step = byHour || end - from <= 40 * DAY ? HOUR : DAY;
  return { since: Math.max(from, end - 1_000 * step), until: end, step, byHour };
}

/**
 * @param {Span} span @param {{start: number, kind: string, count: number}[]} counts
 * @returns {{bars: Map<string, number>, named: Map<string, {start: number, end: number}>}} counts by kind and bar, and
 *   the bars by name
 */
function barsOf(span, counts) {
  const name = (/** @type {number} */ moment) => localName(moment).slice(0, span.byHour ? 13 : 10);
  /** @type {Map<string, {start: number, end: number}>} */
  const named = new Map();
  for (let start = span.since; start < span.until; start += span.step) {
    named.set(name(start), { start: named.get(name(start))?.start ?? start, end: start + span.step });
  }
  /** @type {Map<string, number>} */
  const bars = new Map();
  for (const { start, kind, count } of counts) {
    const key = `${kind} ${name(start)}`;
    bars.set(key, (bars.get(key) ?? 0) + count);
  }
  return { bars, named };
}

/** @param {string} name @param {unknown} value @returns {unknown} a value of an event's details as text */
function spoken(name, value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number" && /(At|Millis|By|Until)$/.test(name)) return time(value);
  if (typeof value === "number") return number(value);
  if (Array.isArray(value)) return value.map(String).join(", ") || "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Grouped by the part before the dot. @param {Action[]} actions @returns {[string, Action[]][]} */
function nouns(actions) {
  /** @type {Map<string, Action[]>} */
  const found = new Map();
  for (const one of actions) {
    const noun = one.name.slice(0, one.name.indexOf("."));
    found.set(noun, [...(found.get(noun) ?? []), one]);
  }
  return [...found];
}

/** In the user's time zone: 2026-11-18T09:30:00. @param {number} moment */
const localName = (moment) =>
  new Date(moment - new Date(moment).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);

/** A time in the form of the input. @param {string | null} moment */
function local(moment) {
  const millis = momentOf(moment);
  return millis === null ? "" : localName(millis);
}

/** Milliseconds in the range of Date. @param {string | null} text */
const momentOf = (text) => (/^-?\d{1,14}$/.test(text ?? "") ? Number(text) : null);

/** @param {Event} event */
const value = (event) => /** @type {HTMLInputElement} */ (event.currentTarget).value.trim();
