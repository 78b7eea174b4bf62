/**
 * Events in sentences: who did what to what. One function for the activity page, a token's timeline and exports.
 */

import { html } from "./html.js";
import { actorName, counted, nameOf, number, short, tokenPath, utc } from "./format.js";
import { privilegeName } from "./privileges.js";

/**
 * @typedef {{id: string, at: number, action: string, actorUrn: string, actorName: string | null,
 *   tokenId: string | null, target: string, targetName: string | null, names: Record<string, string>, peer: string,
 *   requestId: string, detail: Record<string, any>}} AuditEvent
 * @typedef {{text: string, title?: string, href?: string, thing?: boolean}} Part `thing`: the name of what was changed
 */

/** The fields of an event in a query. */
export const EVENT = "id at action actorUrn actorName tokenId target targetName names peer requestId detail";

const GROUP = "urn:li:corpGroup:";
const MOST_LISTED = 3;
const METHODS = { oidc: "by the identity provider", token: "with a token", local: "by choosing an actor" };

/** @typedef {(string | Part | Part[] | null | undefined)[]} Sentence */
/** @type {Record<string, (e: AuditEvent) => Sentence>} */
const SENTENCES = {
  "token.created": (e) => [by(e), " created ", token(e), whose(e, "for")],
  "token.replayed": (e) => [by(e), " got ", token(e), whose(e), " again by its Idempotency-Key"],
  "token.revoked": (e) => [
    by(e),
    " revoked ",
    token(e),
    whose(e),
    e.detail.with ? " together with another token" : null,
    e.detail.byPossession ? " by presenting it" : null,
  ],
  "token.derived": (e) => [by(e), " derived ", token(e), whose(e), " from another token"],
  "token.rotated": (e) => [by(e), " created a successor of ", token(e), whose(e)],
  "token.replaced": (e) => [
    "The successor of ",
    token(e),
    " was used for the first time; the old token expires by ",
    utc(e.detail.endsBy),
  ],
  "token.updated": (e) =>
    e.detail.oldName
      ? [by(e), " renamed ", { text: e.detail.oldName, thing: true }, " to ", token(e), whose(e)]
      : [by(e), " changed the description of ", token(e), whose(e)],
  "token.imported": (e) => [by(e), " imported ", token(e), whose(e), " from DataHub"],
  "token.expiring": (e) => [token(e), whose(e), ` expires within ${counted(e.detail.days, "day")}`],
  "token.new_network": (e) => [token(e), whose(e), ` was used from a new network: ${e.detail.network}`],
  "token.found_by_scan": (e) => ["A scan found ", token(e), whose(e)],
  "tokens.revoked": (e) => [by(e), ` revoked ${counted(e.detail.count, "token")} at once`],
  "account.created": (e) => [by(e), " created the service account ", actor(e, e.target, e.targetName)],
  "account.updated": (e) => [by(e), " changed the service account ", actor(e, e.target, e.targetName)],
  "account.deleted": (e) => [
    by(e),
    " deleted the service account ",
    actor(e, e.target, e.targetName),
    ` and revoked ${counted(e.detail.tokens, "token")}`,
  ],
  "policy.created": (e) => [by(e), " created the policy ", policy(e)],
  "policy.updated": (e) => [by(e), " changed the policy ", policy(e)],
  "policy.deleted": (e) => [by(e), " deleted the policy ", policy(e)],
  "group.created": (e) => [by(e), " created the group ", group(e)],
  "group.updated": (e) => [by(e), " changed the group ", group(e)],
  "group.deleted": (e) => [by(e), " deleted the group ", group(e)],
  "group.members_added": (e) => [by(e), " added ", actors(e, e.detail.members ?? []), " to the group ", group(e)],
  "group.members_removed": (e) => [by(e), " removed ", actors(e, e.detail.members ?? []), " from the group ", group(e)],
  "resource.created": (e) => [by(e), " declared the resource ", thing(e)],
  "resource.updated": (e) => [by(e), " changed the resource ", thing(e)],
  "resource.deleted": (e) => [by(e), " removed the resource ", thing(e)],
  "actor.updated": (e) => [by(e), " changed the ", changedFields(e), " of ", actor(e, e.target)],
  "actor.suspended": (e) => [by(e), " suspended ", actor(e, e.target)],
  "actor.resumed": (e) => [by(e), " resumed ", actor(e, e.target)],
  "actor.linked": (e) => [
    by(e),
    e.detail.issuer ? " linked " : " removed the link of ",
    actor(e, e.target),
    e.detail.issuer ? " to a person of the identity provider" : " to the identity provider",
  ],
  "actor.groups_changed": (e) => [
    "The groups of ",
    actor(e, e.target),
    " changed by sign-in",
    ...["added", "removed", "refused"].map((word) =>
      e.detail[word] ? `; ${word}: ${e.detail[word].map(groupText).join(", ")}` : null,
    ),
  ],
  "actor.mail_preferences_changed": (e) => [by(e), " chose which mail to get"],
  "key.created": (e) => [by(e), " created the first signing key"],
  "key.prepared": (e) => [by(e), ` replaced the next signing key by one of the kind ${e.detail.kind}`],
  "key.rotated": (e) => [by(e), " rotated the signing key"],
  "operation.planned": (e) => [by(e), " planned ", operation(e)],
  "operation.running": (e) => [operation(e, true), " started"],
  "operation.verifying": (e) => [operation(e, true), " verifies its result"],
  "operation.swapping": (e) => [operation(e, true), " replaces the index by its copy"],
  "operation.done": (e) => [operation(e, true), " finished"],
  "operation.failed": (e) => [operation(e, true), ` failed: ${e.detail.error ?? "unknown error"}`],
  "operation.cancel_requested": (e) => [by(e), " requested to cancel ", operation(e)],
  "operation.cancelled": (e) => [operation(e, true), " was cancelled"],
  "retention.rule_set": (e) => [by(e), " set the retention rule of ", thing(e)],
  "retention.rule_deleted": (e) => [by(e), " deleted the retention rule of ", thing(e)],
  "retention.hold_set": (e) => [by(e), " set a hold on ", thing(e), `: ${e.detail.reason}`],
  "retention.hold_released": (e) => [by(e), " released the hold on ", thing(e)],
  "retention.reported": (e) => ["Retention would remove ", rows(e), " of ", thing(e)],
  "retention.approval_needed": (e) => ["Retention of ", thing(e), " waits for approval: it would remove ", rows(e)],
  "retention.approved": (e) => [by(e), " approved a retention run on ", thing(e)],
  "retention.overdue": (e) => ["Retention of ", thing(e), " has not succeeded for three periods"],
  "retention.clock_jumped": (e) => [
    `The clock jumped ahead by ${number(e.detail.seconds)} seconds: no retention run is planned for an hour`,
  ],
  "session.started": (e) => [
    by(e),
    ` signed in ${METHODS[/** @type {keyof typeof METHODS} */ (e.detail.method)] ?? ""}`,
  ],
  "session.ended": (e) =>
    e.detail.actorUrn && e.detail.actorUrn !== e.actorUrn
      ? [by(e), ` ended ${counted(e.detail.sessions ?? 1, "session")} of `, actor(e, e.detail.actorUrn)]
      : [by(e), " signed out"],
  "device.approved": (e) => [by(e), " approved a terminal", terminal(e)],
  "device.denied": (e) => [by(e), " denied a terminal", terminal(e)],
  "webhook.created": (e) => [by(e), " created the webhook ", thing(e)],
  "webhook.updated": (e) => [by(e), " changed the webhook ", thing(e)],
  "webhook.deleted": (e) => [by(e), " deleted the webhook ", thing(e)],
  "webhook.stopped": (e) => ["The webhook ", thing(e), ` was stopped: ${e.detail.reason}`],
  "webhook.secret_rotated": (e) => [by(e), " rotated the secret of the webhook ", thing(e)],
  "webhook.replayed": (e) => [by(e), " sent deliveries of the webhook ", thing(e), " again"],
  "setting.changed": (e) => ["The setting ", thing(e), ` changed from ${e.detail.before} to ${e.detail.after}`],
  "access.denied": (e) => [by(e), " was denied ", thing(e), denial(e)],
  "authentication.failed": (e) =>
    e.detail.reason === "device_not_found"
      ? [by(e), " entered a user code at ", thing(e), " that is unknown or expired"]
      : [
          "A credential",
          isReserved(e.actorUrn) ? null : [{ text: " of " }, by(e)],
          " was rejected at ",
          thing(e),
          `: ${rejection(e)}`,
        ],
  "datahub.imported": (e) => [by(e), " imported from DataHub"],
  "store.primary_changed": () => ["Another database server became the primary"],
  "store.restored": () => ["The database was restored from a backup"],
};

/** The parts of an event's sentence. @param {AuditEvent} event @returns {Part[]} */
function partsOf(event) {
  const make = SENTENCES[event.action] ?? ((/** @type {AuditEvent} */ e) => [by(e), `: ${e.action} `, thing(e)]);
  return make(event)
    .flat()
    .filter((part) => part !== null && part !== undefined)
    .map((part) => (typeof part === "string" ? { text: part } : part));
}

/** @param {AuditEvent} event what happened, in one sentence without a full stop */
export const sentenceText = (event) =>
  partsOf(event)
    .map((part) => part.text)
    .join("");

/**
 * The same with links, for callers who may follow them.
 * @param {AuditEvent} event @param {import("./shell.js").Me} me
 */
export function sentence(event, me) {
  return html`<span class="sentence">${partsOf(event).map((part) => {
    const { text } = part;
    const shown = part.thing
      ? html`<em title="${part.title ?? null}">${short(text, 40)}</em>`
      : html`<span title="${part.title ?? null}">${text}</span>`;
    return part.href && mayOpen(part.href, me)
      ? html`<a href="${part.href}">${shown}</a>`
      : part.title || part.thing
        ? shown
        : text;
  })}</span>`;
}

/** @param {string} href @param {import("./shell.js").Me} me */
function mayOpen(href, { privileges }) {
  if (href.startsWith("/console/actors/") || href.startsWith("/console/policies/")) return privileges.managePolicies;
  return !href.startsWith("/console/operations/") || privileges.truncateTimeseries;
}

/** @param {string} urn of the service itself, or of an unknown caller */
const isReserved = (urn) => nameOf(urn).startsWith("__");

/** Who acted, at the start of the sentence. @param {AuditEvent} event @returns {Part} */
function by(event) {
  const shown = actor(event, event.actorUrn, event.actorName);
  if (!isReserved(event.actorUrn)) return shown;
  return { text: shown.text.slice(0, 1).toUpperCase() + shown.text.slice(1), title: shown.title };
}

/** @param {AuditEvent} event @param {string} urn @param {string | null} [name] @returns {Part} */
const actor = (event, urn, name) => ({
  text: actorName(urn, name ?? event.names[urn]),
  title: urn,
  href: `/console/actors/${encodeURIComponent(urn)}`,
});

/** "A, B, C and 4 more". @param {AuditEvent} event @param {string[]} urns @returns {Part[]} */
function actors(event, urns) {
  const named = urns.slice(0, MOST_LISTED).flatMap((urn, index) => [{ text: index ? ", " : "" }, actor(event, urn)]);
  return urns.length > MOST_LISTED ? [...named, { text: ` and ${number(urns.length - MOST_LISTED)} more` }] : named;
}

/**
 * The actor of the token, if someone else acted.
 * @param {AuditEvent} event @param {string} [word] @returns {Part[] | null}
 */
function whose(event, word = "of") {
  const urn = event.detail.actorUrn;
  return urn && urn !== event.actorUrn ? [{ text: ` ${word} ` }, actor(event, urn)] : null;
}

/** @param {AuditEvent} event @returns {Part} */
const token = (event) => ({
  text: event.targetName ?? `token ${short(event.target)}`,
  title: event.target,
  href: tokenPath(event.target),
  thing: true,
});

/** @param {AuditEvent} event @returns {Part} */
const policy = (event) => ({
  text: event.targetName ?? nameOf(event.target),
  title: event.target,
  thing: true,
  href: event.action === "policy.deleted" ? undefined : `/console/policies/${encodeURIComponent(event.target)}`,
});

/** @param {string} urn */
const groupText = (urn) => (urn.startsWith(GROUP) ? urn.slice(GROUP.length) : urn);

/** @param {AuditEvent} event @returns {Part} */
const group = (event) => ({
  text: event.targetName ?? groupText(event.target),
  title: event.target,
  thing: true,
  href:
    event.action === "group.deleted" ? undefined : `/console/actors/${encodeURIComponent(event.target)}?show=groups`,
});

/** @param {AuditEvent} event @param {boolean} [first] at the start of the sentence @returns {Part} */
const operation = (event, first) => ({
  text: event.detail.aspect
    ? `${first ? "The" : "a"} truncation of ${event.detail.aspect}`
    : `operation ${short(event.target)}`,
  title: event.target,
  href: `/console/operations/${encodeURIComponent(event.target)}`,
});

/** What has no page. @param {AuditEvent} event @returns {Part} */
const thing = (event) => ({ text: event.targetName ?? event.target, title: event.target, thing: true });

/** @param {AuditEvent} event */
const rows = (event) => counted(event.detail.rowsToDelete ?? 0, "row");

/** @param {AuditEvent} event */
const terminal = (event) => `: ${event.detail.client}${event.detail.host ? ` on ${event.detail.host}` : ""}`;

/** @param {AuditEvent} event of a name that was set */
const changedFields = (event) =>
  (event.detail.fields ?? [])
    .map((/** @type {string} */ one) => (one === "email" ? "e-mail address" : "name"))
    .join(" and ");

/** What was missing: to the token, or to its actor. @param {AuditEvent} event */
function denial({ detail }) {
  const missing = detail.privilege
    ? privilegeName(detail.privilege)
    : detail.scope
      ? `the scope ${detail.scope}`
      : null;
  return (
    missing &&
    (detail.cause === "token_scopes" ? `: the scopes of the token do not include ${missing}` : `: lacks ${missing}`)
  );
}

/** @type {Record<string, string>} */
const REJECTIONS = {
  actor_suspended: "the actor is suspended",
  network: "the token is limited to other networks",
  invalid_grant: "the device code is unknown, used or of another client",
};

/** @param {AuditEvent} event */
const rejection = ({ detail }) =>
  REJECTIONS[detail.cause ?? detail.reason] ?? String(detail.reason ?? "").replaceAll("_", " ");
