/** Console sessions of one actor, one's own by default: see where one is signed in, and end sessions. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { time } from "../format.js";
import { ask, empty, loadList, notice, pageOf, pager, table } from "../components.js";
import { setHooks } from "../router.js";
import { actorName } from "./actor_names.js";

/** @typedef {{id: string, method: string, createdAt: number, seenAt: number, endsAt: number, peer: string, current: boolean}} Session */

const LIST = `query Sessions($input: ListSessionsInput) { listSessions(input: $input) { start count total
  sessions { id method createdAt seenAt endsAt peer current } } }`;
const END = `mutation End($id: String!) { endSession(id: $id) }`;
/** @type {Record<string, string>} */
const METHODS = { OIDC: "Identity provider", TOKEN: "Token", LOCAL: "Local mode" };

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { root, me } = context;
  let at = context;
  const actor = () => at.query.get("actor") ?? me.urn;
  render(root, html`<div class="page-head"><h1>Sessions</h1></div><p class="quiet lead" id="whose"></p>
    <div id="said-here"></div><div id="list" class="stack"></div>`);
  const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.querySelector(`#${id}`));

  /** @param {import("../router.js").Context} now */
  async function show(now) {
    at = now;
    at.title("Sessions");
    render(place("whose"), html`Browsers in which ${actor() === me.urn ? "you are" : html`<strong>${actorName(actor())}</strong> is`} signed in.`);
    await list();
  }

  const list = () => loadList(place("list"), at.signal, async (signal) => {
    const found = (await graphql(LIST, { input: { ...pageOf(at.query), actorUrn: actor() } }, { signal })).listSessions;
    const rows = /** @type {Session[]} */ (found.sessions);
    render(place("list"), found.total ? html`${sessions(rows)}${pager({ ...found, shown: rows.length })}`
      : empty({ title: "No sessions", sentence: "This actor is signed in nowhere." }));
  });

  const sessions = (/** @type {Session[]} */ rows) => table({
    caption: "Sessions", rows,
    columns: [
      { label: "Signed in", cell: (one) => html`${time(one.createdAt)}${one.current ? html` <strong>(this browser)</strong>` : null}` },
      { label: "By", cell: (one) => METHODS[one.method] ?? one.method },
      { label: "From", cell: (one) => one.peer },
      { label: "Last used", cell: (one) => time(one.seenAt) },
      { label: "Ends", cell: (one) => time(one.endsAt) },
      { label: "", cell: (one) => one.current ? null : html`<button type="button" @click=${() => end(one)}>End…</button>` },
    ],
  });

  /** @param {Session} one */
  async function end(one) {
    const done = await ask({
      title: "End this session?", danger: true, action: "End session",
      content: html`<p>The browser at ${one.peer} must sign in again. Its tokens stay valid.</p>`,
      act: () => graphql(END, { id: one.id }),
    });
    if (!done) return;
    render(place("said-here"), notice(html`Ended the session from ${one.peer}.`));
    await list();
  }

  setHooks(root, { again: show });
  await show(context);
}
