/** What a change of a policy would do, in sentences: "17 people gain View Audit Log". */

import { html } from "../html.js";
import { graphql } from "../api.js";
import { counted, number } from "../format.js";
import { warning } from "../components.js";
import { actorName } from "./actor_names.js";

/**
 * @typedef {{privilege: string, change: "GAIN" | "LOSE", count: number | null, users: {urn: string,
 *   displayName: string | null}[]}} Change
 * @typedef {{appliesTo: number | null, complete: boolean, changes: Change[]}} Effect
 * @typedef {import("./policies.js").Privilege} Privilege
 */

const EFFECT = `query Effect($urn: String, $input: PolicyUpdateInput) { policyEffect(urn: $urn, input: $input) {
  appliesTo complete changes { privilege change count users { urn displayName } } } }`;
const MOST_NAMED = 5;

/**
 * @param {{urn?: string, input?: unknown}} what without an input: the policy is deleted
 * @param {AbortSignal} [signal] @returns {Promise<Effect>}
 */
export const effectOf = async (what, signal) => (await graphql(EFFECT, what, { signal })).policyEffect;

/** A mark for what lets its holder get more. @param {string} [word] */
export const dangerMark = (word = "can grant more to itself") =>
  html`<span class="danger-mark"><span aria-hidden="true">▲</span> ${word}</span>`;

/** Whether a privilege, or a scope, is marked. @param {Privilege[]} privileges @param {string} word */
export const escalates = (privileges, word) =>
  word === "*" || (privileges.find((one) => one.name === word)?.escalates ?? false);

/** Whether to ask before it is saved. @param {Effect} effect @param {Privilege[]} privileges @param {string} me */
export const isGrave = (effect, privileges, me) =>
  effect.appliesTo === 0 ||
  effect.changes.some((one) =>
    one.change === "GAIN" ? escalates(privileges, one.privilege) : one.count === null || one.users[0]?.urn === me,
  );

/** @param {Effect} effect @param {Privilege[]} privileges @param {string} me */
export function effectText(effect, privileges, me) {
  return html`${effect.appliesTo === 0 ? noOne() : null}
    ${
      effect.changes.length
        ? html`<ul class="effects">${effect.changes.map((one) => line(one, effect, privileges, me))}</ul>`
        : effect.appliesTo === 0
          ? null
          : html`<p class="quiet">No one gains or loses anything.</p>`
    }`;
}

export const noOne = () =>
  warning("This policy applies to no one: it names no person, no group with members, and not all users.");

/** @param {Change} one @param {Effect} effect @param {Privilege[]} privileges @param {string} me */
function line(one, effect, privileges, me) {
  const gains = one.change === "GAIN";
  const known = privileges.find((privilege) => privilege.name === one.privilege);
  const many = one.count === null || one.count > 1;
  const who =
    one.count === null ? "All users" : `${effect.complete ? "" : "At least "}${counted(one.count, "person", "people")}`;
  const named = one.users.slice(0, MOST_NAMED);
  const rest = (one.count ?? 0) - named.length;
  return html`<li class="${gains ? "gain" : "lose"}"><span aria-hidden="true">${gains ? "+" : "−"}</span> <span>${who}
    ${gains ? "gain" : "lose"}${many ? "" : "s"}
    ${known ? html`<strong>${known.displayName}</strong>` : html`the scope <code>${one.privilege}</code>`}${
      named.length
        ? html`<span class="quiet">:
      ${named
        .map((user) => (user.urn === me ? "you" : actorName(user.urn, user.displayName)))
        .join(", ")}${rest > 0 ? ` and ${number(rest)} more` : ""}</span>`
        : null
    }
    ${gains && escalates(privileges, one.privilege) ? dangerMark() : null}</span></li>`;
}
