// What the token allows, as the server told it. The server checks each request itself: here it only decides what is shown.

/** Whether the token allows an action, such as `command.abort`. An action includes those below it; `*` includes all. */
export const may = (access, action) =>
  access.actions.some((one) => one === "*" || action === one || action.startsWith(`${one}.`));

/** Whether a pattern, such as `team-*`, allows the session. */
export const maySee = (access, session) =>
  access.sessions.some((one) => (one.endsWith("*") ? session.startsWith(one.slice(0, -1)) : one === session));

export const seesBothLanes = (access) => access.lanes.length === 2;
