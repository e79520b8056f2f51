// The operations of the menu: what each needs, says and sends. `actions` are the rights that it takes. `run` gets a
// `key`, the same for each attempt, so that a repeat adds nothing.
import { handOver, sendCommand } from "./api.js";

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
    run: async ({ session }, { agent, reason }) => {
      await handOver(session, agent.trim(), reason.trim());
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
];
