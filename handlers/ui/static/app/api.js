// Requests to the server. Every failure becomes an ApiError with the server's message.

export class ApiError extends Error {
  constructor(status, error, message) {
    super(message);
    this.status = status;
    this.error = error;
  }
}

async function request(path, options = {}) {
  let reply;
  try {
    reply = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new ApiError(0, "unreachable", "The server does not answer. Check that it is running.");
  }
  let body = null;
  try {
    body = await reply.json();
  } catch {
    // A response that is not JSON comes from a proxy; its status is enough.
  }
  if (!reply.ok) {
    throw new ApiError(reply.status, body?.error ?? "failed", body?.message ?? `The server answered ${reply.status}.`);
  }
  return body;
}

const path = (session, rest = "") => `/api/sessions/${encodeURIComponent(session)}${rest}`;

export const listSessions = async () => (await request("/api/sessions")).sessions;
export const getHead = (session) => request(path(session));
export const getTurns = (session) => request(path(session, "/turns"));
export const getStatus = (session) => request(path(session, "/status"));
export const getAccess = () => request("/api/access");
export const getCall = (session, id) => request(path(session, `/call?id=${encodeURIComponent(id)}`));
export const getUsage = (session) => request(path(session, "/usage"));
export const eventsPath = (session, after) => path(session, `/events?after=${after}`);

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

const post = (session, rest, body) =>
  request(path(session, rest), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

/** Publish a user message. A repeat with the same key adds nothing, so a post whose response was lost can be repeated. */
export const sendMessage = (session, text, key, isFollowUp = false) =>
  post(session, "/messages", isFollowUp ? { text, key, followUp: true } : { text, key });

/** Send a command to the agent, such as `{command: "abort"}`, and return its position. A repeat with the same key adds nothing. */
export async function sendCommand(session, command, key) {
  const { positions } = await post(session, "/commands", { ...command, key });
  return positions.at(-1);
}

export function newKey() {
  // Not randomUUID: browsers offer it only on localhost and over HTTPS.
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
