/**
 * The icons of the rail: 20 px, drawn with strokes of one width in the colour of the text. A word always stands beside
 * them.
 */

import { html, svg } from "./html.js";

/** By the name of a view or an action of the rail. @type {Record<string, () => unknown>} */
const DRAWN = {
  overview:
    () => svg`<rect x="3" y="3" width="6" height="8" rx="1"/><rect x="11" y="3" width="6" height="4" rx="1"/><rect x="3"
      y="13"
    width="6" height="4" rx="1"/><rect x="11" y="9" width="6" height="8" rx="1"/>`,
  tokens: () => svg`<circle cx="7" cy="13" r="4"/><path d="M10 10 17 3M14 6l2.5 2.5"/>`,
  "all-tokens": () => svg`<path d="M10 3 17 6.5 10 10 3 6.5zM3 10l7 3.5 7-3.5M3 13.5 10 17l7-3.5"/>`,
  accounts: () =>
    svg`<rect x="4" y="7" width="12" height="9" rx="2"/><path d="M10 7V4M7.5 11v1.5M12.5 11v1.5"/><circle cx="10"
      cy="3.4" r=".8"/>`,
  policies: () =>
    svg`<path d="M10 2.5 16 5v4.5c0 4-2.5 6.5-6 8-3.5-1.5-6-4-6-8V5z"/><path d="M7.2 9.8 9.3 12l3.7-4.2"/>`,
  actors: () =>
    svg`<circle cx="7.5" cy="7" r="3"/><path
      d="M2 16.5c0-3 2.5-5 5.5-5s5.5 2 5.5 5M13 4.3a3 3 0 0 1 0 5.4M15 12c2 .8 3 2.4 3 4.5"/>`,
  operations: () =>
    svg`<ellipse cx="10" cy="5" rx="6" ry="2.3"/><path
      d="M4 5v10c0 1.3 2.7 2.3 6 2.3s6-1 6-2.3V5M4 10c0 1.3 2.7 2.3 6 2.3s6-1 6-2.3"/>`,
  retention: () => svg`<path d="M4 6h12v10.5H4zM2.5 3h15v3h-15zM8 9.5h4"/>`,
  webhooks:
    () => svg`<circle cx="5" cy="14" r="2.5"/><circle cx="15" cy="14" r="2.5"/><circle cx="10" cy="5" r="2.5"/><path
    d="M7.5 14h5M8.8 7.2 6.2 11.8M11.2 7.2l2.6 4.6"/>`,
  activity: () => svg`<path d="M2.5 10.5h3.5l2.5-6 3.5 11 2.5-5h3"/>`,
  search: () => svg`<circle cx="9" cy="9" r="5"/><path d="m13 13 4 4"/>`,
  menu: () => svg`<path d="M3 5.5h14M3 10h14M3 14.5h14"/>`,
  theme: () => svg`<circle cx="10" cy="10" r="6.5"/><path class="full" d="M10 3.5a6.5 6.5 0 0 1 0 13z"/>`,
  keys: () =>
    svg`<rect x="2" y="5" width="16" height="10" rx="2"/><path
      d="M5.5 8.5h0M8.5 8.5h0M11.5 8.5h0M14.5 8.5h0M6.5 12h7"/>`,
  person: () => svg`<circle cx="10" cy="6.5" r="3.5"/><path d="M3.5 17c0-3.5 3-5.5 6.5-5.5s6.5 2 6.5 5.5"/>`,
  leave: () => svg`<path d="M8 3H4v14h4M12.5 6.5 16 10l-3.5 3.5M16 10H8"/>`,
  other: () => svg`<circle cx="10" cy="10" r="6.5"/>`,
};

/** @param {string} name */
export const icon = (name) =>
  html`<svg class="icon" viewBox="0 0 20 20" width="20" height="20"
    aria-hidden="true">${(DRAWN[name] ?? DRAWN.other)()}</svg>`;
