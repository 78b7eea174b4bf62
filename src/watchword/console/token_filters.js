/**
 * The filters of a token list: what its address says, as the API takes it and in words.
 */

import { DAY } from "./format.js";

/** @typedef {import("./token_display.js").Filter} Filter */
/** @typedef {{name: string, label: string, choices?: [string, string][]}} FilterControl */

/** @type {FilterControl[]} */
export const CONTROLS = [
  {
    name: "status",
    label: "Status",
    choices: [
      ["", "Live or suspended"],
      ["live", "Live"],
      ["suspended", "Suspended"],
      ["expired", "Expired"],
      ["revoked", "Revoked"],
      ["all", "All"],
    ],
  },
  {
    name: "expires",
    label: "Expires",
    choices: [
      ["", "Any time"],
      ["week", "Within 7 days"],
      ["month", "Within 30 days"],
      ["never", "Never"],
    ],
  },
  {
    name: "used",
    label: "Last used",
    choices: [
      ["", "Any time"],
      ["day", "Within 24 hours"],
      ["week", "Within 7 days"],
      ["idle30", "Not in 30 days"],
      ["idle90", "Not in 90 days"],
      ["never", "Never"],
    ],
  },
  { name: "actor", label: "Actor" },
  { name: "owner", label: "Owner" },
  { name: "scope", label: "Scope" },
  { name: "network", label: "Network" },
  {
    name: "scopes",
    label: "Scopes",
    choices: [
      ["", "Any"],
      ["all", "Unlimited"],
      ["some", "Limited"],
    ],
  },
  {
    name: "type",
    label: "Kind",
    choices: [
      ["", "Any"],
      ["personal", "Personal"],
      ["account", "Service account"],
    ],
  },
];

/** @type {Record<string, Filter[]>} */
const KNOWN = {
  "status=": [statuses("ACTIVE", "SUSPENDED")],
  "status=live": [statuses("ACTIVE")],
  "status=suspended": [statuses("SUSPENDED")],
  "status=expired": [statuses("EXPIRED")],
  "status=revoked": [statuses("REVOKED")],
  "status=all": [statuses("ACTIVE", "SUSPENDED", "EXPIRED", "REVOKED")],
  "expires=never": [{ field: "expiresAt", condition: "EXISTS", negated: true }],
  "used=day": [{ field: "lastUsedAt", condition: "GREATER_THAN", value: "P1D" }],
  "used=week": [{ field: "lastUsedAt", condition: "GREATER_THAN", value: "P7D" }],
  "used=idle30": [{ field: "lastActivityAt", condition: "LESS_THAN", value: "P30D" }],
  "used=idle90": [{ field: "lastActivityAt", condition: "LESS_THAN", value: "P90D" }],
  "used=never": [{ field: "lastUsedAt", condition: "EXISTS", negated: true }],
  "scopes=all": [{ field: "scope", condition: "EXISTS", negated: true }],
  "scopes=some": [{ field: "scope", condition: "EXISTS" }],
  "type=personal": [{ field: "tokenType", value: "PERSONAL" }],
  "type=account": [{ field: "tokenType", value: "SERVICE_ACCOUNT" }],
};
const ID = /^[A-Za-z0-9+/]{43}=$/;
/** A UTC day, or two with all days between. */
const DAYS = /^(\d{4}-\d\d-\d\d)(?:\.\.(\d{4}-\d\d-\d\d))?$/;

/** @param {...string} values @returns {Filter} */
function statuses(...values) {
  return { field: "effectiveStatus", condition: "IN", values };
}

/** What the address asks for, as the API's filters. @param {URLSearchParams} query @param {Filter[]} [base] */
export function filtersOf(query, base = []) {
  const said = (/** @type {string} */ name) => (query.get(name) ?? "").trim();
  const filters = [...base];
  const text = said("q");
  const id = text.slice(text.lastIndexOf(":") + 1);
  const isId = ID.test(id);
  if (isId) filters.push({ field: "id", value: id });
  else if (text) filters.push({ field: "text", condition: "CONTAIN", value: text });
  // A name that is not looked up yet matches nothing.
  if (said("actor")) filters.push({ field: "actorUrn", value: said("actor") });
  if (said("owner")) filters.push({ field: "ownerUrn", value: said("owner") });
  if (said("scope")) filters.push({ field: "scope", value: said("scope") });
  if (said("network")) filters.push({ field: "lastNetwork", condition: "CONTAIN", value: said("network") });
  // A whole id finds its token also if that is dead.
  filters.push(...(KNOWN[`status=${said("status") || (isId ? "all" : "")}`] ?? KNOWN["status="]));
  for (const name of ["used", "scopes", "type"]) filters.push(...(KNOWN[`${name}=${said(name)}`] ?? []));
  filters.push(...(KNOWN[`expires=${said("expires")}`] ?? between(said("expires"))));
  return filters;
}

/** @param {string} word @returns {Filter[]} */
function between(word) {
  const now = Date.now();
  const days = DAYS.exec(word);
  const from = days ? Date.parse(days[1]) : now;
  const to = days ? Date.parse(days[2] ?? days[1]) + DAY : now + ({ week: 7, month: 30 }[word] ?? NaN) * DAY;
  if (Number.isNaN(from) || Number.isNaN(to)) return [];
  return [
    { field: "expiresAt", condition: "GREATER_THAN_OR_EQUAL_TO", value: String(from) },
    { field: "expiresAt", condition: "LESS_THAN", value: String(to) },
  ];
}

/**
 * The filters of the address that are not the default, in words.
 * @param {URLSearchParams} query @param {(urn: string) => string} nameOf
 * @returns {{name: string, words: string}[]}
 */
export function chipsOf(query, nameOf) {
  return CONTROLS.flatMap(({ name, label, choices }) => {
    const value = (query.get(name) ?? "").trim();
    if (!value) return [];
    const choice = choices?.find(([word]) => word === value)?.[1];
    if (choices && !choice && !(name === "expires" && between(value).length)) return [];
    const words = choice ?? (name === "actor" || name === "owner" ? nameOf(value) : value);
    return [{ name, words: `${label}: ${words}` }];
  });
}

/** Whether the list is searched or filtered. @param {URLSearchParams} query */
export const isNarrowed = (query) => Boolean((query.get("q") ?? "").trim()) || chipsOf(query, String).length > 0;

/** Whether only tokens that have ended are listed. @param {URLSearchParams} query */
export const listsDead = (query) => ["expired", "revoked"].includes(query.get("status") ?? "");

const SORTS = ["name", "actorUrn", "expiresAt", "lastUsedAt", "useCount", "createdAt"];

/** Soonest expiry first; of tokens that have ended, the latest first. @param {URLSearchParams} query */
export function sortOf(query) {
  const asked = query.get("sort") ?? "";
  const order = query.get("order") ?? "";
  const field = SORTS.includes(asked) ? asked : "expiresAt";
  const usual = field !== asked && (listsDead(query) || query.get("status") === "all") ? "DESCENDING" : "ASCENDING";
  return { field, order: ["ASCENDING", "DESCENDING"].includes(order) ? order : usual };
}
