// Send a message twice, approve the call that waits, and read what came of it.
const [folder, text] = process.argv.slice(2);
const { Transcript, connect } = await import(`${folder}/dist/index.js`);
const { url, token, session } = JSON.parse(text);
const lanebus = connect({ url, token });
const path = { session };

const send = () =>
  lanebus.request("POST", "/api/sessions/{session}/messages", { path, body: { text: "pay it", key: "once" } });
const brief = ({ duplicate, positions }) => ({ duplicate, count: positions.length });
const told = { sent: brief(await send()), again: brief(await send()) };

const transcript = new Transcript();
for await (const item of lanebus.follow(session)) {
  transcript.add(item);
  const [call] = transcript.waiting;
  if (call && !told.waiting) {
    told.waiting = transcript.waiting.map(({ toolName }) => toolName);
    const { toolCallId, turnId } = call;
    const whole = await lanebus.request("GET", "/api/sessions/{session}/call", { path, query: { id: toolCallId } });
    told.arguments = JSON.parse(whole.text);
    const body = { command: "approve", turnId, toolCallId, callHash: whole.callHash };
    await lanebus.request("POST", "/api/sessions/{session}/commands", { path, body });
  }
  if (item.type === "entry" && item.entry.message.kind === "agent.ended") break;
}
told.shown = transcript.messages.map(({ role, text }) => `${role}: ${text}`);
const { entries } = await lanebus.request("GET", "/api/sessions/{session}/entries", { path, query: { lanes: "llm" } });
told.entries = entries.map(({ message }) => message.role);
try {
  await lanebus.request("POST", "/api/sessions/{session}/commands", { path, body: { command: "dance" } });
} catch ({ status, error }) {
  told.late = [status, error];
}
console.log(JSON.stringify(told));
