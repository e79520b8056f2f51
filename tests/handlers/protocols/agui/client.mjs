// An AG-UI client and nothing else: HttpAgent, unmodified, of one version of `@ag-ui/client`.
// The argument is JSON: {version, url, token, thread, agent, steps}. Each step is an object; a report is printed as JSON.

import { existsSync, writeFileSync } from 'node:fs';

const { version, url, token, thread, agent: name, steps } = JSON.parse(process.argv[2]);
const { HttpAgent } = await import({ 1: '@ag-ui/client', 0: 'ag-ui-client-0' }[version]);
const auth = { Authorization: `Bearer ${token}` };
const seen = { runs: [], streams: [], statuses: [], warnings: [] };

for (const level of ['warn', 'error']) console[level] = (...said) => seen.warnings.push(said.map(String).join(' '));

// What the server sends is kept as it arrives, beside the client.
const plain = globalThis.fetch;
globalThis.fetch = async (...request) => {
  const reply = await plain(...request);
  seen.statuses.push(reply.status);
  if (!reply.headers.get('content-type')?.startsWith('text/event-stream')) return reply;
  const at = seen.streams.push('') - 1, decoder = new TextDecoder();
  const copied = new TransformStream({
    transform(chunk, out) { seen.streams[at] += decoder.decode(chunk, { stream: true }); out.enqueue(chunk); },
  });
  return new Response(reply.body.pipeThrough(copied), { status: reply.status, headers: reply.headers });
};

const made = (messages, id) => new HttpAgent({ url: `${url}/agui/${name}`, headers: auth, threadId: id, initialMessages: messages });
let agent = made([], thread), running = Promise.resolve(), runs = 0;

async function until(condition, what) {
  for (const end = Date.now() + 60_000; !condition(); ) {
    if (Date.now() > end) throw new Error(`never: ${what}: ${JSON.stringify(agent.messages)} ${JSON.stringify(seen)}`);
    await new Promise(done => setTimeout(done, 5));
  }
}

function run({ resume, runId, tools }) {
  const report = { events: [], shown: [] };
  seen.runs.push(report);
  const listener = {
    onEvent: ({ event }) => { report.events.push(event); },
    onMessagesChanged: ({ messages }) => { report.shown.push(JSON.stringify(messages)); },
    onRunFailed: ({ error }) => { report.failed = error.message; },
  };
  running = agent.runAgent({ runId: runId ?? `run-${++runs}`, resume, tools }, listener)
    .catch(error => { report.error = error.message; });
}

const doing = {
  say: step => { agent.addMessage({ id: step.id, role: 'user', content: step.content }); run(step); },
  run,
  answer: async ({ payload, status = 'resolved' }) => {
    await running;
    run({ resume: agent.pendingInterrupts.map(each => ({ interruptId: each.id, status, payload })) });
  },
  settle: () => running,
  shows: ({ text }) => until(() => JSON.stringify(agent.messages).includes(text), text),
  gets: ({ type }) => until(() => seen.runs.at(-1).events.some(event => event.type === type), type),
  // The page is loaded again: with nothing, or with all that was shown.
  reload: async ({ keep = true }) => {
    agent.abortRun();
    await running;
    agent = made(keep ? structuredClone(agent.messages) : [], thread);
  },
  post: async ({ path, body }) => {
    const reply = await plain(`${url}${path}`, {
      method: 'POST', headers: { ...auth, 'content-type': 'application/json' }, body: JSON.stringify(body),
    });
    seen.posted = reply.status;
  },
  signal: ({ path }) => writeFileSync(path, ''),
  await: ({ path }) => until(() => existsSync(path), path),
};

for (const step of steps) await doing[step.do](step);
console.log(JSON.stringify({ messages: agent.messages, pending: agent.pendingInterrupts, ...seen }));
process.exit(0);
