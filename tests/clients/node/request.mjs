// graphql-request: the plainest of them.
import { ClientError, GraphQLClient } from "graphql-request";
import { headers, roundTrip, told } from "./told.mjs";

const client = new GraphQLClient(told.url, { headers });

async function refusal(text) {
  try {
    await client.request(text);
  } catch (error) {
    if (error instanceof ClientError) return error.response.errors;
    throw error;
  }
  return [];
}

await roundTrip((text, variables) => client.request(text, variables), refusal);
