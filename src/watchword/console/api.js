/**
 * Requests to the server: GraphQL and the session. The session cookie is not readable by scripts.
 *
 * Every error becomes an `ApiError` with the server's message. When the session has ended, listeners of `onSignedOut`
 * are called, and the error is thrown. All tabs of a browser share one session: signing in or out in one tab does so in
 * all (`onOtherSession`).
 */

/**
 * @typedef {{signedIn: boolean, actorUrn?: string | null, tokenId?: string | null, expiresAt?: number | null,
 *   displayName?: string | null, privileges?: Record<string, boolean>, method?: string | null, provider?: string |
 *   null, localMode: boolean, dataDir?: string | null, version?: string, reason?: string, message?: string}} Session
 *   `message`: why it ended; `provider`: the host of the identity provider; `dataDir`: only for a browser that
 *   runs on the server's machine as its user
 */

export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {{reason?: string, status?: number, requestId?: string | null, details?: Record<string, any>}} [about]
   */
  constructor(message, about = {}) {
    super(message);
    this.name = "ApiError";
    this.reason = about.reason ?? "";
    this.status = about.status ?? 0;
    this.requestId = about.requestId ?? null;
    this.details = about.details ?? {};
  }

  /** The input field that is wrong, if any. */
  get field() {
    return typeof this.details.field === "string" ? this.details.field : null;
  }
}

export const UNREACHABLE = "The server could not be reached. Check the connection and try again.";

/** @type {((error: ApiError) => void)[]} */
const listeners = [];

/** @param {(error: ApiError) => void} listener called when the session has ended, unless the user ended it here */
export const onSignedOut = (listener) => listeners.push(listener);

let signingOut = false;
/** @param {ApiError} error */
const ended = (error) => signingOut || listeners.forEach((listener) => listener(error));

/**
 * @param {string} query
 * @param {Record<string, unknown>} [variables]
 * @param {{signal?: AbortSignal, key?: string}} [options] `key`: an Idempotency-Key, so that retrying is safe
 * @returns {Promise<any>} the `data` of the answer
 */
export async function graphql(query, variables = {}, { signal, key } = {}) {
  const headers = key ? { "Idempotency-Key": key } : undefined;
  const { answer, body } = await ask("POST", "/api/graphql", { query, variables }, signal, headers);
  const first = body?.errors?.[0];
  if (!first && answer.ok && body?.data) return body.data;
  const error = first
    ? failure(answer, first.message, first.extensions)
    : failure(answer, body?.error?.message, body?.error);
  if (error.status === 401) ended(error);
  throw error;
}

/** Whether the request is not wanted any more. @param {unknown} error */
export const isAborted = (error) => error instanceof DOMException && error.name === "AbortError";

/** An Idempotency-Key. A page without https has no `crypto.randomUUID`. */
export const newKey = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((n) => n.toString(16).padStart(2, "0")).join("");

/** Tells the other tabs who is signed in now. */
const others = new BroadcastChannel("session");

/** @typedef {{actorUrn: string | null, tokenId: string | null}} Who without an actor: signed out */
/** @param {(now: Who) => void} listener called when another tab has signed in or out */
export const onOtherSession = (listener) => others.addEventListener("message", (event) => listener(event.data));

/** @param {Session} [now] */
const tell = (now) => others.postMessage({ actorUrn: now?.actorUrn ?? null, tokenId: now?.tokenId ?? null });

export const session = {
  /** @returns {Promise<Session>} */
  read: () => plain("GET"),
  /** @param {{token: string} | {actor: string}} proof @returns {Promise<Session>} */
  async signIn(proof) {
    const now = await plain("POST", proof);
    tell(now);
    return now;
  },
  /** @returns {Promise<string | null>} where one can sign out at the identity provider too */
  async signOut() {
    signingOut = true;
    try {
      const answer = await plain("DELETE");
      tell();
      return answer?.providerSignOutUrl ?? null;
    } catch (error) {
      signingOut = false;
      throw error;
    }
  },
};

/**
 * The terminal that waits with this user code; with `approve`, approve or deny it.
 * @typedef {{userCode: string, client: string, host: string | null, address: string, expiresAt: number,
 *   scopes: string[] | null, tokenSeconds: number}} Device
 * @param {{userCode: string, approve?: boolean}} content @param {AbortSignal} [signal] @returns {Promise<Device>}
 */
export async function device(content, signal) {
  const { answer, body } = await ask("POST", "/device", content, signal);
  if (answer.ok) return body;
  const error = failure(answer, body?.error?.message, body?.error);
  if (error.status === 401) ended(error);
  throw error;
}

/** @param {string} method @param {unknown} [content] */
async function plain(method, content) {
  const { answer, body } = await ask(method, "/session", content);
  if (answer.ok) return body;
  throw failure(answer, body?.error?.message, body?.error);
}

/**
 * @param {string} method @param {string} path @param {unknown} [content] @param {AbortSignal} [signal]
 * @param {Record<string, string>} [more]
 */
async function ask(method, path, content, signal, more) {
  try {
    const answer = await fetch(path, {
      method,
      credentials: "same-origin",
      redirect: "error",
      headers: {
        "X-Watchword-Console": "1",
        ...(content === undefined ? {} : { "Content-Type": "application/json" }),
        ...more,
      },
      body: content === undefined ? undefined : JSON.stringify(content),
      signal,
    });
    return { answer, body: /** @type {any} */ (read(await answer.text())) };
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ApiError(UNREACHABLE, { reason: "unreachable" });
  }
}

/** @param {string} text */
function read(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

/** @param {Response} answer @param {string} [message] @param {Record<string, any>} [about] */
function failure(answer, message, about = {}) {
  return new ApiError(message ?? `The server answered with status ${answer.status}. Try again.`, {
    reason: about.reason ?? "",
    status: about.code ?? answer.status,
    requestId: answer.headers.get("x-request-id"),
    details: about,
  });
}
