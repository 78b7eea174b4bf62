/**
 * How values are shown: times in the user's time zone, numbers with units, identifiers shortened in the middle.
 */

import { html } from "./html.js";

export const MINUTE = 60_000;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

// A unit is used where rounding to it loses little: 75 minutes, 41 days, but 3 months.
/** @type {[Intl.RelativeTimeFormatUnit, number, number][]} */
const UNITS = [
  ["year", 365 * DAY, 700 * DAY],
  ["month", 30 * DAY, 89.5 * DAY],
  ["day", DAY, 47.5 * HOUR],
  ["hour", HOUR, 89.5 * MINUTE],
  ["minute", MINUTE, MINUTE / 2],
];
const relation = new Intl.RelativeTimeFormat("en", { numeric: "always" });
const whole = new Intl.NumberFormat("en");
const local = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });

/** @param {number} moment @param {number} [now] "in 6 days", "2 minutes ago", "just now" */
export function relative(moment, now = Date.now()) {
  const distance = moment - now;
  for (const [unit, length, from] of UNITS) {
    if (Math.abs(distance) >= from) return relation.format(Math.round(distance / length), unit);
  }
  return distance > 0 ? "in less than a minute" : "just now";
}

/** @param {number} moment in the reader's zone, to the second, with the zone's name */
export function exact(moment) {
  const date = new Date(moment);
  const name = zone.formatToParts(date).find((part) => part.type === "timeZoneName")?.value ?? "";
  return `${local.format(date)} ${name}`.trim();
}

/** @param {number} moment to the second */
export const utc = (moment) =>
  new Date(moment)
    .toISOString()
    .replace("T", " ")
    .replace(/\.\d+Z$/, " UTC");

/**
 * A relative time, with the exact time on hover and focus; kept up to date while it is shown.
 * @param {number | null | undefined} moment @param {string} [otherwise] shown if there is no time
 */
export function time(moment, otherwise = "never") {
  if (moment === null || moment === undefined) return html`<span class="quiet">${otherwise}</span>`;
  const title = `${exact(moment)} · ${utc(moment)}`;
  return html`<time datetime="${new Date(moment).toISOString()}" data-moment="${moment}" title="${title}" tabindex="0"
    >${relative(moment)}</time>`;
}

/** @param {number | null | undefined} moment the exact moment, written out, in both zones */
export function fullTime(moment, otherwise = "never") {
  if (moment === null || moment === undefined) return html`<span>${otherwise}</span>`;
  return html`<time datetime="${new Date(moment).toISOString()}">${exact(moment)}</time>
    <span class="quiet small nowrap">${utc(moment)}</span>`;
}

/** @param {number} value 12,345 */
export const number = (value) => whole.format(value);

/** @param {number} count @param {string} one @param {string} [many] "1 token", "1,200 tokens" */
export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** @param {number} size 1.2 MB */
export function bytes(size) {
  const names = ["B", "kB", "MB", "GB", "TB", "PB"];
  let power = 0;
  let value = size;
  while (value >= 999.5 && power < names.length - 1) {
    value /= 1000;
    power += 1;
  }
  return `${power && value < 9.95 ? value.toFixed(1) : Math.round(value)} ${names[power]}`;
}

/** @param {number} milliseconds "5 minutes", "1 day 6 hours" */
export function span(milliseconds) {
  /** @type {[string, number][]} */
  const parts = [
    ["day", DAY],
    ["hour", HOUR],
    ["minute", MINUTE],
    ["second", 1000],
  ];
  let left = Math.max(0, Math.round(milliseconds / 1000) * 1000);
  /** @type {string[]} */
  const words = [];
  for (const [name, length] of parts) {
    const count = Math.floor(left / length);
    left -= count * length;
    if (count && words.length < 2) words.push(counted(count, name));
  }
  return words.join(" ") || "no time";
}

/** @param {string} text @param {number} [ends] how much of each end stays */
export const short = (text, ends = 6) =>
  text.length > ends * 2 + 3 ? `${text.slice(0, ends)}…${text.slice(-ends)}` : text;

/** @param {string} urn the part after its last colon: "alice" of urn:li:corpuser:alice */
export const nameOf = (urn) => urn.slice(urn.lastIndexOf(":") + 1) || urn;

export const USER = "urn:li:corpuser:";
/** The urn of a service account. */
export const ACCOUNT = /^urn:li:corpuser:service_[a-z0-9-]{1,60}$/;

/**
 * What an actor is called: its display name, or the user's name in its urn; the whole urn if that would be ambiguous.
 * @param {string} urn @param {string | null} [displayName]
 */
export function actorName(urn, displayName) {
  if (displayName) return displayName;
  const name = urn.startsWith(USER) ? urn.slice(USER.length) : "";
  if (name === "__system") return "the service";
  if (name === "__unknown") return "an unknown caller";
  return name && !name.includes(":") ? name : urn;
}

/** The first letters of the first and the last word. @param {string} name */
export function initials(name) {
  const words = name.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  return [words[0], words.length > 1 ? words[words.length - 1] : ""]
    .map((word) => [...(word ?? "")][0] ?? "")
    .join("")
    .toUpperCase();
}

/**
 * An actor's name with its initials, and the whole urn on hover.
 * @param {string} urn @param {string | null} [displayName]
 */
export const actor = (urn, displayName) => html`<span class="actor" title="${urn}"
  data-initials="${initials(actorName(urn, displayName))}">${short(actorName(urn, displayName), 12)}</span>`;

/** A token's id as a part of an address, in URL-safe base64. @param {string} id */
export const idToPath = (id) => id.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");

/** @param {string} part @returns {string} the id that `idToPath` made it of */
export function pathToId(part) {
  const text = part.replaceAll("-", "+").replaceAll("_", "/");
  return text + "=".repeat((4 - (text.length % 4)) % 4);
}

/** @param {string} id where a token's details are */
export const tokenPath = (id) => `/console/tokens/${idToPath(id)}`;

/**
 * A command to copy. It names the server, unless that is the default one, and in local mode the caller; otherwise
 * `watchword login` has stored a token for the server.
 * @param {string} command @param {{urn: string, localMode: boolean}} me
 */
export function inTerminal(command, me) {
  const usual = location.origin === "http://127.0.0.1:8080";
  return `${command}${me.localMode ? ` --as ${me.urn}` : ""}${usual ? "" : ` --url ${location.origin}`}`;
}

/**
 * A command for the server's own machine. A browser that runs there as its user knows the data folder.
 * @param {string} command @param {{dataDir?: string | null}} where
 */
export const onServer = (command, { dataDir }) =>
  dataDir
    ? `${command} --data-dir ${/^[\w@%+=:,./-]+$/.test(dataDir) ? dataDir : `'${dataDir.replaceAll("'", "'\\''")}'`}`
    : command;

/** Keep relative times up to date. When a time in `data-ends` has passed, its page gets the event `ended`. */
export function keepTimes() {
  setInterval(() => {
    if (document.hidden) return;
    const pages = new Set();
    for (const node of document.querySelectorAll("time[data-moment]")) {
      const moment = Number(node.getAttribute("data-moment"));
      const text = relative(moment);
      if (node.textContent !== text) node.textContent = text;
      if (node.closest("[data-ends]") && moment <= Date.now()) pages.add(node.closest(".page"));
    }
    pages.forEach((page) => page?.dispatchEvent(new Event("ended")));
  }, 20_000);
}
