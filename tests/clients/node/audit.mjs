// The audit of graphql-http: every rule of the GraphQL-over-HTTP specification, asked with a token.
import { auditServer } from "graphql-http";
import { headers, told } from "./told.mjs";

const audited = await auditServer({
  url: told.url,
  fetchFn: (url, init = {}) => fetch(url, { ...init, headers: { ...init.headers, ...headers } }),
});
console.log(JSON.stringify(audited.map(({ id, name, status, reason }) => ({ id, name, status, reason }))));
