// What every program here is told on standard input, the documents they send, and how they print what came of it.
import { readFileSync } from "node:fs";

export const told = JSON.parse(readFileSync(0, "utf8"));
export const headers = { Authorization: `Bearer ${told.token}` };

export const CREATE = `mutation Create($input: GetAccessTokenInput!) {
  createAccessToken(input: $input) { accessToken metadata { id name actorUrn } } }`;
export const LIST = `query List($actor: String!) {
  listAccessTokens(input: {filters: [{field: "actorUrn", value: $actor}]}) { total tokens { id name } } }`;
export const REVOKE = `mutation Revoke($id: String!) { revokeAccessToken(tokenId: $id) }`;
export const EVERYTHING = `query Everything { listAccessTokens { total } }`;

// One round trip, the same for every client: `ask` sends a document and gives its data, `refusal` its errors.
export async function roundTrip(ask, refusal) {
  const input = { type: "PERSONAL", actorUrn: told.actor, duration: "ONE_HOUR", name: told.name };
  const { createAccessToken } = await ask(CREATE, { input });
  const { id } = createAccessToken.metadata;
  const before = await ask(LIST, { actor: told.actor });
  const { revokeAccessToken: revoked } = await ask(REVOKE, { id });
  const after = await ask(LIST, { actor: told.actor });
  const errors = await refusal(EVERYTHING);
  const ids = (listed) => listed.listAccessTokens.tokens.map((token) => token.id);
  console.log(JSON.stringify({ id, before: ids(before), revoked, after: ids(after), errors }));
}
