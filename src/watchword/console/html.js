/**
 * Templates with automatic escaping.
 *
 * Only the text of the templates in these files is parsed as HTML. Values are put into the parsed tree as text,
 * attributes, properties and listeners, so that no value can become markup. Attributes that could run code are
 * rejected: `on…`, `style` and `srcdoc` take no values, and a link must lead to http, https or mailto.
 *
 *     html`<p class="${kind}">${text}</p>`      text and attributes; null, undefined and booleans show nothing
 *     html`<ul>${items.map((item) => html`<li>${item}</li>`)}</ul>`
 *     html`<button ?disabled=${busy} @click=${save}>Save</button> <input .value=${name}>`
 *     svg`<rect width="${share}"></rect>`        the same for the content of an <svg>
 */

export class Template {
  /**
   * @param {TemplateStringsArray} strings
   * @param {unknown[]} values
   * @param {boolean} [drawn]
   */
  constructor(strings, values, drawn = false) {
    this.strings = strings;
    this.values = values;
    this.drawn = drawn;
  }
}

/** @param {TemplateStringsArray} strings @param {...unknown} values */
export const html = (strings, ...values) => new Template(strings, values);

/** @param {TemplateStringsArray} strings @param {...unknown} values */
export const svg = (strings, ...values) => new Template(strings, values, true);

/**
 * Replace the content of the node. The element with the same id keeps the focus and the position of the cursor.
 * @param {Element} node
 * @param {unknown} content
 */
export function render(node, content) {
  const active = document.activeElement;
  const kept = active && active.id && node.contains(active) ? active.id : null;
  const at = kept && active instanceof HTMLInputElement ? selection(active) : null;
  node.replaceChildren(...build(content));
  const again = kept ? document.getElementById(kept) : null;
  if (!again || !node.contains(again)) return;
  again.focus({ preventScroll: true });
  if (at && again instanceof HTMLInputElement) again.setSelectionRange(at[0], at[1]);
}

/** @param {unknown} content @returns {HTMLElement} the one element of the content */
export function element(content) {
  const found = build(content).find((node) => node instanceof HTMLElement);
  if (!(found instanceof HTMLElement)) throw new Error("The template has no element.");
  return found;
}

/** The element that must be there. @param {ParentNode} root @param {string} selector @returns {HTMLElement} */
export function part(root, selector) {
  const found = root.querySelector(selector);
  if (!(found instanceof HTMLElement)) throw new Error(`There is no ${selector}.`);
  return found;
}

/** @param {unknown} content @returns {Node[]} */
export function build(content) {
  if (content === null || content === undefined || typeof content === "boolean") return [];
  if (Array.isArray(content)) return content.flatMap(build);
  if (content instanceof DocumentFragment) return [...content.childNodes];
  if (content instanceof Node) return [content];
  if (content instanceof Template) return [...fill(content).childNodes];
  return [document.createTextNode(String(content))];
}

const MARK = "ww:";
const HOLE = /\{ww:(\d+)\}/;
const PROPERTIES = new Set(["value", "checked", "selected", "indeterminate", "open"]);
const LINKS = new Set(["href", "src", "action", "formaction", "xlink:href"]);

/** @typedef {{name: string, value: string}} Hole an attribute whose value has marks in it */
/** @type {WeakMap<TemplateStringsArray, {node: HTMLTemplateElement, holes: Hole[][]}>} */
const parsed = new WeakMap();

// Where the browser demands trusted types, this is the one place that makes them, of our own files' text alone.
/** @type {{createHTML(text: string): string}} */
const trusted = /** @type {any} */ (globalThis).trustedTypes?.createPolicy("watchword", {
  createHTML: (/** @type {string} */ text) => text,
}) ?? { createHTML: (/** @type {string} */ text) => text };

/** @param {Template} template */
function parse(template) {
  const known = parsed.get(template.strings);
  if (known) return known;
  let text = "";
  template.strings.forEach((part, index) => {
    text += part;
    if (index === template.strings.length - 1) return;
    const inTag = text.lastIndexOf("<") > text.lastIndexOf(">");
    text += inTag ? `{${MARK}${index}}` : `<!--${MARK}${index}-->`;
  });
  const node = document.createElement("template");
  node.innerHTML = trusted.createHTML(template.drawn ? `<svg>${text}</svg>` : text);
  if (template.drawn) node.content.replaceChildren(...(node.content.firstElementChild?.childNodes ?? []));
  // Attributes with holes are removed: a mark is not valid where a number is expected.
  /** @type {Hole[][]} */
  const holes = [];
  for (const element of node.content.querySelectorAll("*")) {
    const here = [...element.attributes].filter((attribute) => HOLE.test(attribute.value));
    if (!here.length) continue;
    here.forEach((attribute) => element.removeAttribute(attribute.name));
    element.setAttribute("data-hole", String(holes.length));
    holes.push(here.map(({ name, value }) => ({ name, value })));
  }
  const made = { node, holes };
  parsed.set(template.strings, made);
  return made;
}

/** @param {Template} template @returns {DocumentFragment} */
function fill(template) {
  const { node: form, holes } = parse(template);
  const fragment = document.importNode(form.content, true);
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_COMMENT);
  /** @type {Node[]} */
  const found = [];
  while (walker.nextNode()) found.push(walker.currentNode);
  // Children come first: a <select> takes its value from its options.
  for (const node of found) {
    if (!(node instanceof Comment) || !node.data.startsWith(MARK)) continue;
    node.replaceWith(...build(template.values[Number(node.data.slice(MARK.length))]));
  }
  for (const node of found) {
    const at = node instanceof Element ? node.getAttribute("data-hole") : null;
    if (!(node instanceof Element) || at === null) continue;
    node.removeAttribute("data-hole");
    for (const hole of /** @type {Hole[]} */ (holes[Number(at)])) set(node, hole, template.values);
  }
  return fragment;
}

/** @param {Element} node @param {Hole} hole @param {unknown[]} values */
function set(node, hole, values) {
  const { name } = hole;
  const pieces = hole.value.split(HOLE);
  const only = pieces.length === 3 && pieces[0] === "" && pieces[2] === "";
  const value = only ? values[Number(pieces[1])] : undefined;
  if (name.startsWith("@")) {
    if (typeof value === "function") node.addEventListener(name.slice(1), /** @type {EventListener} */ (value));
  } else if (name.startsWith("?")) {
    node.toggleAttribute(name.slice(1), Boolean(value));
  } else if (name.startsWith(".")) {
    if (!PROPERTIES.has(name.slice(1))) throw new Error(`A template may not set the property ${name.slice(1)}.`);
    Reflect.set(node, name.slice(1), value ?? "");
  } else if (name.startsWith("on") || name === "style" || name === "srcdoc") {
    throw new Error(`A template may not fill the attribute ${name}.`);
  } else if (!only || (value !== null && value !== undefined && value !== false)) {
    const text = pieces.map((piece, index) => (index % 2 ? shown(values[Number(piece)]) : piece)).join("");
    if (!LINKS.has(name) || leads(text)) node.setAttribute(name, text);
  }
}

/** @param {unknown} value */
const shown = (value) => (value === null || value === undefined || value === false ? "" : String(value));

/** @param {string} address */
function leads(address) {
  try {
    return ["http:", "https:", "mailto:"].includes(new URL(address, location.href).protocol);
  } catch {
    return false;
  }
}

/** @param {HTMLInputElement} input @returns {[number, number] | null} */
function selection(input) {
  return input.selectionStart === null ? null : [input.selectionStart, input.selectionEnd ?? input.selectionStart];
}
