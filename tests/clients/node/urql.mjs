// urql: its client with its own fetch exchange. It has no cache here, so that each list is asked anew. Short queries it
// would send by GET, which is refused, unless told not to.
import { Client, fetchExchange } from "urql";
import { headers, roundTrip, told } from "./told.mjs";

const client = new Client({
  url: told.url,
  exchanges: [fetchExchange],
  fetchOptions: { headers },
  preferGetMethod: told.preferGetMethod ?? false,
});

const send = (text, variables) =>
  (text.startsWith("mutation") ? client.mutation(text, variables) : client.query(text, variables)).toPromise();

async function ask(text, variables) {
  const { data, error } = await send(text, variables);
  if (error) throw error;
  return data;
}

async function refusal(text) {
  const { error } = await send(text, {});
  return error.graphQLErrors.map(({ message, extensions }) => ({ message, extensions }));
}

await roundTrip(ask, refusal);
