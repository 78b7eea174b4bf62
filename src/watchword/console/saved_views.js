/**
 * Saved views of a list: a name for the query of its address, kept in this browser for one person.
 */

import { html } from "./html.js";
import { ask, menu } from "./components.js";

/** @typedef {{name: string, query: string}} View */

const MOST = 30;

/**
 * A menu of the views of this page.
 * @param {{path: string, urn: string}} where @param {() => URLSearchParams} current what the address asks for now
 */
export function viewsMenu({ path, urn }, current) {
  const key = `watchword-views ${path} ${urn}`;
  /** @returns {View[]} */
  const read = () => {
    try {
      const found = JSON.parse(localStorage.getItem(key) ?? "[]");
      return Array.isArray(found)
        ? found.filter((one) => typeof one?.name === "string" && typeof one?.query === "string")
        : [];
    } catch {
      return [];
    }
  };
  /** @param {View[]} views */
  const write = (views) => localStorage.setItem(key, JSON.stringify(views.slice(0, MOST)));
  const save = () => {
    const query = new URLSearchParams(current());
    query.delete("page");
    return ask({
      title: "Save this view",
      content: html`<div class="field"><label for="view-name">Name</label><input id="view-name" name="name" required
        maxlength="60"
        autocomplete="off"><p class="hint">Search, filters and order. It is kept in this browser; to share it, share the
          address.</p></div>`,
      action: "Save view",
      act: (form) => {
        const name = String(form.get("name")).trim();
        if (!name) throw new Error("Give the view a name.");
        write([{ name, query: query.toString() }, ...read().filter((one) => one.name !== name)]);
      },
    });
  };
  return menu({
    text: "Views",
    label: "Saved views",
    items: () => html`${read().map(
      (one) => html`<li class="with-remove"><a href="${path}${one.query ? `?${one.query}` : ""}">${one.name}</a>
      <button type="button" class="plain" aria-label="Remove view ${one.name}"
        @click=${() => write(read().filter((other) => other.name !== one.name))}>✕</button></li>`,
    )}
      <li><button type="button" class="plain" @click=${save}>Save this view…</button></li>`,
  });
}
