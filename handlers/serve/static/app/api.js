// Requests to the server. Every failure becomes an ApiError with the server's message.
import { BASE } from "./base.js";
import { isOnline, OFFLINE } from "./network.js";
import { tokenHeaders } from "./token.js";

export class ApiError extends Error {
  constructor(status, error, message) {
    super(message);
    this.status = status;
    this.error = error;
  }

  /** Whether the server was not reached, by the page or by a proxy. */
  get isAway() {
    return [0, 502, 503, 504].includes(this.status);
  }
}

/** The error of a server that does not answer. */
export const unreachable = () => new ApiError(0, "unreachable", isOnline() ? "The server does not answer. Check that it is running." : OFFLINE);

async function send(path, options) {
  try {
    // Cookies are for a proxy that knows its users by them; the server itself reads none.
    return await fetch(BASE + path, { credentials: "same-origin", ...options, headers: { ...options.headers, ...tokenHeaders() } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable();
  }
}

async function read(reply) {
  try {
    return await reply.json();
  } catch {
    return null; // A response that is not JSON comes from a proxy; its status is enough.
  }
}

const failed = (reply, body) =>
  new ApiError(reply.status, body?.error ?? "failed", body?.detail ?? `The server answered ${reply.status}.`);

async function request(path, options = {}) {
  const reply = await send(path, options);
  const body = await read(reply);
  if (!reply.ok) throw failed(reply, body);
  return body;
}

// A browser sends six requests to one server at a time, and the server makes one view at a time, of which the first takes
// seconds in a long session. So views wait for each other here, and leave the other five to entries and event streams.
const views = []; // those that wait, as {rank, run}
let isViewing = false;

function nextView() {
  if (isViewing || views.length === 0) return;
  isViewing = true;
  const first = views.reduce((one, other) => (other.rank < one.rank ? other : one));
  views.splice(views.indexOf(first), 1);
  first.run().finally(() => {
    isViewing = false;
    nextView();
  });
}

/** Request a view that the server folds, once no other one is under way. Lower ranks come first. */
function requestView(rank, path, options) {
  return new Promise((resolve, reject) => {
    const run = async () => {
      try {
        options?.signal?.throwIfAborted();
        resolve(await request(path, options));
      } catch (error) {
        reject(error);
      }
    };
    views.push({ rank, run });
    queueMicrotask(nextView); // after those that are requested together with this one
  });
}

/** Return the response of an event stream, whose body does not end. */
export async function requestStream(path, signal) {
  const reply = await send(path, { signal, cache: "no-store" });
  if (!reply.ok) throw failed(reply, await read(reply));
  return reply;
}

const path = (session, rest = "") => `/api/sessions/${encodeURIComponent(session)}${rest}`;

const asked = (parameters) => {
  const known = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return known.length ? `?${new URLSearchParams(known)}` : "";
};

/** A page of the sessions that match: `{count, sessions, cursor, isComplete, progress}`. */
export const listSessions = (query) => request(`/api/sessions${asked(query)}`);

/** One session as in the list. `{id, isMissing: true}` if it has no entries, and so does not exist. */
export async function getListed(session) {
  let found;
  try {
    [found] = (await listSessions({ id: session, limit: 1 })).sessions;
  } catch (error) {
    if (error.status !== 403) throw error;
    found = await getHead(session); // the token may open the session, but not list it
    if (found.position === 0) found = undefined;
  }
  return found ?? { id: session, isMissing: true };
}

/** The calls of all sessions that wait for a person: `{count, waiting, isComplete, progress}`. */
export const listWaiting = () => request("/api/waiting");

let early = null; // the head that was requested before it is needed: {session, found}

/** The head of a session. */
export function getHead(session) {
  const expected = early;
  early = null; // it is not needed later: by then it would be old
  return expected?.session === session ? expected.found : request(path(session));
}

/** Request the head of the session that the page opens with, while the rights are not known yet. */
export function expectHead(session) {
  early = { session, found: request(path(session)) };
  early.found.catch(() => {
    early = null; // the next attempt requests it again
  });
}

export const getTurns = (session) => requestView(1, path(session, "/turns"));
export const getStatus = (session) => requestView(0, path(session, "/status"));
export const getAccess = () => request("/api/access");
export const getCall = (session, id) => request(path(session, `/call?id=${encodeURIComponent(id)}`));
export const getUsage = (session) => requestView(1, path(session, "/usage"));
export const eventsPath = (session, after) => path(session, `/events?after=${after}&lanes=all`);

/** Return the entries after one position up to another. The server sends them in answers of bounded size. */
export async function getEntries(session, after, until) {
  const found = [];
  for (let cursor = after; ; ) {
    const answer = await request(path(session, `/entries?after=${cursor}&until=${until}`));
    found.push(...answer.entries);
    if (!answer.more || answer.cursor === cursor) return found;
    cursor = answer.cursor;
  }
}

/** Return one answer of entries as `{entries, cursor, more, bytes}`. */
export async function getEntriesPart(session, after, until, signal) {
  const reply = await send(path(session, `/entries?after=${after}&until=${until}`), { signal });
  if (!reply.ok) throw failed(reply, await read(reply));
  const text = await reply.text();
  return { ...JSON.parse(text), bytes: text.length };
}

/** Return stored media of an entry as a Blob. */
export async function getMedia(session, position, sha256, signal) {
  const reply = await send(path(session, `/entries/${position}/media/${encodeURIComponent(sha256)}`), { signal });
  if (!reply.ok) throw failed(reply, await read(reply));
  return reply.blob();
}

const post = (session, rest, body) =>
  request(path(session, rest), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

/** Publish a user message, `{text}` or `{content}`. A repeat with the same key adds nothing, so a post whose response was lost can be repeated. */
export const sendMessage = (session, said, key, isFollowUp = false) =>
  post(session, "/messages", isFollowUp ? { ...said, key, followUp: true } : { ...said, key });

/** Begin an upload `{sha256, sizeBytes, mimeType, filename}`, or return the one that was begun: `{offset, pieceBytes, isComplete, …}`. */
export const beginUpload = (session, told, signal) =>
  request(path(session, "/uploads"), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(told), signal });

/** Add the bytes from an offset on to an upload. */
export const addPiece = (session, sha256, offset, bytes, signal) =>
  request(path(session, `/uploads/${sha256}?offset=${offset}`), { method: "PATCH", headers: { "Content-Type": "application/octet-stream" }, body: bytes, signal });

export const removeUpload = (session, sha256) => request(path(session, `/uploads/${sha256}`), { method: "DELETE" });

/** Send a command to the agent, such as `{command: "abort"}`, and return its position. A repeat with the same key adds nothing. */
export async function sendCommand(session, command, key) {
  const { positions } = await post(session, "/commands", { ...command, key });
  return positions.at(-1);
}

/** The dead letters of a session: work that workers gave up. */
export const getDeadLetters = async (session) => (await request(path(session, "/dead-letters"))).letters;

/** Give the dead letters back to the workers. Return their number. */
export const redrive = async (session) => (await post(session, "/redrive", {})).letters;

/** Delete the entries before a position, or with `dryRun` only tell what that would delete. */
export const trim = (session, before, { force = false, dryRun = false } = {}) => post(session, "/trim", { before, force, dryRun });

export const closeSession = (session, reason, key) => post(session, "/close", reason ? { reason, key } : { key });
export const reopenSession = (session, reason, key) => post(session, "/reopen", reason ? { reason, key } : { key });

/** Hand a session over to another agent. A repeat with the same key changes nothing. */
export const handOver = (session, agent, reason, key) => post(session, "/agent", reason ? { agent, reason, key } : { agent, key });

export function newKey() {
  // Not randomUUID: browsers offer it only on localhost and over HTTPS.
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const query = (pairs) => {
  const known = Object.entries(pairs).filter(([, value]) => value !== null && value !== undefined);
  return known.length ? `?${new URLSearchParams(known)}` : "";
};

/** The newest turns of a session with their times; with `first`, those from this index on. */
export const getTimeline = (session, first = null, limit = null) => requestView(1, path(session, `/timeline${query({ first, limit })}`));

/** What a provider's model would get at a position. */
export const getContext = (session, position, provider, model, signal) => requestView(1, path(session, `/context${query({ position, provider, model })}`), { signal });

/** The recorded request of a past turn. */
export const getTurnRequest = (session, turn, signal) => requestView(1, path(session, `/turns/${encodeURIComponent(turn)}/request`), { signal });

export const getForks = (session) => request(path(session, "/forks"));

/** Fork a session after a position. A repeat with the same key makes no second fork. */
export const postFork = (session, position, key) => post(session, "/forks", { position, key });

/** One page of the entries after a position, up to another. */
export const getEntriesPage = (session, after, until, signal) => request(path(session, `/entries${query({ after, until })}`), { signal });
