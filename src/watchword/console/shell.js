/**
 * The frame around every page: the navigation with the views that the caller may use, the theme, the shortcuts.
 */

import { element, html, render } from "./html.js";
import { UNREACHABLE, session } from "./api.js";
import { actorName, exact } from "./format.js";
import { ask, errorLine, say } from "./components.js";
import { forgetDrafts } from "./drafts.js";
import { icon } from "./icons.js";
import { privilegeName } from "./privileges.js";
import { clearPage, go, mayLeave } from "./router.js";

/**
 * @typedef {Record<"generatePersonalAccessTokens" | "manageTokens" | "manageServiceAccounts" | "introspectTokens"
 *   | "managePolicies" | "viewPolicies" | "getTaskStatus" | "getIndexSizes" | "truncateTimeseries" |
 *   "manageSystemOperations" | "releaseRetentionHolds" | "viewAuditLog" | "manageWebhooks", boolean>} Privileges
 * @typedef {{urn: string, displayName: string | null, tokenId: string | null, expiresAt: number | null,
 *   localMode: boolean, dataDir: string | null, version: string, privileges: Privileges}} Me
 */

/**
 * @typedef {{name: string, label: string, path: string, needs: Partial<Record<keyof Privileges, string>>,
 *   any?: boolean}} View `needs`: all of these privileges, or with `any` one of them
 * @type {View[]}
 */
const VIEWS = [
  { name: "overview", label: "Overview", path: "/", needs: {} },
  { name: "tokens", label: "My tokens", path: "/console/tokens", needs: {} },
  {
    name: "all-tokens",
    label: "All tokens",
    path: "/console/all-tokens",
    needs: { manageTokens: "MANAGE_ACCESS_TOKENS" },
  },
  {
    name: "accounts",
    label: "Accounts",
    path: "/console/accounts",
    needs: { manageServiceAccounts: "MANAGE_SERVICE_ACCOUNTS" },
  },
  { name: "policies", label: "Policies", path: "/console/policies", needs: { viewPolicies: "VIEW_POLICIES" } },
  { name: "actors", label: "Actors", path: "/console/actors", needs: { managePolicies: "MANAGE_POLICIES" } },
  {
    name: "operations",
    label: "Operations",
    path: "/console/operations",
    needs: {
      truncateTimeseries: "TRUNCATE_TIMESERIES_INDEX_PRIVILEGE",
      getIndexSizes: "GET_TIMESERIES_INDEX_SIZES_PRIVILEGE",
    },
    any: true,
  },
  {
    name: "retention",
    label: "Retention",
    path: "/console/retention",
    needs: { truncateTimeseries: "TRUNCATE_TIMESERIES_INDEX_PRIVILEGE" },
  },
  {
    name: "webhooks",
    label: "Webhooks",
    path: "/console/webhooks",
    needs: { manageWebhooks: "MANAGE_WEBHOOKS", viewAuditLog: "VIEW_AUDIT_LOG" },
  },
  { name: "activity", label: "Activity", path: "/console/activity", needs: { viewAuditLog: "VIEW_AUDIT_LOG" } },
];

/** @param {import("./api.js").Session} current of a signed-in user @returns {Me} */
export const whoAmI = (current) => ({
  urn: current.actorUrn ?? "",
  displayName: current.displayName ?? null,
  privileges: /** @type {Privileges} */ (current.privileges ?? {}),
  tokenId: current.tokenId ?? null,
  expiresAt: current.expiresAt ?? null,
  localMode: current.localMode,
  dataDir: current.dataDir ?? null,
  version: current.version ?? "",
});

const MARK = new URL("mark.svg", import.meta.url).pathname;

/** @type {Record<string, string>} */
const WITHIN = { "new-token": "tokens", plan: "operations", offboard: "actors", import: "all-tokens" };

/** @param {string} name of a route @returns {string} the view of the rail that it belongs to */
export const viewOf = (name) => WITHIN[name] ?? name;

/**
 * The names of the privileges that the caller lacks for a view; empty if it may use the view.
 * @param {string} name @param {Me} me
 */
export function missingFor(name, { privileges }) {
  const { needs, any } = VIEWS.find((view) => view.name === viewOf(name)) ?? { needs: {} };
  const all = Object.entries(needs);
  const missing = all
    .filter(([flag]) => !privileges[/** @type {keyof Privileges} */ (flag)])
    .map(([, word]) => privilegeName(word));
  return any && missing.length < all.length ? "" : missing.join(any ? " or " : " and ");
}

/** @param {string} name @param {Me} me whether the caller may use the view */
export const mayView = (name, me) => missingFor(name, me) === "";

/** The views of the rail that the caller may use. @param {Me} me */
export const viewsOf = (me) => VIEWS.filter((view) => mayView(view.name, me));

/** @type {Me | null} */
let caller = null;

/**
 * Open the command palette, if someone is signed in.
 * @param {import("./palette.js").Pasted} [pasted] a token to look up
 */
export async function openPalette(pasted) {
  try {
    const { showPalette } = await import("./palette.js");
    if (caller) showPalette(caller, pasted);
  } catch {
    say(UNREACHABLE);
  }
}

/** @param {HTMLElement} rail @param {Me | null} me @param {string | null} here the name of the view that is shown */
export function showRail(rail, me, here) {
  caller = me;
  const views = me ? viewsOf(me) : [];
  delete rail.dataset.open;
  render(
    rail,
    html`<a class="brand" href="/"><img src="${MARK}" alt="" width="20" height="20"><span>Watchword</span></a>
    <button type="button" class="plain" id="menu" aria-expanded="false" aria-controls="rail-body"
      @click=${toggleMenu}>${icon("menu")}Menu</button>
    <div id="rail-body">
    ${
      me
        ? html`<button type="button" class="plain find" aria-haspopup="dialog"
          @click=${() => openPalette()}>${icon("search")}<span>Search <kbd
      class="wide">/</kbd></span></button><nav aria-label="Views"><ul>${views.map(
        (view) => html`<li><a href="${view.path}"
      aria-current="${view.name === here ? "page" : null}">${icon(view.name)}<span>${view.label}</span></a></li>`,
      )}</ul></nav>`
        : null
    }
    <div class="rail-end">
      <button type="button" class="plain" id="theme" @click=${nextTheme}
        aria-label="Theme: ${theme()}">${icon("theme")}<span><span
        class="wide">Theme: </span><span class="theme-name">${theme()}</span></span></button>
      <button type="button" class="plain keys" @click=${showKeys}>${icon("keys")}<span>Shortcuts <kbd
        class="wide">?</kbd></span></button>
      ${
        me
          ? html`<a class="who" href="/console/sessions" title="${me.urn}${
              me.expiresAt ? `\nThis session expires ${exact(me.expiresAt)}.` : ""
            }"
          >${icon("person")}<span>${actorName(me.urn, me.displayName)}</span></a>
        <button type="button" class="plain" id="sign-out" @click=${signOut}>${icon("leave")}<span>Sign
          out</span></button>`
          : null
      }
    </div></div>
    ${
      me?.localMode
        ? html`<p class="local-mode"><span aria-hidden="true">▲</span> Local mode<span class="wide">: anyone who can
      reach this address can act as any actor.</span></p>`
        : null
    }`,
  );
}

/** On a narrow screen the views are a menu. @param {Event} event */
function toggleMenu(event) {
  const button = /** @type {HTMLElement} */ (event.currentTarget);
  const rail = /** @type {HTMLElement} */ (button.closest(".rail"));
  const open = rail.toggleAttribute("data-open");
  button.setAttribute("aria-expanded", String(open));
}

function closeMenu() {
  const button = document.querySelector(".rail[data-open] #menu");
  if (!(button instanceof HTMLElement)) return;
  button.click();
  button.focus();
}

export async function signOut() {
  if (!(await mayLeave())) return;
  /** @type {string | null} */
  let elsewhere = null;
  const leave = async () => {
    elsewhere = await session.signOut();
    forgetDrafts();
    clearPage();
  };
  try {
    await leave();
  } catch (error) {
    // The user must know that the session is still valid.
    const done = await ask({
      title: "You are still signed in",
      content: errorLine(error),
      action: "Try again",
      cancel: "Stay",
      act: leave,
    });
    if (!done) return;
  }
  const both =
    elsewhere &&
    (await ask({
      title: "You are signed out here",
      content: html`<p>At <strong>${new URL(elsewhere).hostname}</strong> you are still signed in: anyone who uses this
      browser can sign in here again without a password.</p>`,
      action: "Sign out there too",
      cancel: "Stay signed in there",
    }));
  location.assign(both ? /** @type {string} */ (/** @type {unknown} */ (elsewhere)) : "/console/sign-in");
}

const THEMES = ["auto", "light", "dark"];

function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);

/** @param {string} next auto, light or dark */
export function setTheme(next) {
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("theme", next);
  } catch {
    // Without storage the theme applies to this page only.
  }
  const button = document.getElementById("theme");
  button?.setAttribute("aria-label", `Theme: ${next}`);
  const name = button?.querySelector(".theme-name");
  if (name) name.textContent = next;
}

export const showKeys = () =>
  ask({
    title: "Keyboard shortcuts",
    content: html`<dl class="keys-list">
    <dt><kbd>/</kbd> or <kbd>Ctrl</kbd> <kbd>K</kbd>, <kbd>⌘</kbd> <kbd>K</kbd></dt><dd>Search and commands</dd>
    <dt><kbd>n</kbd></dt><dd>Create, on pages that can</dd>
    <dt><kbd>Esc</kbd></dt><dd>Close details or a dialog</dd><dt><kbd>?</kbd></dt><dd>Show this list</dd></dl>`,
    action: "Close",
    cancel: "Back",
  });

/** `/`, Ctrl+K and ⌘K open the command palette; `n` follows the element marked `data-key="new"`. */
export function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || document.querySelector("dialog[open]")) return;
    const withKey = event.ctrlKey || event.metaKey;
    const at = event.target;
    const typing = at instanceof HTMLElement && at.closest("input, textarea, select, [contenteditable]");
    if (withKey ? event.key === "k" : event.key === "/" && !typing) {
      event.preventDefault();
      void openPalette();
      return;
    }
    if (withKey || typing) return;
    if (event.key === "Escape") closeMenu();
    if (event.key === "?") {
      event.preventDefault();
      void showKeys();
    }
    const target = event.key === "n" && document.querySelector(`[data-key="new"]`);
    if (!(target instanceof HTMLElement)) return;
    event.preventDefault();
    target.click();
  });
}

/** Show the exact time of a focused time: browsers show a `title` only under the mouse. */
export function showTips() {
  const tip = element(html`<div class="tip" popover="manual" aria-hidden="true"></div>`);
  document.body.append(tip);
  document.addEventListener("focusin", (event) => {
    const node = event.target;
    if (!(node instanceof HTMLElement) || node.localName !== "time" || !node.matches(":focus-visible")) return;
    tip.textContent = node.title;
    tip.showPopover();
    const box = node.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${box.bottom + 4}px`;
  });
  document.addEventListener("focusout", () => tip.matches(":popover-open") && tip.hidePopover());
}

/** @param {string} here where to come back to @returns {Promise<void>} */
export const toSignIn = (here) =>
  go(`/console/sign-in?next=${encodeURIComponent(here)}`, { replace: true, sure: true });
