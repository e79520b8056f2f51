// What the page asks of the server. Every failure becomes an ApiError with the server's own words.

export class ApiError extends Error {
  constructor(status, error, message) {
    super(message);
    this.status = status;
    this.error = error;
  }
}

async function ask(path, options = {}) {
  let reply;
  try {
    reply = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new ApiError(0, "unreachable", "The server does not answer. Is it still running?");
  }
  let body = null;
  try {
    body = await reply.json();
  } catch {
    // An answer that is no JSON is not ours; its status says enough.
  }
  if (!reply.ok) {
    throw new ApiError(reply.status, body?.error ?? "failed", body?.message ?? `The server answered ${reply.status}.`);
  }
  return body;
}

const path = (session, rest = "") => `/api/sessions/${encodeURIComponent(session)}${rest}`;

export const listSessions = async () => (await ask("/api/sessions")).sessions;
export const getHead = (session) => ask(path(session));
export const getTurns = (session) => ask(path(session, "/turns"));
export const getStatus = (session) => ask(path(session, "/status"));
export const getAccess = () => ask("/api/access");
export const getUsage = (session) => ask(path(session, "/usage"));
export const eventsPath = (session, after) => path(session, `/events?after=${after}`);

export async function getEntries(session, after, until) {
  return (await ask(path(session, `/entries?after=${after}&until=${until}`))).entries;
}

const post = (session, rest, body) =>
  ask(path(session, rest), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

/** The same key twice says it once, so a post whose answer was lost can be repeated. */
export const say = (session, text, key, isFollowUp = false) =>
  post(session, "/messages", isFollowUp ? { text, key, followUp: true } : { text, key });

/** A command to the agent, such as `{command: "abort"}`; gives its position. The same key twice is one command. */
export async function order(session, command, key) {
  const { positions } = await post(session, "/commands", { ...command, key });
  return positions.at(-1);
}

export function newKey() {
  // Not randomUUID: that is missing where the page is opened by another name than localhost.
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
