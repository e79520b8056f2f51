// The operations of the menu: what each needs, says and sends. `actions` are the rights that it takes. `run` gets a
// `key`, the same for each attempt, so that a repeat adds nothing. `preview` tells what would
// happen: `{text, isBlocked}`; it gets the values of the fields, and is asked again when they change.
import { closeSession, getDeadLetters, handOver, postFork, redrive, reopenSession, sendCommand, trim } from "./api.js";
import { bytes, count, cut, visible } from "./format.js";
import { may, seesBothLanes } from "./rights.js";
import { sessionLink } from "./route.js";

const REASONS_SHOWN = 3;

const some = (number, one, many) => (number === 1 ? `1 ${one}` : `${count(number)} ${many}`);

export const OPERATIONS = [
  {
    name: "hand_over",
    label: "Hand over to an agent",
    verb: "Hand over",
    actions: ["hand_over"],
    isOffered: ({ position, isClosed }) => position > 0 && !isClosed,
    about: ({ head }) => `Another agent takes the session over${head?.agent ? ` from ${head.agent}` : ""}, with all that was said.`,
    fields: () => [
      { name: "agent", label: "Agent" },
      { name: "reason", label: "Reason", isOptional: true },
    ],
    run: async ({ session, key }, { agent, reason }) => {
      await handOver(session, agent.trim(), reason.trim(), key);
      return { text: `Handed over to ${agent.trim()}` };
    },
  },
  {
    name: "handoff",
    label: "Hand over to a person",
    verb: "Hand over",
    actions: ["command.handoff"],
    isOffered: ({ position, isClosed }) => position > 0 && !isClosed,
    about: () => "The agent stops after its current turn, until someone presses Resume.",
    fields: () => [
      { name: "to", label: "Person or team" },
      { name: "reason", label: "Reason", isOptional: true },
    ],
    run: async ({ session, key }, { to, reason }) => {
      const position = await sendCommand(session, { command: "handoff", to: to.trim(), ...(reason.trim() ? { reason: reason.trim() } : {}) }, key);
      return { text: `handoff #${position} sent` };
    },
  },
  {
    name: "compact",
    label: "Compact the context",
    verb: "Compact",
    actions: ["command.compact"],
    isOffered: ({ position, isClosed }) => position > 0 && !isClosed,
    about: () => "Before its next turn, the agent replaces the older messages by a summary. The log keeps them.",
    run: async ({ session, key }) => ({ text: `compact #${await sendCommand(session, { command: "compact" }, key)} sent` }),
  },
  {
    name: "fork",
    label: "Fork the session",
    verb: "Fork",
    actions: ["fork"],
    isOffered: ({ position, access }) => position > 0 && seesBothLanes(access),
    about: () => "A new session begins with the entries up to a position. This one goes on unchanged.",
    fields: ({ position }) => [{ name: "at", label: "Up to position", type: "number", min: 1, max: position, value: position }],
    run: async ({ session, key }, { at }) => {
      const fork = await postFork(session, Number(at), key);
      return { link: sessionLink(fork.session) };
    },
  },
  {
    name: "redrive",
    label: "Redrive dead letters",
    verb: "Redrive",
    actions: ["redrive"],
    isOffered: ({ position }) => position > 0,
    about: () => "Work that failed too often was set aside. The workers get it again.",
    preview: async ({ session, access }) => {
      if (!may(access, "read.dead_letters")) return null;
      const letters = await getDeadLetters(session);
      const reasons = letters.slice(0, REASONS_SHOWN).map((one) => `#${one.position} (${one.group}, ${some(one.attempts, "attempt", "attempts")}): ${cut(visible(one.reason ?? ""), 200)}`);
      return { text: [letters.length ? some(letters.length, "dead letter", "dead letters") : "There are no dead letters.", ...reasons].join("\n"), isBlocked: letters.length === 0 };
    },
    run: async ({ session }) => ({ text: `${some(await redrive(session), "dead letter", "dead letters")} redriven` }),
  },
  {
    name: "trim",
    label: "Delete old entries",
    verb: "Delete",
    destroys: true,
    actions: ["trim"],
    isOffered: ({ position }) => position > 0,
    about: () => "Deletes the entries before a position for good. Totals and titles that were counted stay.",
    fields: ({ position }) => [
      { name: "before", label: "Before position", type: "number", min: 1, max: position + 1, value: "" },
      { name: "force", label: "Also if they are still needed", type: "checkbox", value: false, isOptional: true },
    ],
    preview: async ({ session }, { before, force }) => {
      if (!(Number(before) >= 1)) return null;
      const told = await trim(session, Number(before), { force, dryRun: true });
      const holders = Object.entries(told.holders).map(([name, position]) => `${visible(name)} (from #${count(position)})`);
      if (told.hiddenForks) holders.push(`${some(told.hiddenForks, "fork", "forks")} that your token may not trim`);
      const needed = holders.length ? `\nStill needed by ${holders.join(", ")}.` : "";
      return { text: `${some(told.entries, "entry", "entries")}, ${bytes(told.sizeBytes)}${needed}`, isBlocked: told.entries === 0 || (holders.length > 0 && !force) };
    },
    run: async ({ session }, { before, force }) => ({ text: `${some((await trim(session, Number(before), { force })).entries, "entry", "entries")} deleted` }),
  },
  {
    name: "close",
    label: "Close the session",
    verb: "Close session",
    actions: ["close"],
    isOffered: ({ position, isClosed }) => position > 0 && !isClosed,
    about: () => "It takes no more messages until it is reopened. Its entries stay.",
    fields: () => [{ name: "reason", label: "Reason", isOptional: true }],
    run: async ({ session, key }, { reason }) => {
      await closeSession(session, reason.trim(), key);
      return { text: "Closed" };
    },
  },
  {
    name: "reopen",
    label: "Reopen the session",
    verb: "Reopen",
    actions: ["reopen"],
    isOffered: ({ isClosed }) => isClosed,
    about: () => "It takes messages again.",
    fields: () => [{ name: "reason", label: "Reason", isOptional: true }],
    run: async ({ session, key }, { reason }) => {
      await reopenSession(session, reason.trim(), key);
      return { text: "Reopened" };
    },
  },
];
