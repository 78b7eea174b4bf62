/**
 * A picker for people and groups: type a part of a name, choose from the list or press Enter. What is chosen is shown as
 * removable names. The form field has a line for each: the urn, a tab and the name, which a draft of the form keeps.
 */

import { element, html, render } from "../html.js";
import { graphql } from "../api.js";
import { newId, say } from "../components.js";
import { GROUP, actorName, groupName, userUrn } from "./actor_names.js";

/**
 * @typedef {{urn: string, label: string, about: string}} Subject
 * @typedef {{urn: string, displayName?: string | null, name?: string | null, memberCount?: number | null}} Found
 */

const SEARCH = `query Subjects($query: String!) {
  listUsers(input: {query: $query, count: 8}) { users { urn displayName } }
  listGroups(input: {query: $query, count: 5}) { groups { urn name memberCount } } }`;
const KNOWN = `query IsKnown($urn: String!) { getActor(urn: $urn) { displayName known } }`;
const UNKNOWN = "not known yet";

/** @param {Found} group @returns {Subject} */
const ofGroup = ({ urn, name, memberCount }) => ({
  urn, label: name ?? groupName(urn), about: typeof memberCount === "number" ? `group, ${memberCount} member${memberCount === 1 ? "" : "s"}` : "group",
});

/** @param {Found} user @returns {Subject} */
const ofUser = ({ urn, displayName }) => ({ urn, label: actorName(urn, displayName), about: displayName ? actorName(urn) : "" });

/** @param {string} urn what is known of it without asking @returns {Subject} */
const ofUrn = (urn) => (urn.startsWith(GROUP) ? { urn, label: groupName(urn), about: "group" } : { urn, label: actorName(urn), about: "" });

/**
 * @param {{id: string, name: string, users: Found[], groups: Found[], describedby?: string}} what chosen at first
 * @returns {{node: HTMLElement, commit: () => void}} `commit`: take what is typed and was not chosen
 */
export function subjectPicker({ id, name, users, groups, describedby }) {
  const list = newId("subjects");
  /** @type {Map<string, Subject>} */
  const known = new Map([...users.map(ofUser), ...groups.map(ofGroup)].map((one) => [one.urn, one]));
  /** @type {Subject[]} */
  let options = [];
  let active = -1;
  let last = 0;
  /** @type {string[]} */
  const unchecked = [];
  let checking = false;

  const node = element(html`<div class="picker">
    <textarea name="${name}" hidden .value=${[...known.values()].map(lineOf).join("\n")} @input=${() => draw()}></textarea>
    <ul class="chosen" aria-label="Chosen"></ul>
    <input id="${id}" role="combobox" aria-expanded="false" aria-controls="${list}" aria-autocomplete="list" autocomplete="off" spellcheck="false"
      autocapitalize="off" maxlength="2000" placeholder="Name of a person or group" aria-describedby="${describedby ?? null}"
      @input=${suggest} @keydown=${press} @paste=${paste} @blur=${() => showOptions([])}>
    <ul id="${list}" class="options" role="listbox" aria-label="People and groups" hidden></ul></div>`);
  const area = /** @type {HTMLTextAreaElement} */ (node.querySelector("textarea"));
  const input = /** @type {HTMLInputElement} */ (node.querySelector("input"));
  const chosen = /** @type {HTMLElement} */ (node.querySelector(".chosen"));
  const box = /** @type {HTMLElement} */ (node.querySelector(".options"));
  const urns = () => urnsOf(area.value);

  /** @param {string[]} now */
  function set(now) {
    area.value = [...new Set(now)].map((urn) => lineOf(known.get(urn) ?? ofUrn(urn))).join("\n");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function draw() {
    for (const line of area.value.split("\n").filter(Boolean)) {
      const [urn, label] = line.split("\t");
      if (known.has(urn)) continue;
      known.set(urn, { ...ofUrn(urn), label: label || ofUrn(urn).label });
      if (!urn.startsWith(GROUP)) unchecked.push(urn);
    }
    void check();
    render(chosen, urns().map((urn) => {
      const { label, about } = known.get(urn) ?? ofUrn(urn);
      return html`<li title="${urn}"><span>${label}${urn.startsWith(GROUP) || about === UNKNOWN ? html` <small>${about}</small>` : null}</span><button type="button"
        class="plain" aria-label="Remove ${label}" @click=${() => remove(urn, label)}>✕</button></li>`;
    }));
  }

  /** Mark typed names that no one has, one after the other: a policy may name people before their first token. */
  async function check() {
    if (checking) return;
    checking = true;
    for (let urn = unchecked.shift(); urn; urn = unchecked.shift()) {
      try {
        const found = (await graphql(KNOWN, { urn })).getActor;
        known.set(urn, found.known ? ofUser({ urn, displayName: found.displayName }) : { ...ofUrn(urn), about: UNKNOWN });
        draw();
      } catch {
        // Not a urn, which saving reports, or no answer: without a mark.
      }
    }
    checking = false;
  }

  /** @param {string} urn @param {string} label */
  function remove(urn, label) {
    set(urns().filter((one) => one !== urn));
    say(`Removed ${label}`);
    input.focus();
  }

  /** @param {Subject} subject */
  function add(subject) {
    known.set(subject.urn, subject);
    input.value = "";
    showOptions([]);
    set([...urns(), subject.urn]);
    say(`Added ${subject.label}`);
  }

  /** Take what is typed: names that were suggested, ids and urns, with commas between them. @param {string} [text] */
  function commit(text = input.value) {
    const words = text.split(/[,;\n\t]+/).map((word) => word.trim()).filter(Boolean);
    if (!words.length) return;
    input.value = "";
    showOptions([]);
    set([...urns(), ...words.map((word) => [...known.values()].find((one) => one.label.toLowerCase() === word.toLowerCase())?.urn ?? userUrn(word))]);
  }

  /** Several lines at once; an input would join them. @param {ClipboardEvent} event */
  function paste(event) {
    const text = event.clipboardData?.getData("text") ?? "";
    if (!/[,;\n]/.test(text.trim())) return;
    event.preventDefault();
    commit(text);
  }

  /** @param {Subject[]} found */
  function showOptions(found) {
    options = found;
    active = -1;
    last += found.length ? 0 : 1;
    box.hidden = !found.length;
    input.setAttribute("aria-expanded", String(Boolean(found.length)));
    input.removeAttribute("aria-activedescendant");
    render(box, found.map((one, index) => html`<li id="${list}-${index}" role="option" aria-selected="false" title="${one.urn}"
      @mousedown=${(/** @type {Event} */ event) => {
        event.preventDefault();
        add(one);
      }}>${one.label} <small class="quiet">${one.about}</small></li>`));
  }

  async function suggest() {
    const query = input.value.trim();
    const mine = (last += 1);
    await new Promise((resolve) => setTimeout(resolve, 150));
    if (mine !== last) return;
    if (!query) {
      showOptions([]);
      return;
    }
    try {
      const found = await graphql(SEARCH, { query });
      if (mine !== last || document.activeElement !== input) return;
      const taken = urns();
      const all = [...found.listUsers.users.map(ofUser), ...found.listGroups.groups.map(ofGroup)];
      all.forEach((one) => known.set(one.urn, one));
      showOptions(all.filter((one) => !taken.includes(one.urn)));
    } catch {
      // Without suggestions the whole name is typed.
    }
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) {
      event.preventDefault();
      active = (active + step + options.length + (active < 0 && step < 0 ? 1 : 0)) % options.length;
      [...box.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === active)));
      input.setAttribute("aria-activedescendant", `${list}-${active}`);
      box.children[active].scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && (active >= 0 || input.value.trim())) {
      event.preventDefault();
      if (active >= 0) add(options[active]);
      else commit();
    } else if (event.key === "Escape" && options.length) {
      event.preventDefault();
      showOptions([]);
    } else if (event.key === "Backspace" && !input.value && urns().length) {
      const gone = urns().at(-1) ?? "";
      remove(gone, (known.get(gone) ?? ofUrn(gone)).label);
    }
  }

  draw();
  return { node, commit };
}

/** @param {Subject} subject */
const lineOf = ({ urn, label }) => `${urn}\t${label}`;

/** @param {string} value of the field */
const urnsOf = (value) => value.split("\n").filter(Boolean).map((line) => line.split("\t", 1)[0]);

/** @param {string} value of the field @returns {{users: string[], groups: string[]}} as a policy names them */
export function subjectsIn(value) {
  const urns = urnsOf(value);
  return { users: urns.filter((urn) => !urn.startsWith(GROUP)), groups: urns.filter((urn) => urn.startsWith(GROUP)) };
}
