/**
 * The components of pages. Each works by keyboard and with a screen reader; a status is never shown by colour alone.
 */

import { element, html, render } from "./html.js";
import { errorLine, showErrorAt } from "./error_line.js";
import { number, short } from "./format.js";
import { stayWithin } from "./focus.js";
import { withQuery } from "./router.js";
import { keepDraft } from "./drafts.js";

export { errorLine, showErrorAt } from "./error_line.js";
export { latestSignal, loadList, refreshLists, showingErrors, whileBusy } from "./loading.js";

let made = 0;
/** An id for an element, unique on the page. @param {string} [word] */
export const newId = (word = "x") => `${word}-${(made += 1)}`;

/** A message about a finished action. @param {unknown} content */
export const notice = (content) => html`<div class="notice" role="status" tabindex="-1">
  <span class="mark" aria-hidden="true">✓</span><div>${content}</div></div>`;

/** @param {unknown} content a warning that is not an error */
export const warning = (content) => html`<div class="warning">
  <span class="mark" aria-hidden="true">▲</span><div>${content}</div></div>`;

/**
 * An empty list: one sentence, one action, one command for the terminal.
 * @param {{title: string, sentence: unknown, action?: unknown, command?: string}} what
 */
export const empty = ({ title, sentence, action, command }) => html`<div class="empty">
  <h2>${title}</h2>
  <p>${sentence}</p>
  ${action ? html`<p>${action}</p>` : null}
  ${command ? html`<p class="quiet small">In a terminal:</p>${codeBox(command)}` : null}
</div>`;

/** Shown while something loads. @param {string} [what] */
export const loading = (what = "Loading…") => html`<p class="quiet loading" role="status">${what}</p>`;

/**
 * @template Row
 * @typedef {{label: string, cell: (row: Row) => unknown, sort?: string, class?: string,
 *   first?: "DESCENDING" | "ASCENDING"}} Column
 */

/**
 * A table that turns into stacked rows where it is narrow. A column with `sort` can be ordered by a link that puts
 * `sort` and `order` into the address.
 * @template Row
 * @param {{caption: string, columns: Column<Row>[], rows: Row[], sort?: string | null, order?: string | null,
 *   rowClass?: (row: Row) => string}} what
 */
export function table({ caption, columns, rows, sort, order, rowClass }) {
  return html`<div class="table-box"><a class="skip-pages" href="#pages" @click=${toPages}>Skip to pages</a><table
    class="rows">
    <caption class="unseen">${caption}</caption>
    <thead><tr>${columns.map((column) => header(column, sort, order))}</tr></thead>
    <tbody>${rows.map(
      (row) =>
        html`<tr class="${rowClass?.(row) ?? ""}">${columns.map((column, index) => {
          const content = column.cell(row);
          return index === 0
            ? html`<th scope="row" class="${column.class ?? ""}" data-label="${column.label}">${content}</th>`
            : html`<td class="${column.class ?? ""}" data-label="${column.label}">${content}</td>`;
        })}</tr>`,
    )}</tbody>
  </table></div>`;
}

/** To the link to the next page of the list. @param {Event} event */
function toPages(event) {
  event.preventDefault();
  const pages = /** @type {HTMLElement} */ (event.currentTarget)
    .closest(".table-box")
    ?.parentElement?.querySelector(".pager");
  const next = pages?.querySelector("#next-page, a[rel=next]") ?? pages?.querySelector("a");
  if (next instanceof HTMLElement) next.focus();
}

/**
 * For a link that changes the query: uses the current address, because a filter may have changed since it was drawn.
 * @param {Record<string, string | number | null>} changes
 */
const anew = (changes) => (/** @type {Event} */ event) => {
  /** @type {HTMLAnchorElement} */ (event.currentTarget).href = withQuery(changes);
};

/** @param {Column<any>} column @param {string | null} [sort] @param {string | null} [order] */
function header(column, sort, order) {
  if (!column.sort) {
    return html`<th scope="col" class="${column.class ?? ""}">${
      column.label ? column.label : html`<span class="unseen">Actions</span>`
    }</th>`;
  }
  const active = sort === column.sort;
  const up = order === "ASCENDING";
  const first = column.first ?? "ASCENDING";
  const next = active ? (up ? "DESCENDING" : "ASCENDING") : first;
  const changes = { sort: column.sort, order: next };
  return html`<th scope="col" class="${column.class ?? ""}" aria-sort="${
    active ? (up ? "ascending" : "descending") : null
  }">
    <a class="sorter" id="sort-${column.sort}" href="${withQuery(changes)}" @click=${anew(changes)}>${column.label}<span
      class="arrow" aria-hidden="true">${active ? (up ? "↑" : "↓") : ""}</span></a></th>`;
}

/**
 * "1–20 of 214" and the pages as links. Pages count from 1, in the query's `page`.
 * @param {{start: number, count: number, total: number, shown: number, what?: string}} where
 */
export function pager({ start, count, total, shown, what = "" }) {
  const page = Math.floor(start / count) + 1;
  const last = Math.max(1, Math.ceil(total / count));
  const near = [1, page - 1, page, page + 1, last].filter((n, i, all) => n >= 1 && n <= last && all.indexOf(n) === i);
  /** @param {number} n @param {string} text @param {string} label @param {string} [id] to keep the focus */
  const link = (n, text, label, id) =>
    n < 1 || n > last || n === page
      ? html`<span class="off" aria-hidden="true">${text}</span>`
      : html`<a id="${id ?? null}" href="${withQuery({ page: n === 1 ? null : n })}"
        @click=${anew({ page: n === 1 ? null : n })} aria-label="${label}"
          rel="${n < page ? "prev" : "next"}">${text}</a>`;
  const range = shown ? `${number(start + 1)}–${number(start + shown)} of ${number(total)}` : `0 of ${number(total)}`;
  return html`<nav class="pager" aria-label="Pages">
    <span role="status">${range}${what ? ` ${what}` : ""}</span>
    ${
      last > 1
        ? html`<span class="pages">${link(page - 1, "‹", "Previous page", "previous-page")}
      ${near.map(
        (n, i) =>
          html`${i && n - near[i - 1] > 1 ? html`<span class="off">…</span>` : null}${
            n === page
              ? html`<span class="here" aria-current="page">${number(n)}</span>`
              : link(n, number(n), `Page ${n}`)
          }`,
      )}
      ${link(page + 1, "›", "Next page", "next-page")}</span>`
        : null
    }
  </nav>`;
}

/** Page number of the address → what the API takes. @param {URLSearchParams} query @param {number} [count] */
export function pageOf(query, count = 20) {
  const page = Number(query.get("page") ?? 1);
  return { start: (Number.isSafeInteger(page) && page > 0 ? page - 1 : 0) * count, count };
}

/** @param {string | (() => string)} text @param {string} [label] what is copied, for screen readers */
export function copyButton(text, label = "Copy") {
  /** @param {Event} event */
  const copy = async (event) => {
    const button = /** @type {HTMLButtonElement} */ (event.currentTarget);
    const done = await toClipboard(typeof text === "function" ? text() : text);
    button.dataset.done = done ? "yes" : "no";
    say(done ? "Copied." : "The browser does not allow copying. Select the text and copy it.");
    setTimeout(() => delete button.dataset.done, 2000);
  };
  return html`<button type="button" class="copy" aria-label="${label}" title="${label}" @click=${copy}
    ><span class="word">Copy</span></button>`;
}

/** @param {string} text @returns {Promise<boolean>} whether the browser allowed it */
export async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without https the browser has no clipboard for scripts; the old API needs a selection.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "unseen";
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** An identifier: shortened in the middle, copied whole. @param {string} id @param {string} [what] */
export const idCode = (id, what = "id") =>
  html`<span class="id"><code title="${id}">${short(id)}</code>${copyButton(id, `Copy ${what}`)}</span>`;

/** @param {string} text @param {string} [label] */
export const codeBox = (text, label = "Copy command") => html`<div class="code"><pre tabindex="0" role="region"
  aria-label="${label.replace(/^Copy /, "")}"><code>${text}</code></pre>${copyButton(text, label)}</div>`;

/**
 * A labelled control; the control takes `id` and, for its hint and error, `aria-describedby`.
 * @param {{id: string, label: string, hint?: unknown, error?: unknown, control: unknown, optional?: boolean}} what
 */
export const field = ({ id, label, hint, error, control, optional }) => html`<div class="field" data-field="${id}">
  <label for="${id}">${label}${optional ? html` <span class="quiet small">(optional)</span>` : null}</label>
  ${control}
  ${hint ? html`<p class="hint" id="${id}-hint">${hint}</p>` : null}
  <div class="field-error">${error ? errorLine(error) : null}</div>
</div>`;

/**
 * A panel with details, over the page from the right. Escape closes it, like the link; Tab stays in it.
 * @param {{title: unknown, close: string, content: unknown}} what
 */
export function panel({ title, close, content }) {
  const id = newId("panel");
  const node = element(html`<section class="panel" role="dialog" aria-modal="true" aria-labelledby="${id}">
    <header><h2 id="${id}" tabindex="-1">${title}</h2>
      <a class="close" href="${close}" aria-label="Close details">✕</a></header>
    <div class="panel-body">${content}</div>
  </section>`);
  node.addEventListener("keydown", (event) => {
    if (event.defaultPrevented) return;
    if (event.key === "Escape") /** @type {HTMLElement} */ (node.querySelector("a.close")).click();
    if (event.key === "Tab") stayWithin(node, event);
  });
  return node;
}

/**
 * A modal dialog. `act` does the action; if it fails, the dialog stays open with the error. Resolves to whether it was
 * done.
 * @param {{title: string, content: unknown, action: string, act?: (form: FormData) => unknown, danger?: boolean,
 *   typed?: string, cancel?: string, draft?: string}} what `typed`: text to type before the button works; `draft`: the
 *   key under which what is typed is kept when the dialog is closed
 * @returns {Promise<boolean>}
 */
export function ask({ title, content, action, act, danger = false, typed, cancel = "Cancel", draft }) {
  const id = newId("dialog");
  return new Promise((resolve) => {
    let done = false;
    /** @param {Event} event */
    const submit = async (event) => {
      event.preventDefault();
      const form = /** @type {HTMLFormElement} */ (event.currentTarget);
      const button = /** @type {HTMLButtonElement} */ (form.querySelector("button[type=submit]"));
      const place = /** @type {HTMLElement} */ (form.querySelector(".dialog-error"));
      if (button.disabled) return;
      button.disabled = true;
      render(place, null);
      box.dataset.busy = "";
      try {
        await act?.(new FormData(form));
        if (saved) saved();
        done = true;
        box.close();
      } catch (error) {
        button.disabled = false;
        showErrorAt(place, error);
      } finally {
        delete box.dataset.busy;
      }
    };
    /** @param {Event} event */
    const check = (event) => {
      const button = /** @type {HTMLButtonElement} */ (box.querySelector("button[type=submit]"));
      button.disabled = /** @type {HTMLInputElement} */ (event.currentTarget).value.trim() !== typed;
    };
    const box = /** @type {HTMLDialogElement} */ (
      element(html`<dialog aria-labelledby="${id}">
      <form method="dialog" @submit=${submit}>
        <h2 id="${id}">${title}</h2>
        <div class="dialog-body">${content}</div>
        ${
          typed
            ? html`<div class="field"><label for="${id}-typed">Type ${typed} to confirm</label>
          <input id="${id}-typed" autocomplete="off" @input=${check}></div>`
            : null
        }
        <div class="dialog-error"></div>
        <p class="actions"><button type="button" @click=${() => box.close()}>${cancel}</button>
          <button type="submit" class="${danger ? "danger" : "primary"}"
            ?disabled=${Boolean(typed)}>${action}</button></p>
      </form></dialog>`)
    );
    box.addEventListener("close", () => {
      box.remove();
      resolve(done);
    });
    const saved = draft && keepDraft(/** @type {HTMLFormElement} */ (box.querySelector("form")), draft);
    document.body.append(box);
    box.showModal();
    // Not a time or a link of the content, which a browser would choose.
    /** @type {HTMLElement} */ (
      box.querySelector(".dialog-body :is(input, select, textarea), [id$=-typed], .actions button")
    ).focus();
  });
}

/** Announce a text to screen readers. @param {string} text */
export function say(text) {
  const place = document.getElementById("said");
  if (!place) return;
  place.textContent = "";
  requestAnimationFrame(() => {
    place.textContent = text;
  });
}

/**
 * A button that opens a list of links and buttons. Escape, a click elsewhere and each of its items close it.
 * @param {{text: unknown, label: string, items: () => unknown, class?: string}} what `items`: `<li>` elements, asked
 * for when it opens
 */
export function menu({ text, label, items, class: kind = "" }) {
  const id = newId("menu");
  /** @param {Event} event */
  const opening = (event) => {
    if (/** @type {ToggleEvent} */ (event).newState === "open")
      render(/** @type {Element} */ (event.currentTarget), items());
  };
  /** @param {Event} event */
  const opened = (event) => {
    const list = /** @type {HTMLElement} */ (event.currentTarget);
    const button = list.parentElement?.querySelector("button");
    if (!button || !list.matches(":popover-open")) return;
    const box = button.getBoundingClientRect();
    const below = box.bottom + 4 + list.offsetHeight <= innerHeight;
    list.style.left = `${Math.max(8, Math.min(box.left, innerWidth - list.offsetWidth - 8))}px`;
    list.style.top = `${below ? box.bottom + 4 : Math.max(8, box.top - 4 - list.offsetHeight)}px`;
  };
  /** @param {Event} event */
  const close = (event) => {
    const item = event.target instanceof Element ? event.target.closest("a, button") : null;
    if (item) /** @type {HTMLElement} */ (event.currentTarget).hidePopover();
  };
  return html`<span class="menu"><button type="button" class="${kind}" popovertarget="${id}"
    aria-label="${label}">${text}</button><ul
    id="${id}" popover aria-label="${label}" @beforetoggle=${opening} @toggle=${opened} @click=${close}></ul></span>`;
}

/**
 * Tabs, by mouse and by arrow keys.
 * @param {string} label @param {{name: string, content: unknown}[]} tabs
 */
export function tabs(label, tabs) {
  const id = newId("tabs");
  /** @param {HTMLElement} box @param {number} chosen @param {boolean} [focus] */
  const choose = (box, chosen, focus) => {
    box.querySelectorAll("[role=tab]").forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === chosen));
      tab.setAttribute("tabindex", index === chosen ? "0" : "-1");
      if (index === chosen && focus && tab instanceof HTMLElement) tab.focus();
    });
    box.querySelectorAll("[role=tabpanel]").forEach((body, index) => body.toggleAttribute("hidden", index !== chosen));
  };
  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...box.querySelectorAll("[role=tab]")];
    const at = all.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
    event.preventDefault();
    choose(box, (at + step + all.length) % all.length, true);
  };
  const box = element(html`<div class="tabs">
    <div role="tablist" aria-label="${label}" @keydown=${move}>${tabs.map(
      (tab, index) => html`<button type="button"
      role="tab" id="${id}-${index}" aria-controls="${id}-body-${index}"
        @click=${() => choose(box, index)}>${tab.name}</button>`,
    )}</div>
    ${tabs.map(
      (tab, index) =>
        html`<div role="tabpanel" id="${id}-body-${index}" aria-labelledby="${id}-${index}">${tab.content}</div>`,
    )}
  </div>`);
  choose(box, 0);
  return box;
}

/** @typedef {"live" | "expired" | "revoked" | "soon" | "waiting" | "off" | "failed"} Shape */
/** @type {Record<Shape, string>} */
const SHAPES = { live: "●", expired: "○", revoked: "✕", soon: "▲", waiting: "◐", off: "○", failed: "✕" };

/** A shape and a word. @param {Shape} shape @param {string} [word] */
export const status = (shape, word = shape) => html`<span class="status ${shape}"><span class="shape" aria-hidden="true"
  >${SHAPES[shape]}</span>${word}</span>`;
