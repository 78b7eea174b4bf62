/** How webhooks are shown. */

import { status } from "../components.js";

/**
 * @typedef {{id: string, name: string, url: string, actions: string[], actorUrns: string[], groupUrns: string[],
 *   state: "ENABLED" | "DISABLED" | "STOPPED", stopReason: "failed" | "queue_full" | "gone" | null, createdAt: number,
 *   createdBy: string, createdByName: string | null, set: string | null, lastDeliveredAt: number | null, waiting:
 *   number, dropped: number, failingSince: number | null, nextAttemptAt: number | null, previousSecretUntil: number |
 *   null}} Webhook
 */

export const WEBHOOK = `id name url actions actorUrns groupUrns state stopReason createdAt createdBy createdByName set
  lastDeliveredAt waiting dropped failingSince nextAttemptAt previousSecretUntil`;

/** @param {string} id */
export const webhookPath = (id) => `/console/webhooks/${encodeURIComponent(id)}`;

/** @param {Webhook} one */
export function webhookState(one) {
  if (one.state === "STOPPED") return status("failed", "stopped");
  if (one.state === "DISABLED")
    return one.stopReason ? status("failed", "disabled by the receiver") : status("off", "disabled");
  return one.failingSince ? status("soon", "failing") : status("live", "enabled");
}

/** Without the path, which may be secret. @param {string} url */
export const hostOf = (url) => new URL(url).host;
