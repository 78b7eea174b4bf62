/**
 * My tokens: those that act as the caller.
 */

import { html } from "../html.js";
import { inTerminal, pathToId } from "../format.js";
import { empty } from "../components.js";
import { tokenList } from "../token_list.js";
import { showWhyNot } from "./missing_privilege.js";

/** @param {import("../router.js").Context} context */
export async function page(context) {
  const { me, params } = context;
  if (!me.privileges.generatePersonalAccessTokens) {
    context.title("My tokens");
    await showWhyNot(context);
    // Without personal tokens the caller may still see tokens of service accounts.
    if (!params[0]) return;
    const { showToken } = await import("../token_panel.js");
    await showToken(context, pathToId(params[0]), "/console/tokens", async () => {});
    return;
  }
  await tokenList(context, {
    title: "My tokens",
    path: "/console/tokens",
    base: [{ field: "actorUrn", value: me.urn }],
    everyone: false,
    nothing: () =>
      empty({
        title: "No tokens yet",
        sentence: "A token lets a program act as you, within the limits you set, until it expires or you revoke it.",
        action: html`<a class="button" href="/console/tokens/new">Create a token</a>`,
        command: inTerminal("watchword token create --name laptop", me),
      }),
  });
}
