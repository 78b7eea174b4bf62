// jose and openid-client, called as the lines on standard input say; prints what each call returned or raised. What
// they fetch they keep, as they do in a service that runs for long; each `memory` is that of a service of its own.
import { createInterface } from "node:readline";
import { createRemoteJWKSet, jwtVerify } from "jose";
import * as openid from "openid-client";

const known = new Map();

function once(name, make) {
  if (!known.has(name)) known.set(name, make());
  return known.get(name);
}

// A client of the issuer, found as RFC 8414 says, that shows itself by `auth`.
function discovered(issuer, auth) {
  const options = { algorithm: "oauth2", execute: [openid.allowInsecureRequests] };
  return openid.discovery(new URL(issuer), "anybody", undefined, auth, options);
}

const plain = (issuer) => once(`plain ${issuer}`, () => discovered(issuer, openid.None()));
const withBearer = (issuer, bearer) =>
  once(`${bearer} ${issuer}`, () =>
    discovered(issuer, (server, client, body, headers) => headers.set("authorization", `Bearer ${bearer}`)),
  );

async function jose({ issuer, token, memory, options }) {
  const { jwks_uri } = (await plain(issuer)).serverMetadata();
  const keys = once(`${memory} ${jwks_uri}`, () => createRemoteJWKSet(new URL(jwks_uri), options));
  const { payload } = await jwtVerify(token, keys, { issuer, audience: issuer, typ: "at+jwt" });
  return payload;
}

const CALLS = {
  jose,
  metadata: async ({ issuer }) => (await plain(issuer)).serverMetadata(),
  introspect: async ({ issuer, token, bearer }) => openid.tokenIntrospection(await withBearer(issuer, bearer), token),
  startDevice: async ({ issuer, scope }) => openid.initiateDeviceAuthorization(await plain(issuer), { scope }),
  pollDevice: async ({ issuer, started }) => openid.pollDeviceAuthorizationGrant(await plain(issuer), started),
  revoke: async ({ issuer, token }) => (await openid.tokenRevocation(await plain(issuer), token)) ?? null,
};

for await (const line of createInterface({ input: process.stdin })) {
  const { call, ...words } = JSON.parse(line);
  let outcome;
  try {
    outcome = { returned: await CALLS[call](words) };
  } catch (error) {
    outcome = { raised: { kinds: [error.name, error.code], info: error.cause ?? null, message: error.message } };
  }
  console.log(JSON.stringify(outcome));
}
