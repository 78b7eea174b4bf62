/** Console sessions: own ones, and for administrators those of one actor or of everyone; end them. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { time, tokenPath } from "../format.js";
import { ask, empty, loadList, notice, pageOf, pager, table } from "../components.js";
import { goQuery, setHooks, withQuery } from "../router.js";
import { actorPicker, isUrn, whoIs } from "../actor_picker.js";
import { actorLink, actorName } from "./actor_names.js";

/**
 * @typedef {{id: string, actorUrn: string, actorName: string | null, method: string, tokenId: string | null,
 *   createdAt: number, seenAt: number, endsAt: number, peer: string, current: boolean}} Session
 */

const LIST = `query Sessions($input: ListSessionsInput) { listSessions(input: $input) { start count total
  sessions { id actorUrn actorName method tokenId createdAt seenAt endsAt peer current } } }`;
const END = `mutation End($id: String!) { endSession(id: $id) }`;
/** @type {Record<string, string>} */
const METHODS = { OIDC: "Identity provider", TOKEN: "Token", LOCAL: "Local mode" };

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  let at = context;
  const all = () => at.query.has("all");
  const actor = () => at.query.get("actor") ?? me.urn;
  const picker = actorPicker(me, { id: "session-actor", change: (urn) => goQuery({ actor: urn, all: null }) });
  render(
    root,
    html`<div class="page-head"><h1>Sessions</h1></div><ul class="numbers" id="kinds"></ul>
    <p class="quiet lead" id="whose"></p><div class="filters" id="filters"></div>
    <div id="said-here"></div><div id="list" class="stack"></div>`,
  );
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @param {import("../router.js").Context} now */
  async function show(now) {
    at = now;
    at.title("Sessions");
    showHead();
    await list();
  }

  function showHead() {
    const own = !all() && actor() === me.urn;
    render(
      place("whose"),
      html`Browsers in which ${all() ? "someone is" : own ? "you are" : html`<strong>${actorName(actor())}</strong> is`}
      signed in to this console. A session ends when it is signed out, is not used for long, or its token or actor is
      stopped. Ending it revokes no token.`,
    );
    if (!me.privileges.managePolicies) return;
    render(
      place("kinds"),
      [
        ["Yours", null, own],
        ["Everyone's", "1", all()],
      ].map(
        ([label, word, here]) => html`<li><a
      href="${withQuery({ all: /** @type {string | null} */ (word), actor: null })}"
        aria-current="${here ? "true" : null}">${label}</a></li>`,
      ),
    );
    picker.set(own || all() ? "" : actor());
    render(
      place("filters"),
      html`<div class="filter"><label for="session-actor">Of one actor</label>${picker.node}</div>`,
    );
  }

  const list = () =>
    loadList(place("list"), at.signal, async (signal) => {
      if (!all() && !isUrn(actor())) {
        render(place("list"), whoIs(actor()));
        return;
      }
      const whose = all() ? { all: true } : { actorUrn: actor() };
      const found = (await graphql(LIST, { input: { ...pageOf(at.query), ...whose } }, { signal })).listSessions;
      const rows = /** @type {Session[]} */ (found.sessions);
      render(
        place("list"),
        found.total
          ? html`${sessions(rows)}${pager({ ...found, shown: rows.length })}`
          : empty({ title: "No sessions", sentence: "This actor is signed in nowhere." }),
      );
    });

  const sessions = (/** @type {Session[]} */ rows) =>
    table({
      caption: "Sessions",
      rows,
      columns: [
        ...(all()
          ? [{ label: "Who", cell: (/** @type {Session} */ one) => actorLink(one.actorUrn, me, one.actorName) }]
          : []),
        {
          label: "Signed in",
          cell: (one) => html`${time(one.createdAt)}${one.current ? html` <strong>(this browser)</strong>` : null}`,
        },
        {
          label: "By",
          cell: (one) =>
            one.tokenId && (one.actorUrn === me.urn || me.privileges.manageTokens)
              ? html`<a href="${tokenPath(one.tokenId)}">${METHODS[one.method]}</a>`
              : (METHODS[one.method] ?? one.method),
        },
        { label: "From", cell: (one) => one.peer },
        { label: "Last used", cell: (one) => time(one.seenAt) },
        { label: "Ends", cell: (one) => time(one.endsAt) },
        {
          label: "",
          cell: (one) =>
            one.current
              ? null
              : html`<button type="button" @click=${() => end(one)}>End…<span class="unseen">
        the session of ${actorName(one.actorUrn, one.actorName)} from ${one.peer}</span></button>`,
        },
      ],
    });

  /** @param {Session} one */
  async function end(one) {
    const whose = one.actorUrn === me.urn ? "" : ` of ${actorName(one.actorUrn, one.actorName)}`;
    const done = await ask({
      title: `End this session${whose}?`,
      danger: true,
      action: "End session",
      content: html`<p>The browser at ${one.peer} must sign in again. Tokens stay valid${
        whose
          ? html`: to stop them too,
        suspend the actor`
          : null
      }.</p>`,
      act: () => graphql(END, { id: one.id }),
    });
    if (!done) return;
    render(place("said-here"), notice(html`Ended the session${whose} from ${one.peer}.`));
    await list();
  }

  setHooks(root, { again: show });
  await show(context);
}
