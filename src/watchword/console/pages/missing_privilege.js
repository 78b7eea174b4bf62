/** What is shown to people who may not create personal tokens. */

import { html, render } from "../html.js";
import { graphql } from "../api.js";
import { codeBox, errorLine } from "../components.js";

const COUNT = `query Count($urn: String!) { listAccessTokens(input: {count: 0, filters: [{field: "actorUrn", value:
  $urn}]}) { total } }`;

/** The server's error, and the privilege to ask for. @param {import("../router.js").Context} context */
export async function showWhyNot({ root, me, signal }) {
  /** @type {unknown} */
  let refusal = null;
  try {
    await graphql(COUNT, { urn: me.urn }, { signal });
  } catch (error) {
    if (error instanceof DOMException) return;
    refusal = error;
  }
  const ask = `Please grant GENERATE_PERSONAL_ACCESS_TOKENS to ${me.urn}, so that I can create personal tokens.`;
  render(
    root,
    html`<div class="stack narrow"><div class="page-head"><h1>My tokens</h1></div>
    ${errorLine(refusal)}
    ${
      me.tokenId
        ? html`<p>If the token is limited, the policies may be sufficient: sign in with another token.</p>`
        : null
    }
    <p>Tokens that others created for you work, but you may not list them.${
      me.privileges.manageServiceAccounts
        ? html` You may see tokens of <a href="/console/accounts">service accounts</a>.`
        : null
    }</p>
    <h2>What to ask for</h2>
    <p>With the privilege <strong>Generate Personal Access Tokens</strong> you can create,
      list and revoke your own tokens. Send this to someone who manages policies:</p>
    ${codeBox(ask, "Copy request")}
    <p>It applies from the next request on. <button type="button"
      @click=${() => location.reload()}>Reload</button></p></div>`,
  );
}
