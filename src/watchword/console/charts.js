/**
 * Charts of counts by day: small ones for lists, and bars with a table for screen readers.
 */

import { html, svg } from "./html.js";
import { counted, number } from "./format.js";
import { newId, say } from "./components.js";

/**
 * @typedef {{day: string, count: number}} DayCount `day`: YYYY-MM-DD, or YYYY-MM-DDTHH for an hour, in UTC
 * @typedef {{name: string, kind: string, days: DayCount[]}} Series all series of a chart have the same days; `kind` is
 *   a CSS class that sets the colour
 */

const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const withYear = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeZone: "UTC" });

/** @param {string} day the start of the day or hour, in milliseconds */
export const startOf = (day) => Date.parse(day.length > 10 ? `${day}:00Z` : `${day}T00:00Z`);

/** "18 Nov", or "18 Nov, 09:00". @param {string} day @param {Intl.DateTimeFormat} [form] */
export const dayName = (day, form = date) =>
  form.format(startOf(day)) + (day.length > 10 ? `, ${day.slice(11, 13)}:00` : "");

/** "18 Nov 2026". @param {string} day */
export const fullDay = (day) => dayName(day, withYear);

/** Bars without an axis, as high as a line of text. @param {DayCount[]} days @param {string} label */
export function sparkline(days, label) {
  const most = Math.max(1, ...days.map((one) => one.count));
  const sum = days.reduce((all, one) => all + one.count, 0);
  return html`<svg class="sparkline" viewBox="0 0 ${days.length * 5} 20" role="img" preserveAspectRatio="none"
    aria-label="${label}: ${number(sum)} in ${counted(days.length, "day")}">${days.map((one, at) => {
      const height = one.count ? Math.max(2, (one.count / most) * 20) : 1;
      return svg`<rect class="${one.count ? "some" : "none"}" x="${at * 5}" y="${20 - height}" width="4"
        height="${height}"
        ><title>${dayName(one.day)}: ${number(one.count)}</title></rect>`;
    })}</svg>`;
}

/**
 * Stacked bars by day. With `onBrush`, a span of days is chosen with the mouse, or with arrow keys, Shift and Enter.
 * @param {{label: string, series: Series[], onBrush?: (from: string, to: string) => void}} what
 */
export function barChart({ label, series, onBrush }) {
  const days = series[0]?.days.map((one) => one.day) ?? [];
  const sums = days.map((_, at) => series.reduce((all, one) => all + one.days[at].count, 0));
  const peak = Math.max(0, ...sums);
  const most = peak || 1;
  const id = newId("chart");
  const describe = (/** @type {number} */ at) =>
    `${dayName(days[at])}: ${series
      .map((one) => (series.length > 1 ? `${number(one.days[at].count)} ${one.name}` : number(one.days[at].count)))
      .join(", ")}`;
  return html`<figure class="chart">
    <figcaption id="${id}" class="unseen">${label}</figcaption>
    <div class="chart-top quiet small"><span>${number(peak)}</span><span>${
      series.length > 1 ? legend(series) : null
    }</span></div>
    <div class="chart-area"><svg class="bars" viewBox="0 0 ${Math.max(1, days.length)} 100" preserveAspectRatio="none"
      aria-hidden="true">${days.map((_, at) => {
        let top = 100;
        return svg`<g>${series.map((one) => {
          const height = (one.days[at].count / most) * 100;
          top -= height;
          return height
            ? svg`<rect class="${one.kind}" x="${at + 0.1}" y="${top}" width="0.8" height="${height}"></rect>`
            : null;
        })}<rect class="whole" x="${at}" y="0" width="1" height="100"><title>${describe(at)}</title></rect></g>`;
      })}</svg>${onBrush && days.length ? brush(label, days, describe, onBrush) : null}</div>
    <div class="axis quiet small" aria-hidden="true">${[0, Math.floor((days.length - 1) / 2), days.length - 1].map(
      (at) => html`<span
      >${days[at] ? dayName(days[at]) : ""}</span>`,
    )}</div>
    <div class="unseen"><table aria-labelledby="${id}"><thead><tr><th scope="col">Day</th>${series.map(
      (one) => html`<th
      scope="col">${one.name}</th>`,
    )}</tr></thead><tbody>${days.map(
      (day, at) =>
        html`<tr><th scope="row">${dayName(day)}</th>${series.map(
          (one) => html`<td>${number(one.days[at].count)}</td>`,
        )}</tr>`,
    )}</tbody></table></div>
  </figure>`;
}

/** @param {Series[]} series */
const legend = (series) =>
  html`<span class="legend">${series.map(
    (one) => html`<span><span class="swatch ${one.kind}"
  aria-hidden="true"></span>${one.name}</span>`,
  )}</span>`;

/**
 * A layer over the bars that chooses a span of them.
 * @param {string} label @param {string[]} days @param {(at: number) => string} describe
 * @param {(from: string, to: string) => void} choose
 */
function brush(label, days, describe, choose) {
  let [from, to] = [days.length - 1, days.length - 1];
  let pressed = false;
  const ends = () => (from < to ? [from, to] : [to, from]);
  /** @param {Event} event */
  const layer = (event) => /** @type {HTMLElement} */ (event.currentTarget);
  /** @param {HTMLElement} node */
  const draw = (node) => {
    const [first, last] = ends();
    const mark = /** @type {SVGRectElement} */ (node.querySelector("rect"));
    mark.setAttribute("x", String(first));
    mark.setAttribute("width", String(last - first + 1));
    node.setAttribute("aria-valuenow", String(to));
    node.setAttribute(
      "aria-valuetext",
      first === last ? describe(to) : `${dayName(days[first])} to ${dayName(days[last])}`,
    );
  };
  /** @param {PointerEvent} event */
  const under = (event) => {
    const box = layer(event).getBoundingClientRect();
    return Math.min(days.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * days.length)));
  };
  const apply = () => {
    const [first, last] = ends();
    say(`Chosen: ${dayName(days[first])} to ${dayName(days[last])}`);
    choose(days[first], days[last]);
  };
  return html`<div class="brush" tabindex="0" role="slider"
    aria-label="${label}: choose days. Shift extends, Enter applies."
    aria-valuemin="0" aria-valuemax="${days.length - 1}" aria-valuenow="${to}" aria-valuetext="${describe(to)}"
    @pointerdown=${(/** @type {PointerEvent} */ event) => {
      if (event.button) return;
      pressed = true;
      layer(event).setPointerCapture(event.pointerId);
      from = to = under(event);
      draw(layer(event));
    }}
    @pointermove=${(/** @type {PointerEvent} */ event) => {
      layer(event).title = describe(under(event));
      if (!pressed) return;
      to = under(event);
      draw(layer(event));
    }}
    @pointerup=${() => {
      if (pressed) apply();
      pressed = false;
    }}
    @pointercancel=${() => {
      pressed = false;
    }}
    @keydown=${(/** @type {KeyboardEvent} */ event) => {
      const at = { ArrowLeft: to - 1, ArrowRight: to + 1, Home: 0, End: days.length - 1 }[event.key];
      if (event.key === "Enter") apply();
      if (at === undefined) return;
      event.preventDefault();
      to = Math.min(days.length - 1, Math.max(0, at));
      if (!event.shiftKey) from = to;
      draw(layer(event));
    }}><svg viewBox="0 0 ${days.length} 1" preserveAspectRatio="none"
      aria-hidden="true">${svg`<rect x="${from}" y="0" width="1"
      height="1"></rect>`}</svg></div>`;
}
