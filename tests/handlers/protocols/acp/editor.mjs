// The official TypeScript client of ACP, as an editor: starts the command of its arguments, and prints what it saw.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk/unstable";

const [command, ...words] = process.argv.slice(2);
const child = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => child.on("exit", resolve));
const updates = [];
const asked = [];
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const { agent, client } = acp.methods;
const text = (said) => [{ type: "text", text: said }];

const app = acp
  .client({ name: "referee" })
  .onNotification(client.session.update, ({ params }) => void updates.push(params))
  .onRequest(client.session.requestPermission, ({ params }) => {
    asked.push(params.toolCall.title);
    const { optionId } = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId } };
  });

const seen = await app.connectWith(stream, async (editor) => {
  const ready = await editor.request(agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
  const place = { cwd: "/project", mcpServers: [] };
  const { sessionId } = await editor.request(agent.session.new, place);
  const first = await editor.request(agent.session.prompt, { sessionId, prompt: text("disk") });
  const live = updates.splice(0);
  await editor.request(agent.session.load, { ...place, sessionId });
  const loaded = updates.splice(0);
  const fork = await editor.request(agent.session.fork, { ...place, sessionId });
  const second = await editor.request(agent.session.prompt, { sessionId: fork.sessionId, prompt: text("print") });
  const listed = await editor.request(agent.session.list, { cwd: "/project" });
  await editor.request(agent.session.close, { sessionId });
  const missing = await editor.request(agent.session.load, { ...place, sessionId: "none" }).catch((error) => error.code);
  const stops = [first.stopReason, second.stopReason];
  return { ready, live, loaded, stops, sessions: listed.sessions.length, missing, last: updates.at(-1) };
});
child.stdin.end();
console.log(JSON.stringify({ ...seen, asked, code: await ended }));
