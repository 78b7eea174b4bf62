/**
 * The console's entry: who is signed in, which page the address names, and what is shown when a page fails.
 */

import { element, html, render } from "./html.js";
import { ApiError, UNREACHABLE, isAborted, onOtherSession, onSignedOut, session } from "./api.js";
import { MINUTE, keepTimes } from "./format.js";
import { errorLine, loading, refreshLists, say } from "./components.js";
import { focusPage } from "./focus.js";
import { find, go, onAgain, onTokenInAddress, reload, route, start } from "./router.js";
import { forgetDrafts, keepDraftsOf } from "./drafts.js";
import {
  listenToKeys,
  mayView,
  missingFor,
  openPalette,
  showRail,
  showTips,
  toSignIn,
  viewOf,
  whoAmI,
} from "./shell.js";
import { guardFields } from "./token_lookup.js";

route("overview", "/", () => import("./pages/overview.js"));
route("new-token", "/console/tokens/new", () => import("./pages/new_token.js"));
route("tokens", "/console/tokens/:id?", () => import("./pages/tokens.js"));
route("all-tokens", "/console/all-tokens/:id?", () => import("./pages/all_tokens.js"));
route("accounts", "/console/accounts/:urn?", () => import("./pages/accounts.js"));
route("policies", "/console/policies/:urn?", () => import("./pages/policies.js"));
route("actors", "/console/actors/:urn?", () => import("./pages/actors.js"));
route("offboard", "/console/actors/:urn/offboard", () => import("./pages/offboarding.js"));
route("plan", "/console/operations/plan", () => import("./pages/truncation_plan.js"));
route("operations", "/console/operations/:id?", () => import("./pages/operations.js"));
route("retention", "/console/retention/:series?", () => import("./pages/retention.js"));
route("webhooks", "/console/webhooks/:id?", () => import("./pages/webhooks.js"));
route("import", "/console/import", () => import("./pages/import_status.js"));
route("activity", "/console/activity", () => import("./pages/activity.js"));
route("device", "/device", () => import("./pages/device.js"));
route("sessions", "/console/sessions", () => import("./pages/sessions.js"));
route("sign-in", "/console/sign-in", () => import("./pages/sign_in.js"));

const rail = /** @type {HTMLElement} */ (document.getElementById("rail"));
const main = /** @type {HTMLElement} */ (document.getElementById("main"));
/** @type {import("./shell.js").Me | null} */
let me = null;
/** @type {ApiError | null} */
let ended = null;
/** A token that was in an address, until it is looked up. @type {import("./palette.js").Pasted | null} */
let pasted = null;
let leaving = new AbortController();
let turn = 0;
/**
 * The last page that was shown.
 * @typedef {{root: HTMLElement, leaving: AbortController, urn: string, title: string, view: string | null}} Shown
 * @type {Shown | null}
 */
let before = null;

/** @param {string} text */
function title(text) {
  document.title = `${text} · Watchword`;
  say(text);
}

/** @param {URL} at @param {string[]} params @param {HTMLElement} root @returns {import("./router.js").Context} */
const contextOf = (at, params, root) => ({
  root,
  params,
  query: at.searchParams,
  path: at.pathname,
  me: /** @type {import("./shell.js").Me} */ (me),
  signal: leaving.signal,
  title,
});

/**
 * Show a page. With `mayStay`, the page before stays until this one is loaded, and if it cannot be.
 * @param {import("./router.js").Route | null} found @param {URL} at @param {string[]} params @param {boolean} mayStay
 * @returns {Promise<import("./router.js").Outcome>}
 */
async function show(found, at, params, mayStay) {
  closeQuestions();
  if (leaving !== before?.leaving) leaving.abort();
  leaving = new AbortController();
  turn += 1;
  const mine = turn;
  if (before && main.contains(before.root)) before.title = document.title;
  const root = document.createElement("div");
  root.className = "page";
  const view = found && viewOf(found.name);
  const module = found?.load();
  module?.catch(() => {}); // an error is shown once it is clear that the caller may use the page
  const open = () => {
    showRail(rail, me, view);
    main.replaceChildren(root);
  };
  const opened = () => {
    if (before && before.leaving !== leaving) before.leaving.abort();
    before = me && { root, leaving, urn: me.urn, title: document.title, view };
    return /** @type {const} */ ("shown");
  };
  try {
    const current = me && found?.name !== "sign-in" ? null : await session.read();
    // The user has gone to another page meanwhile, or another user has signed in.
    if (mine !== turn) return "overtaken";
    if (found?.name === "sign-in") {
      me = null;
      showRail(rail, null, null);
      const { signIn } = await import("./pages/sign_in.js");
      if (mine !== turn) return "overtaken";
      main.replaceChildren(root);
      const problem = ended ?? (pasted?.opened && !current?.signedIn ? new ApiError(IN_ADDRESS) : null);
      ended = null;
      signIn({ ...contextOf(at, params, root), session: /** @type {import("./api.js").Session} */ (current), problem });
      return opened();
    }
    if (current && !current.signedIn) {
      if (current.message) ended = new ApiError(current.message, { reason: current.reason, status: 401 });
      await toSignIn(at.pathname + at.search);
      return "overtaken";
    }
    const now = current ? whoAmI(current) : me;
    if (!now || mine !== turn) return "overtaken";
    me = now;
    keepDraftsOf(me.urn);
    if (!found) {
      open();
      nothingHere(root);
      return opened();
    }
    if (!mayView(found.name, me) && !current) {
      // The privilege may be new.
      me = null;
      return await show(found, at, params, mayStay);
    }
    if (!mayView(found.name, me)) {
      open();
      notYours(root, at, missingFor(found.name, me));
      return opened();
    }
    if (!mayStay) open();
    render(root, loading());
    const { page } = await /** @type {Promise<import("./router.js").Page>} */ (module).catch(whyNotLoaded);
    if (mine !== turn) return "overtaken";
    if (mayStay) open();
    await page(contextOf(at, params, root));
    if (mine !== turn) return "overtaken";
    lookUpPasted();
    // The focused element was on the page before: move the focus to the start of this one.
    focusPage();
    return opened();
  } catch (error) {
    if (isAborted(error)) return "overtaken";
    if (mine !== turn || (error instanceof ApiError && error.status === 401)) return "overtaken";
    const outdated = error instanceof ApiError && error.reason === OUTDATED;
    if (mayStay && before && before.urn === me?.urn) {
      stay(before, at, error, outdated);
      return "stayed";
    }
    main.replaceChildren(root);
    render(
      root,
      html`<h1>This page could not be loaded</h1>${errorLine(error, outdated ? undefined : reload)}
      ${
        outdated
          ? html`<p class="actions"><button type="button" class="primary"
            @click=${() => location.reload()}>Reload</button></p>`
          : null
      }`,
    );
    return opened();
  }
}

/**
 * The next page could not be shown: say so above the page that stays.
 * @param {Shown} old @param {URL} at @param {unknown} error @param {boolean} outdated
 */
function stay(old, at, error, outdated) {
  leaving.abort();
  ({ leaving } = old);
  showRail(rail, me, old.view);
  document.title = old.title;
  const problem = element(html`<div class="page-problem" tabindex="-1" role="group"
      aria-label="Problem"><p><strong><code>${at.pathname}</code>
      could not be opened.</strong> You are still on the page
      before.</p>${errorLine(error, outdated ? undefined : () => go(at.href))}
    ${
      outdated
        ? html`<p class="actions"><button type="button" class="primary"
          @click=${() => location.assign(at.href)}>Reload</button></p>`
        : null
    }</div>`);
  main.replaceChildren(problem, old.root);
  problem.focus();
}

const OUTDATED = "console_updated";

/** Its files have other addresses after an upgrade of the server. @returns {Promise<never>} */
async function whyNotLoaded() {
  const gone = await fetch(import.meta.url, { method: "HEAD", cache: "no-store" }).then(
    (answer) => answer.status === 404,
    () => false,
  );
  if (gone) throw new ApiError("The server has a newer version of this page. Reload it.", { reason: OUTDATED });
  throw new ApiError(UNREACHABLE, { reason: "unreachable" });
}

const IN_ADDRESS = "The address contained a token. It was removed. Sign in to see whose it is and to revoke it.";

function lookUpPasted() {
  if (pasted) void openPalette(pasted);
  pasted = null;
}

/** @param {HTMLElement} root */
function nothingHere(root) {
  title("Page not found");
  render(
    root,
    html`<h1>Page not found</h1><p>The console has no page at this address.
    <a href="/">Go to the overview.</a></p>`,
  );
}

/** @param {HTMLElement} root @param {URL} at @param {string} missing names of privileges */
function notYours(root, at, missing) {
  title("Access denied");
  render(
    root,
    html`<h1>Access denied</h1><p>You lack <strong>${missing}</strong> for <code>${at.pathname}</code>: no policy grants
    it, or the token you signed in with is limited to other scopes. Ask someone who manages policies for the privilege
    and reload, or sign in with a token that has it. <a href="/">Go to the overview.</a></p>`,
  );
}

/** @param {string} which */
const close = (which) =>
  document.querySelectorAll(which).forEach((box) => /** @type {HTMLDialogElement} */ (box).close());
const closeDialogs = () => close("dialog[open]");
// A dialog belongs to its page; one whose action is running stays open.
const closeQuestions = () => close("dialog[open]:not([data-busy])");

onSignedOut((error) => {
  ended = error;
  me = null;
  closeDialogs();
  const here = location.pathname + location.search;
  if (find(new URL(location.href))[0]?.name !== "sign-in") void toSignIn(here);
});

// Another user may be signed in now: reload, so that this page neither shows nor does anything for the wrong one.
onOtherSession((now) => {
  if (me && me.urn === now.actorUrn && me.tokenId === now.tokenId) return;
  if (!now.actorUrn) forgetDrafts();
  me = null;
  closeDialogs();
  void reload();
});

onAgain(async (kept, at, params) => {
  closeQuestions();
  leaving.abort();
  leaving = new AbortController();
  if (before) before.leaving = leaving;
  main.querySelector(".page-problem")?.remove();
  const root = main.querySelector(".page");
  if (!(root instanceof HTMLElement)) return go(at.href, { replace: true, sure: true });
  lookUpPasted();
  return kept.again?.(contextOf(at, params, root));
});
onTokenInAddress((text, opened) => {
  pasted = { text, opened };
});
guardFields((text) => openPalette({ text }));

let hiddenAt = Infinity;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) hiddenAt = Date.now();
  else if (Date.now() - hiddenAt > MINUTE) void refreshLists();
});

document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
listenToKeys();
showTips();
keepTimes();
await start(show);
