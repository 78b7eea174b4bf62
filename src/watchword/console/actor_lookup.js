/** Looks up actors and groups by what people type: a name, an id, an e-mail address or a urn. */

import { ApiError, graphql } from "./api.js";
import { USER, actorName, nameOf } from "./format.js";
import { GROUP } from "./pages/actor_names.js";

/**
 * @typedef {{urn: string, label: string, members?: number | null, unknown?: boolean, email?: string | null}} Subject
 *   `unknown`: the service does not know it
 * @typedef {{urn: string, displayName?: string | null, name?: string | null, memberCount?: number | null,
 *   properties?: {email: string | null} | null}} Found
 * @typedef {{named: Subject[], others: Subject[], sure: boolean, fresh: Subject | null}} Answer `named`: those that are
 *   called exactly so; `sure`: there is no other; `fresh`: what the text names as an id or urn, if it is not known
 * @typedef {{text: string, taken: Subject | null, fresh: Subject | null, answer: Answer, problem?: string}} Lookup
 *   `taken`: the only one that is called so; `problem`: why the text names nothing
 */

const MOST = 100;
const FIND = `query Candidates($query: String!, $actors: Boolean!, $accounts: Boolean!, $groups: Boolean!) {
  listUsers(input: {query: $query, count: ${MOST}}) @include(if: $actors) { total users { urn displayName properties {
  email } } }
  listServiceAccounts(input: {query: $query, count: ${MOST}}) @include(if: $accounts) { total serviceAccounts {
  urn displayName } }
  listGroups(input: {query: $query, count: ${MOST}}) @include(if: $groups) { total groups { urn name memberCount } } }`;
const ACTOR = `query IsKnown($urn: String!) { corpUser(urn: $urn) { urn displayName exists } }`;
const ONE_GROUP = `query IsGroup($urn: String!) { corpGroup(urn: $urn) { urn name memberCount } }`;
export const NOUNS = { actors: "actor", groups: "group", both: "actor or group" };

export const isGroup = (/** @type {string} */ urn) => urn.startsWith(GROUP);

/** @param {Found} found @returns {Subject} */
export const subject = ({ urn, displayName, name, memberCount, properties }) =>
  isGroup(urn)
    ? { urn, label: name ?? urn.slice(GROUP.length), members: memberCount ?? null }
    : { urn, label: actorName(urn, displayName), email: properties?.email };

/** Whether a value of an address names an actor, or has yet to be looked up. @param {string | null} value */
export const isUrn = (value) => (value ?? "").startsWith("urn:");

/** @param {string} one @param {string} other */
const same = (one, other) => one.toLowerCase() === other.toLowerCase();

/** @param {Subject} one @param {string} text whether it is called exactly so */
const isNamed = (one, text) =>
  [one.urn, one.label, isGroup(one.urn) ? one.urn.slice(GROUP.length) : actorName(one.urn), one.email].some(
    (name) => name && same(name, text),
  );

/**
 * @param {import("./shell.js").Me} me
 * @param {{kinds: keyof typeof NOUNS, many: boolean, reserved: boolean}} how `many`: a text may name several;
 *   `reserved`: it may name the service itself
 */
export function actorLookup(me, { kinds, many, reserved }) {
  const may = me.privileges;
  const looks = {
    actors: kinds !== "groups" && (may.managePolicies || may.manageTokens),
    // Actors are known from their first token on, accounts before it.
    accounts: kinds !== "groups" && may.manageServiceAccounts,
    groups: kinds !== "actors" && may.managePolicies,
  };
  const looksUp = Object.values(looks).some(Boolean);

  /** What is known of a urn; null if the caller may not ask. @param {string} urn @returns {Promise<Subject | null>} */
  async function see(urn) {
    if (reserved && nameOf(urn).startsWith("__")) return subject({ urn });
    if (isGroup(urn) && looks.groups) {
      try {
        return subject((await graphql(ONE_GROUP, { urn })).corpGroup);
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) return { ...subject({ urn }), unknown: true };
        throw error;
      }
    }
    if (!looks.actors) return null;
    const { corpUser: found } = await graphql(ACTOR, { urn });
    return { ...subject(found), unknown: !found.exists };
  }

  /** @param {string} text @returns {string} the urn, if the text is one or can be an id */
  const urnOf = (text) => (isUrn(text) ? text : /\s/.test(text) ? "" : (kinds === "groups" ? GROUP : USER) + text);

  /** @param {string} text @returns {Promise<Answer>} */
  async function find(text) {
    const urn = urnOf(text);
    const asks = urn && (isGroup(urn) ? looks.groups : looks.actors);
    /** @type {[any, Subject | null]} */
    const [found, one] = await Promise.all([
      looksUp ? graphql(FIND, { query: text, ...looks }) : {},
      asks ? see(urn) : null,
    ]);
    const parts = [
      [found.listUsers, "users"],
      [found.listServiceAccounts, "serviceAccounts"],
      [found.listGroups, "groups"],
    ].filter(([part]) => part);
    const all = new Map(parts.flatMap(([part, rows]) => part[rows].map(subject)).map((one) => [one.urn, one]));
    if (one && !one.unknown) all.set(one.urn, one);
    const named = [...all.values()].filter((each) => isNamed(each, text));
    const unsearched = { ...subject({ urn }), unknown: false };
    return {
      named,
      others: [...all.values()].filter((each) => !named.includes(each)),
      sure: isUrn(text) || parts.every(([part, rows]) => part.total <= part[rows].length),
      fresh: one?.unknown ? one : urn && !looksUp ? unsearched : null,
    };
  }

  /** What a text means, by itself. @param {string} text @returns {Promise<Lookup>} */
  async function lookUp(text) {
    /** @type {Answer} */
    let answer;
    try {
      answer = await find(text);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 400) throw error;
      return {
        text,
        taken: null,
        fresh: null,
        answer: { named: [], others: [], sure: false, fresh: null },
        problem: error.message,
      };
    }
    const taken = answer.named.length === 1 && answer.sure ? answer.named[0] : null;
    // Without the right to look names up, it can only be an id or a urn.
    if (!taken && answer.fresh && !looksUp) return { text, taken: answer.fresh, fresh: null, answer };
    return { text, taken, fresh: taken ? null : answer.fresh, answer };
  }

  /** @param {Lookup} one why it is not chosen */
  function whyNot({ text, answer: { named, sure }, problem }) {
    if (problem) return problem;
    if (!looksUp)
      return `“${text}” is not an id or urn. To look up names, you need Manage Policies or Manage All Access Tokens.`;
    if (named.length > 1) return `${named.length} are named “${text}”. Choose one.`;
    return named.length && !sure ? `Choose who “${text}” is.` : `No ${NOUNS[kinds]} here is named “${text}”.`;
  }

  /**
   * Separated by lines or semicolons; a comma may be part of a name.
   * @param {string} text @returns {Promise<Lookup[]>}
   */
  async function lookUpAll(text) {
    if (!many) return [await lookUp(text)];
    /** @type {Lookup[]} */
    const found = [];
    for (const part of text
      .split(/[;\n\t]+/)
      .map((one) => one.trim())
      .filter(Boolean)) {
      const several = part.includes(",");
      const whole = several && isUrn(part) ? null : await lookUp(part);
      if (whole && (whole.taken || !several)) found.push(whole);
      else
        for (const word of part
          .split(",")
          .map((one) => one.trim())
          .filter(Boolean))
          found.push(await lookUp(word));
    }
    return found;
  }

  return { looksUp, see, find, lookUpAll, whyNot };
}
