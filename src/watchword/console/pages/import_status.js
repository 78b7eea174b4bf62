/** What came from DataHub, and how much of it is still in use. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { fullTime, inTerminal, number, onServer, relative, time } from "../format.js";
import { codeBox, empty, loadList, warning } from "../components.js";
import { setHooks } from "../router.js";

const STATUS = `{ importStatus { tokens live neverExpiring usedIn30Days lastExpiresAt lastChangedAt hasSalt } }`;
/** As many tokens as are counted. */
const MOST = 10_000;

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  context.title("Import");
  render(
    root,
    html`<div class="page-head"><h1>Import</h1></div>
    <p class="quiet lead">Tokens that came from DataHub by <code>watchword import datahub</code>. They keep their ids
      and stay valid here.</p>
    <div id="status" class="stack"></div>`,
  );
  const place = /** @type {HTMLElement} */ (root.querySelector("#status"));

  /** @param {import("../router.js").Context} at */
  const show = (at) =>
    loadList(place, at.signal, async (signal) => {
      const found = (await graphql(STATUS, {}, { signal })).importStatus;
      if (!found.tokens && !found.lastChangedAt) {
        render(
          place,
          empty({
            title: "Nothing was imported",
            sentence:
              "An import brings DataHub's tokens, people, groups and policies, and follows it until every program " +
              "uses this service.",
            command: onServer("watchword import datahub --from datahub.jsonl --dry-run", me),
          }),
        );
        return;
      }
      const share = (/** @type {number} */ count) =>
        found.tokens >= MOST ? `of the first ${number(MOST)}` : `of ${number(count)}`;
      render(
        place,
        html`${
          found.hasSalt || !found.live
            ? null
            : warning(html`<p><strong>DataHub's salt is not set: the service rejects every imported token.</strong>
        Set <code>WATCHWORD_DATAHUB_SALT_FILE</code> and restart.</p>`)
        }
      <ul class="big-numbers">
        <li><strong>${found.tokens >= MOST ? `${number(MOST)}+` : number(found.tokens)}</strong> imported<span
          class="quiet">and not expired in DataHub</span></li>
        <li><strong>${number(found.hasSalt ? found.live : 0)}</strong> still accepted<span
          class="quiet">${share(found.tokens)}</span></li>
        <li><strong>${number(found.usedIn30Days)}</strong> used in 30 days<span
          class="quiet">${share(found.tokens)}</span></li>
        <li><strong>${number(found.neverExpiring)}</strong> never expire<span class="quiet">until they are rotated or
          revoked</span></li>
      </ul>
      <dl class="facts"><dt>Last change by an import</dt><dd>${time(
        found.lastChangedAt,
        "unknown: its event was deleted",
      )}</dd>
        <dt>Accepted until</dt><dd>${
          found.neverExpiring
            ? "always, unless those that never expire are rotated"
            : found.lastExpiresAt
              ? html`${fullTime(found.lastExpiresAt)} <span class="quiet">(${relative(found.lastExpiresAt)}, the last
                one)</span>`
              : "none is accepted any more"
        }</dd>
        ${
          me.privileges.viewAuditLog
            ? html`<dt>History</dt><dd><a href="/console/activity?action=datahub.imported">What each import
              changed</a></dd>`
            : null
        }</dl>
      ${
        found.live
          ? html`<p>Rotate those that are still used, so that they become tokens of this
            service:</p>${codeBox(inTerminal("watchword token rotate ID", me))}`
          : html`<p>No imported token is accepted any more. Remove DataHub's salt from the service's settings.</p>`
      }`,
      );
    });
  setHooks(root, { again: show });
  await show(context);
}
