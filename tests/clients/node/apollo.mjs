// @apollo/client: its core, without a browser. It caches, so lists are asked of the network.
import { ApolloClient, ApolloLink, CombinedGraphQLErrors, HttpLink, InMemoryCache, gql } from "@apollo/client/core";
import { headers, roundTrip, told } from "./told.mjs";

const client = new ApolloClient({
  link: ApolloLink.from([new HttpLink({ uri: told.url, headers })]),
  cache: new InMemoryCache(),
});

async function ask(text, variables) {
  const document = gql(text);
  const mutates = document.definitions[0].operation === "mutation";
  const asked = mutates
    ? client.mutate({ mutation: document, variables })
    : client.query({ query: document, variables, fetchPolicy: "network-only" });
  return (await asked).data;
}

async function refusal(text) {
  try {
    await ask(text, {});
  } catch (error) {
    if (CombinedGraphQLErrors.is(error)) return error.errors;
    throw error;
  }
  return [];
}

await roundTrip(ask, refusal);
client.stop();
