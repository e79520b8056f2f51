// What the token allows, as the server told it. The server checks each request itself: here it only decides what is shown.

import { createContext } from "preact";

/** What the token allows, for those far below the frame of the page. */
export const Rights = createContext({ actions: [] });

/** Whether the token allows an action, such as `command.abort`. An action includes those below it; `*` includes all. */
export const may = (access, action) =>
  access.actions.some((one) => one === "*" || action === one || action.startsWith(`${one}.`));

/** Whether a pattern, such as `team-*`, allows the session. */
export const maySee = (access, session) =>
  access.sessions.some((one) => (one.endsWith("*") ? session.startsWith(one.slice(0, -1)) : one === session));

/** Whether the token allows an answer to calls that wait: it may allow to deny them alone. */
export const mayAnswer = (access) => may(access, "command.approve") || may(access, "command.deny");

/** Whether the token allows nothing that changes a session. */
export const isReadOnly = (access) => access.actions.every((one) => one === "read" || one.startsWith("read."));

export const seesBothLanes = (access) => access.lanes.length === 2;
