/**
 * The command palette: finds tokens, people, accounts and policies, goes to pages and runs actions. What is typed is
 * kept nowhere; a pasted token is taken out of the field and looked up by POST.
 */

import { element, html, render } from "./html.js";
import { ApiError, graphql } from "./api.js";
import { ACCOUNT, actor, actorName, counted, pathToId, relative, time } from "./format.js";
import { errorLine, latestSignal, newId, warning } from "./components.js";
import { go } from "./router.js";
import { setTheme, showKeys, signOut, viewsOf } from "./shell.js";
import { ROW, WHOLE, detailsPath, endOf, mayRevoke, mayRotate, statusOf } from "./token_display.js";
import { findToken } from "./token_lookup.js";
import { looksLikeToken } from "./token_text.js";
import { actorPath, mayOffboard, offboardingPath } from "./pages/actor_names.js";

/**
 * @typedef {import("./token_display.js").Token} Token
 * @typedef {import("./shell.js").Me} Me
 * @typedef {{label: unknown, detail?: unknown, danger?: boolean, run: () => unknown}} Option
 * @typedef {{name: string, options: Option[], first?: boolean}} Group `first`: above tokens
 * @typedef {{urn: string, displayName: string | null, status: string | null}} Found a person
 * @typedef {{text: string, opened?: boolean}} Pasted a text with a token; `opened`: it was in the address
 */

const TOKENS = `query FindTokens($input: ListAccessTokensInput) { listAccessTokens(input: $input) { tokens { ${ROW} } }
  }`;
const ONE = `query FindById($id: String!) { getAccessToken(id: $id) { ${WHOLE} } }`;
const OTHERS = `query FindOthers($text: String!, $people: Boolean!, $accounts: Boolean!, $policies: Boolean!) {
  listUsers(input: {query: $text, count: 6}) @include(if: $people) { users { urn displayName status } }
  listActors(input: {prefix: $text, count: 1}) @include(if: $people) { actors { urn displayName status } }
  listServiceAccounts(input: {query: $text, count: 4}) @include(if: $accounts) { serviceAccounts { urn displayName } }
  listPolicies(input: {query: $text, count: 4}) @include(if: $policies) { policies { urn name } } }`;
const TREE = `mutation Tree($one: RevokeAccessTokensInput!, $all: RevokeAccessTokensInput!) {
  one: revokeAccessTokens(input: $one) { count } all: revokeAccessTokens(input: $all) { count } }`;
const PAUSE = 150;

/** Open it over the page. @param {Me} me @param {Pasted} [pasted] */
export function showPalette(me, pasted) {
  const box = /** @type {HTMLDialogElement} */ (
    element(html`<dialog class="palette" aria-label="Search and commands"></dialog>`)
  );
  box.append(finder(me, { pasted, done: () => box.close() }));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  box.querySelector("input")?.focus();
}

/**
 * The field with its results. @param {Me} me
 * @param {{pasted?: Pasted, done?: () => void, inline?: boolean}} [how] `inline`: in a page, where the results cover
 *   what follows; `done` is called before an option is carried out
 */
export function finder(me, { pasted, done, inline = false } = {}) {
  const id = newId("finder");
  /** @type {Option[]} */
  let options = [];
  let active = 0;
  let timer = 0;
  let busy = false;
  let entered = false;
  const box = element(html`<div class="finder ${inline ? "inline" : ""}" @focusout=${left}>
    <input id="${id}" role="combobox" data-secret aria-label="Search or paste a token" aria-autocomplete="list"
      aria-haspopup="listbox"
      aria-controls="${id}-list" aria-expanded="false" placeholder="Search, or paste a token, id, urn or name"
        autocomplete="off"
      autocapitalize="off" spellcheck="false" maxlength="8192" @input=${typed} @keydown=${pressed} @focus=${opened}>
    <div class="finder-results"><div class="finder-card" role="status"></div>
      <div role="listbox" id="${id}-list" aria-label="Results" hidden
        @mousedown=${(/** @type {Event} */ event) => event.preventDefault()}></div></div></div>`);
  const input = /** @type {HTMLInputElement} */ (box.querySelector("input"));
  const results = /** @type {HTMLElement} */ (box.querySelector(".finder-results"));
  const card = /** @type {HTMLElement} */ (box.querySelector(".finder-card"));
  const list = /** @type {HTMLElement} */ (box.querySelector("[role=listbox]"));

  /** @param {Group[]} groups @param {unknown} [above] @param {number} [at] the option to mark */
  function show(groups, above = null, at = 0) {
    const filled = groups.filter((group) => group.options.length);
    options = filled.flatMap((group) => group.options);
    let place = 0;
    render(card, above);
    render(
      list,
      filled.map(
        (group, which) => html`<div role="group" aria-labelledby="${id}-group-${which}">
      <div class="group-name" role="presentation" id="${id}-group-${which}">${group.name}</div>${group.options.map(
        (one) => {
          const mine = place;
          place += 1;
          return html`<div role="option" id="${id}-${mine}" class="option ${one.danger ? "risky" : ""}"
            aria-selected="false"
          @pointermove=${() => mark(mine)} @click=${() => choose(mine)}><span>${one.label}</span>${
            one.detail ? html`<span class="quiet small">${one.detail}</span>` : null
          }</div>`;
        },
      )}</div>`,
      ),
    );
    list.hidden = !options.length;
    reveal(Boolean(options.length || above));
    mark(Math.min(at, options.length - 1));
  }

  /** @param {boolean} open */
  function reveal(open) {
    results.hidden = !open;
    input.setAttribute("aria-expanded", String(open && !list.hidden));
    if (!open) input.removeAttribute("aria-activedescendant");
  }

  /** @param {number} at */
  function mark(at) {
    active = Math.max(0, at);
    list
      .querySelectorAll("[role=option]")
      .forEach((node, place) => node.setAttribute("aria-selected", String(place === at)));
    if (!options.length) {
      input.removeAttribute("aria-activedescendant");
      return;
    }
    input.setAttribute("aria-activedescendant", `${id}-${at}`);
    list.querySelector(`[aria-selected="true"]`)?.scrollIntoView({ block: "nearest" });
  }

  /** @param {number} at */
  function choose(at) {
    const chosen = options[at];
    if (!chosen) return;
    clear();
    done?.();
    void chosen.run();
  }

  function clear() {
    clearTimeout(timer);
    latestSignal(box, null);
    input.value = "";
    busy = entered = false;
    if (inline) show([]);
  }

  /** @param {Event} event */
  function typed(event) {
    event.stopPropagation();
    const text = input.value;
    clearTimeout(timer);
    entered = false;
    if (looksLikeToken(text)) {
      input.value = "";
      void lookUp({ text });
      return;
    }
    busy = Boolean(text.trim());
    if (!busy) latestSignal(box, null);
    show(local(text, me, inline), busy ? searching() : null);
    if (busy) timer = window.setTimeout(() => search(text.trim()), PAUSE);
  }

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    if (event.key === "Escape" && inline && !results.hidden) {
      event.preventDefault();
      clear();
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      // What was typed is not found yet: the first result is chosen when it is.
      if (busy && !active) entered = true;
      else if (!results.hidden) choose(active);
    } else if (["ArrowDown", "ArrowUp"].includes(event.key) && options.length) {
      event.preventDefault();
      reveal(true);
      mark((active + (event.key === "ArrowDown" ? 1 : options.length - 1)) % options.length);
    }
  }

  function opened() {
    if (inline && input.value.trim()) reveal(true);
  }

  /** @param {FocusEvent} event */
  function left(event) {
    if (inline && !box.contains(/** @type {Node | null} */ (event.relatedTarget))) reveal(false);
  }

  /** @param {(signal: AbortSignal) => Promise<void>} work */
  async function load(work) {
    busy = true;
    const signal = latestSignal(box, null);
    try {
      await work(signal);
    } catch (error) {
      if (signal.aborted) return;
      entered = false;
      show(
        inline ? [] : local(input.value, me, inline),
        errorLine(error, () => load(work)),
      );
    } finally {
      if (!signal.aborted) {
        busy = false;
        if (entered) choose(0);
        entered = false;
      }
    }
  }

  /** @param {string} text */
  const search = (text) =>
    load(async (signal) => {
      const wanted = idIn(text);
      const token = wanted ? await byId(wanted, signal) : null;
      // If one kind cannot be searched, the others are shown.
      const parts = token
        ? []
        : await Promise.allSettled([
            tokensWith(text, me, signal),
            othersWith(text, me, signal),
            leaversWith(text, me, signal),
          ]);
      if (signal.aborted) return;
      const found = parts
        .flatMap((part) => (part.status === "fulfilled" ? part.value : []))
        .sort((one, other) => Number(other.first ?? 0) - Number(one.first ?? 0));
      const [failed] = parts.flatMap((part) => (part.status === "rejected" ? [part.reason] : []));
      const groups = [...(token ? [actionsOn(token, me)] : []), ...local(text, me, inline), ...found];
      const none = !groups.some((group) => group.options.length);
      show(
        groups,
        token
          ? cardOf(token)
          : failed
            ? errorLine(failed, () => search(text))
            : none
              ? html`<p class="quiet">Nothing
      matches.</p>`
              : null,
        active,
      );
      if (token) void addTree(token, signal);
    });

  /** @param {Pasted} given */
  const lookUp = ({ text, opened: inAddress }) => {
    const about = inAddress
      ? warning(html`<p>The address contained a token. It was removed, but the history of this browser and
      proxies may have it: revoke the token if others can read them.</p>`)
      : null;
    show([], html`${about}<p class="quiet">Looking up the pasted token…</p>`);
    return load(async (signal) => {
      const token = await findToken(text, signal);
      if (signal.aborted) return;
      show(
        token ? [actionsOn(token, me)] : [],
        html`${about}${
          token
            ? cardOf(token)
            : html`<p><strong>No such token.</strong> None that
        you may see has this text: it is of another service, is incomplete, or was deleted some time after it
        ended.</p>`
        }`,
      );
      if (token) void addTree(token, signal);
    });
  };

  /**
   * How many tokens were made with it, as a dry run of its revocation counts them.
   * @param {Token} token @param {AbortSignal} signal
   */
  async function addTree(token, signal) {
    const asked = (/** @type {boolean} */ cascade) => ({ ids: [token.id], cascade, dryRun: true });
    const place = card.querySelector(".tree-size");
    try {
      const { one, all } = await graphql(TREE, { one: asked(false), all: asked(true) }, { signal });
      const derived = Math.max(0, one.count - (token.status === "ACTIVE" ? 1 : 0));
      if (place)
        render(
          place,
          html`${counted(derived, "live token")} derived from it, ${counted(all.count - one.count, "more", "more")}
            created with it`,
        );
    } catch (error) {
      if (place && !signal.aborted) render(place, "could not be counted");
    }
  }

  if (pasted) void lookUp(pasted);
  else show(local("", me, inline));
  return box;
}

const searching = () => html`<p class="quiet">Searching…</p>`;

/**
 * Pages and actions of this name; all of them without one.
 * @param {string} text @param {Me} me @param {boolean} inline @returns {Group[]}
 */
function local(text, me, inline) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (inline && !words.length) return [];
  const { privileges: may } = me;
  const to = (/** @type {string} */ path) => () => go(path);
  /** @type {[string, () => unknown, boolean][]} */
  const actions = [
    ["New token", to("/console/tokens/new"), may.generatePersonalAccessTokens || may.manageServiceAccounts],
    ["New policy", to("/console/policies/new"), may.managePolicies],
    ["My sessions", to("/console/sessions"), true],
    ["Theme: light", () => setTheme("light"), true],
    ["Theme: dark", () => setTheme("dark"), true],
    ["Theme: as the system", () => setTheme("auto"), true],
    ["Keyboard shortcuts", showKeys, true],
    ["Sign out", signOut, true],
  ];
  const matches = (/** @type {string} */ label) => words.every((word) => label.toLowerCase().includes(word));
  return [
    {
      name: "Pages",
      options: viewsOf(me)
        .filter((view) => matches(view.label))
        .map((view) => ({ label: view.label, run: to(view.path) })),
    },
    {
      name: "Actions",
      options: actions
        .filter(([label, , allowed]) => allowed && matches(label))
        .map(([label, run]) => ({ label, run })),
    },
  ];
}

/** The id in an id, an address of the console or a urn. @param {string} text */
function idIn(text) {
  const part = /(?:^|[:/])([A-Za-z0-9+/_-]{43})=?$/.exec(text)?.[1];
  return part ? pathToId(part) : null;
}

/** @param {string} id @param {AbortSignal} signal @returns {Promise<Token | null>} */
async function byId(id, signal) {
  try {
    return (await graphql(ONE, { id }, { signal })).getAccessToken;
  } catch (error) {
    if (error instanceof ApiError && [400, 403, 404].includes(error.status)) return null;
    throw error;
  }
}

/** @param {string} text @param {Me} me @param {AbortSignal} signal @returns {Promise<Group[]>} */
async function tokensWith(text, me, signal) {
  const { privileges: may } = me;
  if (!may.generatePersonalAccessTokens && !may.manageTokens) return [];
  const own = may.manageTokens ? [] : [{ field: "actorUrn", value: me.urn }];
  const filters = [...own, { field: "text", condition: "CONTAIN", value: text }];
  /** @type {Token[]} */
  const tokens = (await graphql(TOKENS, { input: { count: 6, filters } }, { signal })).listAccessTokens.tokens;
  return [{ name: "Tokens", options: tokens.map((one) => tokenOption(one, me)) }];
}

/** @param {string} text @param {Me} me @param {AbortSignal} signal @returns {Promise<Group[]>} */
async function othersWith(text, me, signal) {
  const { privileges: may } = me;
  const asked = {
    people: may.managePolicies || may.manageTokens,
    accounts: may.manageServiceAccounts,
    policies: may.viewPolicies,
  };
  if (!Object.values(asked).some(Boolean)) return [];
  const found = await graphql(OTHERS, { text, ...asked }, { signal });
  const people = asked.people ? peopleIn(found, text).filter((one) => !(asked.accounts && ACCOUNT.test(one.urn))) : [];
  const pathOf = (/** @type {string} */ urn) =>
    may.managePolicies ? actorPath(urn) : `/console/all-tokens?actor=${encodeURIComponent(urn)}`;
  return [
    {
      name: "People",
      first: people.some((one) => isNamed(one, text)),
      options: people.map((one) => ({
        label: actor(one.urn, one.displayName),
        detail: one.status === "SUSPENDED" ? "suspended" : actorName(one.urn),
        run: () => go(pathOf(one.urn)),
      })),
    },
    {
      name: "Accounts",
      options: (found.listServiceAccounts?.serviceAccounts ?? []).map(
        (/** @type {{urn: string, displayName: string}} */ one) => ({
          label: one.displayName,
          run: () => go(`/console/accounts/${encodeURIComponent(one.urn)}`),
        }),
      ),
    },
    {
      name: "Policies",
      options: (found.listPolicies?.policies ?? []).map((/** @type {{urn: string, name: string}} */ one) => ({
        label: one.name,
        run: () => go(`/console/policies/${encodeURIComponent(one.urn)}`),
      })),
    },
  ];
}

/**
 * "offboard eve": the people to offboard that match the rest.
 * @param {string} text @param {Me} me @param {AbortSignal} signal @returns {Promise<Group[]>}
 */
async function leaversWith(text, me, signal) {
  const name = /^offboard\s+(.+)$/i.exec(text)?.[1];
  if (!name || !mayOffboard(me)) return [];
  const found = await graphql(OTHERS, { text: name, people: true, accounts: false, policies: false }, { signal });
  return [
    {
      name: "Offboard",
      first: true,
      options: peopleIn(found, name)
        .filter((one) => !ACCOUNT.test(one.urn))
        .map((one) => ({
          label: html`Offboard ${actor(one.urn, one.displayName)}…`,
          detail: actorName(one.urn),
          run: () => go(offboardingPath(one.urn)),
        })),
    },
  ];
}

/**
 * The first actor by urn that begins with the text may have exactly this name, and many others may contain it.
 * @param {{listUsers: {users: Found[]}, listActors: {actors: Found[]}}} found @param {string} text @returns {Found[]}
 */
function peopleIn({ listUsers: { users }, listActors: { actors } }, text) {
  const named = [...actors, ...users].filter((one) => isNamed(one, text));
  return [...new Map([...named, ...users].map((one) => [one.urn, one])).values()];
}

/** Whether this is the whole name or urn. @param {Found} one @param {string} text */
const isNamed = (one, text) =>
  [one.urn, actorName(one.urn), one.displayName].some((name) => name?.toLowerCase() === text.toLowerCase());

/** @param {Token} token @param {Me} me @returns {Option} */
function tokenOption(token, me) {
  const used = token.lastUsedAt === null ? "never used" : `used ${relative(token.lastUsedAt)}`;
  return {
    label: html`${token.name} ${statusOf(token)}`,
    detail: `${actorName(token.ownerUrn, token.ownerName)} · ${used}`,
    run: () => go(detailsPath(token, me)),
  };
}

/** @param {Token} token @param {Me} me @returns {Group} */
function actionsOn(token, me) {
  const path = detailsPath(token, me);
  const live = token.status === "ACTIVE";
  return {
    name: "What to do",
    options: [
      { label: `Open ${token.name}`, run: () => go(path) },
      ...(live && mayRevoke(token, me)
        ? [{ label: `Revoke ${token.name}…`, danger: true, run: () => go(`${path}#revoke`) }]
        : []),
      ...(mayRotate(token, me) ? [{ label: `Rotate ${token.name}…`, run: () => go(`${path}#rotate`) }] : []),
      ...(me.privileges.viewAuditLog
        ? [
            {
              label: `Activity of ${token.name}`,
              run: () => go(`/console/activity?target=${encodeURIComponent(token.id)}`),
            },
          ]
        : []),
    ],
  };
}

/** @param {Token} token */
const cardOf = (token) => html`<p class="card-name"><strong>${token.name}</strong> ${statusOf(token)}</p>
  <dl class="facts small"><dt>Owner</dt><dd>${actor(token.ownerUrn, token.ownerName)}</dd>
    ${
      token.actorUrn === token.ownerUrn
        ? null
        : html`<dt>Acts as</dt><dd>${actor(token.actorUrn, token.actorName)}</dd>`
    }
    <dt>Last used</dt><dd>${time(token.lastUsedAt)}${
      token.lastNetwork ? html` from <code>${token.lastNetwork}</code>` : null
    }</dd>
    <dt>Expires</dt><dd>${endOf(token)}</dd>
    <dt>Derived</dt><dd class="tree-size">…</dd></dl>`;
