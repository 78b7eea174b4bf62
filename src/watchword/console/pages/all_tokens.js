/** All tokens: those of every actor. */

import { html } from "../html.js";
import { inTerminal } from "../format.js";
import { empty } from "../components.js";
import { tokenList } from "../token_list.js";

/** @param {import("../router.js").Context} context */
export const page = (context) =>
  tokenList(context, {
    title: "All tokens",
    path: "/console/all-tokens",
    base: [],
    everyone: true,
    nothing: () =>
      empty({
        title: "No tokens yet",
        sentence: "There is no live or suspended token.",
        action: html`<a class="button" href="/console/tokens/new">New token</a>`,
        command: inTerminal("watchword token create --name first", context.me),
      }),
  });
