/**
 * A picker for actors and groups, used wherever one is typed. It looks up what is typed: a name, an id, an e-mail
 * address or a urn. What was typed counts only once it is chosen: from the list, or with Enter if exactly one is named
 * so. A form asks `check` before it sends anything.
 *
 * The form field has a line for each that is chosen: the urn, a tab and the name, which a draft of the form keeps.
 */

import { NOUNS, actorLookup, isGroup, isUrn, subject } from "./actor_lookup.js";
import { ApiError } from "./api.js";
import { ask, empty, newId, say } from "./components.js";
import { counted } from "./format.js";
import { element, html, render } from "./html.js";

export { isUrn };

/**
 * @typedef {import("./actor_lookup.js").Subject} Subject
 * @typedef {import("./actor_lookup.js").Found} Found
 * @typedef {import("./actor_lookup.js").Answer} Answer
 * @typedef {import("./actor_lookup.js").Lookup} Lookup
 * @typedef {{node: HTMLElement, urns: () => string[], name: () => string, pending: () => string,
 *   set: (value: string) => void, resolve: (quiet?: boolean) => Promise<boolean>, check: (field: string) => void}}
 *   Picker `name`: of the one that is chosen; `pending`: what is typed and not chosen; `set`: choose a urn, or show a
 *   text that is not chosen; `resolve`: choose what is typed, if only one is named so; `check`: throws an error of the
 *   field if something is not chosen
 */

const SHOWN = 8;
export const UNKNOWN = "not known here";

/** @param {Subject} one */
const lineOf = ({ urn, label }) => `${urn}\t${label}`;

/** @param {string} value of the form field @returns {string[]} */
export const urnsIn = (value) =>
  value
    .split("\n")
    .filter(Boolean)
    .map((line) => line.split("\t", 1)[0]);

/** @param {string} value of the form field @returns {{users: string[], groups: string[]}} as a policy names them */
export const subjectsIn = (value) => ({
  users: urnsIn(value).filter((urn) => !isGroup(urn)),
  groups: urnsIn(value).filter(isGroup),
});

/** Shown instead of a list that is filtered by a name until it is chosen who that is. @param {string} text */
export const whoIs = (text) =>
  empty({ title: `“${text}” is not chosen`, sentence: "Choose in the filter who it is, or remove the text." });

/**
 * @param {import("./shell.js").Me} me
 * @param {{id: string, name?: string, kinds?: keyof typeof NOUNS, many?: boolean, chosen?: Found[], required?: boolean,
 *   describedby?: string, placeholder?: string, change?: (urn: string) => unknown}} how
 *   `many`: any number instead of one; `change`: it is a filter of one actor, called with the urn, or with "" if the
 *   filter is removed; a filter may name an unknown actor without asking
 * @returns {Picker}
 */
export function actorPicker(
  me,
  {
    id,
    name = id,
    kinds = "actors",
    many = false,
    chosen: first = [],
    required = false,
    describedby,
    placeholder,
    change,
  },
) {
  const list = newId("options");
  const { looksUp, see, find, lookUpAll, whyNot } = actorLookup(me, { kinds, many, reserved: Boolean(change) });
  /** @type {Map<string, Subject>} */
  const known = new Map(first.map(subject).map((one) => [one.urn, one]));
  /** @type {Set<string>} urns that were asked for, or need not be */
  const asked = new Set(first.filter((one) => one.displayName || one.name).map((one) => one.urn));
  /** @type {Subject[]} */
  let options = [];
  /** The part of the typed text that the options are for. */
  let about = "";
  let active = -1;
  let last = 0;

  const node = element(html`<div class="picker ${many ? "" : "single"}">
    <textarea name="${name}" hidden .value=${[...known.values()].map(lineOf).join("\n")}
      @input=${() => draw()}></textarea>
    ${many ? html`<ul class="chosen" aria-label="Chosen"></ul>` : null}
    <input id="${id}" role="combobox" aria-expanded="false" aria-controls="${list}" aria-autocomplete="list"
      autocomplete="off" spellcheck="false"
      autocapitalize="off" maxlength="2000" placeholder="${looksUp ? (placeholder ?? "Name, id or urn") : "Id or urn"}"
        aria-describedby="${[describedby, `${id}-note`].filter(Boolean).join(" ")}"
      aria-required="${required ? "true" : null}" @input=${typed} @keydown=${press} @paste=${paste}
        @focus=${() => pending() && suggest()} @blur=${() => showOptions([])}
      @change=${changed}>
    <ul id="${list}" class="options" role="listbox" aria-label="Matches" hidden></ul>
    <p class="picker-note" id="${id}-note" role="status"></p></div>`);
  const area = /** @type {HTMLTextAreaElement} */ (node.querySelector("textarea"));
  const input = /** @type {HTMLInputElement} */ (node.querySelector("input"));
  const chips = node.querySelector(".chosen");
  const box = /** @type {HTMLElement} */ (node.querySelector(".options"));
  const note = /** @type {HTMLElement} */ (node.querySelector(".picker-note"));
  const urns = () => urnsIn(area.value);
  const ofUrn = (/** @type {string} */ urn) => known.get(urn) ?? subject({ urn });
  const shownText = () => (many || !urns().length ? "" : ofUrn(urns()[0]).label);
  const pending = () => (input.value.trim() === shownText() ? "" : input.value.trim());

  /** @param {string} text @param {boolean} [wrong] */
  function tell(text, wrong = false) {
    input.toggleAttribute("aria-invalid", wrong);
    if (wrong) input.setAttribute("aria-invalid", "true");
    note.classList.toggle("wrong", wrong);
    note.title = text;
    note.textContent = text;
  }

  /** @param {string[]} now */
  function keep(now) {
    area.value = [...new Set(now)].map((urn) => lineOf(ofUrn(urn))).join("\n");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function draw() {
    for (const line of area.value.split("\n").filter(Boolean)) {
      const [urn, label] = line.split("\t");
      if (!known.has(urn)) known.set(urn, { ...subject({ urn }), label: label || subject({ urn }).label });
    }
    if (chips) {
      render(
        chips,
        urns().map((urn) => {
          const { label, unknown } = ofUrn(urn);
          return html`<li title="${urn}"><span>${label} <small>${isGroup(urn) ? "group " : ""}${urn}${
            unknown ? html` · <strong>${UNKNOWN}</strong>` : null
          }</small></span><button
          type="button" class="plain" aria-label="Remove ${label}" @click=${() => remove(urn)}>✕</button></li>`;
        }),
      );
    } else {
      input.value = shownText();
      const [urn = ""] = urns();
      tell(urn ? `${urn}${ofUrn(urn).unknown ? ` · ${UNKNOWN}` : ""}` : "");
    }
    void learn();
  }

  let learning = false;
  /** Look up the names of urns that came from elsewhere, one after the other, and mark those that no one has. */
  async function learn() {
    if (learning) return;
    learning = true;
    for (let urn = next(); urn; urn = next()) {
      asked.add(urn);
      const one = await see(urn).catch(() => null); // wrong, which the server reports on use, or no answer
      if (!one) continue;
      known.set(urn, one);
      if (!pending() || many) draw();
    }
    learning = false;
  }
  const next = () => urns().find((urn) => !asked.has(urn));

  /** @type {{text: string, done: Promise<boolean>} | null} */
  let resolving = null;

  /**
   * Choose what is typed where only one is named so; the rest stays, and says why. Whether all is chosen.
   * @param {boolean} [quiet] do not ask about unknown ones
   */
  async function resolve(quiet = false) {
    const text = pending();
    if (!text) return true;
    if (resolving?.text !== text) resolving = { text, done: settle(text, quiet) };
    const mine = resolving;
    try {
      return await mine.done;
    } finally {
      if (resolving === mine) resolving = null;
    }
  }

  /** @param {string} text @param {boolean} quiet */
  async function settle(text, quiet) {
    last += 1;
    try {
      const found = await lookUpAll(text);
      if (pending() !== text) return false;
      const fresh = found.filter((one) => one.fresh && !one.answer.named.length && isUrnOrAlone(one));
      const agreed =
        fresh.length && !change && !quiet
          ? await mayAdd(fresh.map((one) => /** @type {Subject} */ (one.fresh)))
          : false;
      const taken = found.flatMap((one) => one.taken ?? (agreed && fresh.includes(one) ? (one.fresh ?? []) : []));
      const rest = found.filter((one) => !one.taken && !(agreed && fresh.includes(one)));
      if (taken.length) choose(taken, rest.map((one) => one.text).join("; "));
      if (!rest.length) return true;
      tell(rest.map(whyNot).join(" "), true);
      offer(rest[0].text, rest[0].answer);
    } catch (error) {
      if (pending() === text) tell(error instanceof Error ? error.message : String(error), true);
    }
    return false;
  }

  /**
   * An unknown id is offered in the list, below what resembles it; only a urn, or what resembles nothing, is asked
   * about.
   * @param {Lookup} one
   */
  const isUrnOrAlone = ({ text, answer }) => isUrn(text) || !answer.others.length;

  /** @param {Subject[]} fresh whether to name them though the service does not know them */
  const mayAdd = (fresh) =>
    ask({
      title:
        fresh.length === 1
          ? `Use ${fresh[0].label}, which is ${UNKNOWN}?`
          : `Use ${counted(fresh.length, NOUNS[kinds])} that are ${UNKNOWN}?`,
      action: fresh.length === 1 ? `Use ${fresh[0].label}` : `Use all ${fresh.length}`,
      content: html`<p>The service knows ${fresh.length === 1 ? "nothing" : "no name, token, group or policy"} of:</p>
      <ul class="grants">${fresh.map(({ urn }) => html`<li><code>${urn}</code></li>`)}</ul>
      <p>Check the spelling. A person who gets ${fresh.length === 1 ? "this urn" : "one of these urns"} later has what
        you grant now.</p>`,
    });

  /** @param {Subject[]} taken @param {string} rest what stays typed */
  function choose(taken, rest) {
    for (const one of taken) {
      known.set(one.urn, one);
      asked.add(one.urn);
    }
    input.value = rest;
    showOptions([]);
    tell("");
    keep(many ? [...urns(), ...taken.map((one) => one.urn)] : [taken[0].urn]);
    say(`${many ? "Added" : "Chose"} ${taken.map((one) => one.label).join(", ")}`);
    if (change) void change(taken[0].urn);
  }

  /** Choose an option of the list. @param {Subject} one */
  async function pick(one) {
    const text = pending();
    // The list answers the first of several texts.
    const rest =
      many && text !== about && text.startsWith(about) ? text.slice(about.length).replace(/^[\s,;]+/, "") : "";
    if (one.unknown && !change && !(await mayAdd([one]))) return;
    choose([one], rest);
    input.focus();
  }

  /** @param {string} urn */
  function remove(urn) {
    keep(urns().filter((one) => one !== urn));
    say(`Removed ${ofUrn(urn).label}`);
    input.focus();
  }

  /** @param {string} text @param {Answer} answer */
  function offer(text, { named, others, fresh }) {
    about = text;
    const taken = many ? urns() : [];
    const all = [...named, ...others].filter((one) => !taken.includes(one.urn)).slice(0, SHOWN);
    showOptions(
      document.activeElement === input ? [...all, ...(fresh && !taken.includes(fresh.urn) ? [fresh] : [])] : [],
    );
  }

  /** @param {Subject[]} found */
  function showOptions(found) {
    options = found;
    active = -1;
    last += found.length ? 0 : 1;
    box.hidden = !found.length;
    input.setAttribute("aria-expanded", String(Boolean(found.length)));
    input.removeAttribute("aria-activedescendant");
    render(
      box,
      found.map(
        (one, index) => html`<li id="${list}-${index}" role="option" aria-selected="false"
      @mousedown=${(/** @type {Event} */ event) => event.preventDefault()} @click=${() => pick(one)}>${one.label}
      <small class="quiet">${
        isGroup(one.urn)
          ? `group${typeof one.members === "number" ? `, ${counted(one.members, "member")}` : ""} · `
          : ""
      }${one.urn}</small>${
        one.unknown ? html` <small class="status soon"><span aria-hidden="true">▲</span> ${UNKNOWN}</small>` : null
      }</li>`,
      ),
    );
  }

  async function suggest() {
    const text = pending();
    const mine = (last += 1);
    await new Promise((resolve) => setTimeout(resolve, 150));
    if (mine !== last) return;
    if (!text) {
      showOptions([]);
      return;
    }
    try {
      const part = many ? text.split(/[;\n\t]/, 1)[0].trim() : text;
      const whole = await find(part);
      const word = part.split(",", 1)[0].trim();
      const byWord = many && word && word !== part && !whole.named.length && !whole.others.length;
      const answer = byWord ? await find(word) : whole;
      if (mine === last) offer(byWord ? word : part, answer);
    } catch {
      // Without suggestions the whole name is typed.
    }
  }

  function typed() {
    tell(many || pending() ? "" : (note.textContent ?? ""));
    void suggest();
  }

  /** A filter is used when it is left. */
  function changed() {
    if (!change) return;
    if (pending()) void resolve();
    else if (!input.value.trim() && urns().length) clear();
  }

  function clear() {
    keep([]);
    if (change) void change("");
  }

  /** Several lines at once; an input would join them. @param {ClipboardEvent} event */
  function paste(event) {
    const text = event.clipboardData?.getData("text") ?? "";
    if (!many || !/[;\n]/.test(text.trim())) return;
    event.preventDefault();
    input.value = [pending(), ...text.split(/[;\n\t]+/).map((one) => one.trim())].filter(Boolean).join("; ");
    input.dispatchEvent(new Event("input", { bubbles: true }));
    void resolve();
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    if (event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) {
      event.preventDefault();
      active = (active + step + options.length + (active < 0 && step < 0 ? 1 : 0)) % options.length;
      [...box.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === active)));
      input.setAttribute("aria-activedescendant", `${list}-${active}`);
      box.children[active].scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && (active >= 0 || pending())) {
      event.preventDefault();
      if (active >= 0) void pick(options[active]);
      else void resolve();
    } else if (event.key === "Enter" && change && !input.value.trim() && urns().length) {
      event.preventDefault();
      clear();
    } else if (event.key === "Escape" && options.length) {
      event.preventDefault();
      showOptions([]);
    } else if (event.key === "Backspace" && many && !input.value && urns().length) {
      remove(urns().at(-1) ?? "");
    }
  }

  /** @param {string} value */
  function set(value) {
    if (isUrn(value) || !value) {
      if (urns().join() === value) return;
      area.value = value && lineOf(ofUrn(value));
      draw();
    } else if (input.value !== value) {
      area.value = "";
      draw();
      input.value = value;
      void resolve(true);
    }
  }

  /** @param {string} field as the API names it */
  function check(field) {
    const text = pending();
    const problem = text
      ? `“${text}” is not chosen. Choose one of the list, or remove the text.`
      : required && (!urns().length || (!input.value.trim() && !many))
        ? `Choose ${many ? "at least one" : "an"} ${NOUNS[kinds]}.`
        : "";
    if (problem) throw new ApiError(problem, { details: { field } });
  }

  draw();
  return { node, urns, name: shownText, pending, set, resolve, check };
}
