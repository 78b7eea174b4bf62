// oidc-provider on a loopback port, called as the lines on standard input say. It ends when they end. It has a sign-in
// page of its own, asks for no consent, and keeps everything in memory.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { Provider } from "oidc-provider";
import { createMemoryAdapter } from "oidc-provider/lib/adapters/memory_adapter.js";

console.info = console.error; // standard output has answers only

const PROFILE = ["preferred_username", "name", "groups", "roles", "hd"];
const EMAIL = ["email", "email_verified"];
const SCOPES = "openid profile email groups";

const kept = createMemoryAdapter(); // outlives the provider, which is built again for new keys
const cookieKeys = [randomUUID()];
const users = new Map();
let issuer;
let inIdToken;
let keys = [];
let provider;
let respond;

function build() {
  const { port } = new URL(issuer);
  provider = new Provider(issuer, {
    adapter: kept,
    claims: { openid: ["sub"], profile: PROFILE, email: EMAIL, groups: ["groups"] },
    conformIdTokenClaims: !inIdToken,
    // Cookies do not know ports: two providers on one machine have other names for theirs.
    cookies: {
      keys: cookieKeys,
      names: Object.fromEntries(["session", "interaction", "resume"].map((name) => [name, `${name}_${port}`])),
    },
    features: {
      backchannelLogout: { enabled: true },
      devInteractions: { enabled: false },
      rpInitiatedLogout: { enabled: true, logoutSource, postLogoutSuccessSource },
    },
    // Its own would not call loopback addresses, nor wait longer than 2.5 seconds for a busy machine.
    fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined, signal: undefined }),
    findAccount: (ctx, sub) => account(sub),
    interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
    jwks: { keys },
    loadExistingGrant,
    pkce: { required: () => true },
    renderError: (ctx, out) => {
      ctx.type = "html";
      ctx.body = page("Error", `<p>${safe(`${out.error}: ${out.error_description}`)}</p>`);
    },
    ttl: { AccessToken: 3600, Grant: 86400, IdToken: 3600, Interaction: 3600, Session: 86400 },
  });
  for (const event of ["backchannel.error", "server_error"])
    provider.on(event, (ctx, error) => console.error(event, error));
  respond = provider.callback();
}

function account(sub) {
  const found = [...users.values()].find(({ claims }) => claims.sub === sub);
  return found && { accountId: sub, claims: () => found.claims };
}

async function loadExistingGrant(ctx) {
  const { client, session } = ctx.oidc;
  const grant = new ctx.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
  grant.addOIDCScope(SCOPES);
  await grant.save();
  return grant;
}

// Pages: fields and buttons with the names that Keycloak gives them.

const safe = (words) => words.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const page = (title, body) => `<!doctype html><html lang="en"><title>${title}</title><h1>${title}</h1>${body}</html>`;
const signInPage = (uid, message = "") =>
  page(
    "Sign in",
    `<p role="alert">${message}</p>
  <form method="post" action="/interaction/${uid}">
  <p><label>Username <input name="username" autocomplete="username" autofocus></label></p>
  <p><label>Password <input name="password" type="password" autocomplete="current-password"></label></p>
  <p><button name="login">Sign in</button> <button name="cancel" value="yes">Cancel</button></p></form>`,
  );

function logoutSource(ctx, form) {
  ctx.body = page("Sign out", `${form}<button form="op.logoutForm" name="logout" value="yes">Sign out</button>`);
}

function postLogoutSuccessSource(ctx) {
  ctx.body = page("Signed out", "");
}

async function interact(request, response) {
  const { uid } = await provider.interactionDetails(request, response);
  const sent = new URLSearchParams(request.method === "POST" ? await text(request) : "");
  const user = users.get(sent.get("username"));
  if (sent.has("cancel")) {
    await provider.interactionFinished(request, response, { error: "access_denied" });
  } else if (user && user.password === sent.get("password")) {
    await provider.interactionFinished(request, response, { login: { accountId: user.claims.sub } });
  } else {
    response.setHeader("Content-Type", "text/html; charset=utf-8");
    response.end(signInPage(uid, request.method === "POST" ? "Wrong username or password." : ""));
  }
}

async function handle(request, response) {
  if (!request.url.startsWith("/interaction/")) return respond(request, response);
  try {
    return await interact(request, response);
  } catch (error) {
    response.statusCode = 400;
    return response.end(String(error.message));
  }
}

// Calls.

function newKeys() {
  const pairs = [
    generateKeyPairSync("rsa", { modulusLength: 2048 }),
    generateKeyPairSync("ec", { namedCurve: "P-256" }),
  ];
  return pairs.map(({ privateKey }) => ({ ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig" }));
}

const CALLS = {
  async start(words) {
    ({ issuer, inIdToken } = words);
    keys = newKeys();
    build();
    const server = createServer(handle);
    await new Promise((done, failed) => server.once("error", failed).listen(words.port, "127.0.0.1", done));
    return issuer;
  },
  // New metadata for a known client_id replaces what it had.
  async client(metadata) {
    await kept("Client").upsert(metadata.client_id, metadata);
    return (await provider.Client.find(metadata.client_id)).clientId;
  },
  // A user that is known gets new claims and, if one is given, a new password.
  user({ name, password, claims }) {
    const known = new Set(["sub", ...PROFILE, ...EMAIL]);
    const strange = Object.keys(claims).filter((claim) => !known.has(claim));
    if (strange.length) throw new Error(`no scope has the claim ${strange}; there are ${[...known]}`);
    users.set(name, { password: password ?? users.get(name)?.password, claims });
    return claims.sub;
  },
  rotate({ keepOld }) {
    keys = [...newKeys(), ...(keepOld ? keys : [])];
    build();
    return keys.map(({ kid }) => kid);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { call, ...words } = JSON.parse(line);
  let outcome;
  try {
    outcome = { returned: await CALLS[call](words) };
  } catch (error) {
    outcome = { raised: { kinds: [error.name], info: error.error_description ?? null, message: error.message } };
  }
  console.log(JSON.stringify(outcome));
}
process.exit();
