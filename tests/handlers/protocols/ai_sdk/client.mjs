// A page with `useChat` and nothing else: AbstractChat with DefaultChatTransport, unmodified, of one version of `ai`.
// The argument is JSON: {version, url, token, chat, steps}. Each step is an object; the reports are printed as JSON.

import { existsSync, writeFileSync } from 'node:fs';

const { version, url, token, chat: id, steps, headers = {} } = JSON.parse(process.argv[2]);
const ai = await import(`ai-${version}`);
const auth = { Authorization: `Bearer ${token}` };

class State {
  status = 'ready';
  error = undefined;
  messages = [];
  constructor(messages) { this.messages = messages; }
  pushMessage = message => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => {
    this.messages = [...this.messages.slice(0, index), this.snapshot(message), ...this.messages.slice(index + 1)];
  };
  snapshot = thing => structuredClone(thing);
}

class Chat extends ai.AbstractChat {
  constructor(messages) {
    const state = new State(messages);
    super({
      id,
      state,
      transport: new ai.DefaultChatTransport({
        api: `${url}/chat`,
        headers: { ...auth, ...headers },
        prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({
          body: { id, messages: messages.slice(-2), trigger, messageId },
        }),
        // As the documentation says: a command may have ended the answer before it is resumed.
        prepareReconnectToStreamRequest: ({ id }) =>
          commanded === null ? {} : { api: `${url}/chat/${id}/stream?after=${commanded}` },
        fetch: async (...request) => {
          const reply = await fetch(...request);
          position = reply.headers.get('lanebus-position') ?? position;
          seen.replies.push([reply.status, reply.headers.get('x-vercel-ai-ui-message-stream')]);
          return reply;
        },
      }),
      onData: part => seen.data.push(part),
      onError: error => seen.errors.push(error.message),
      onFinish: ({ message, isAbort, isError, isDisconnect, finishReason }) =>
        seen.finishes.push({ id: message.id, isAbort, isError, isDisconnect, finishReason }),
      sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithApprovalResponses,
    });
  }
}

const seen = { replies: [], data: [], errors: [], finishes: [], ids: [] };
let chat = new Chat([]);
let commanded = null; // position of the last command, or of the message whose answer was missed
let position = null; // position of the last sent message
let running = Promise.resolve();

async function until(condition, what) {
  for (const end = Date.now() + 60_000; !condition(); ) {
    if (Date.now() > end) throw new Error(`never: ${what}: ${JSON.stringify(chat.messages)} ${JSON.stringify(seen)}`);
    await new Promise(done => setTimeout(done, 10));
  }
}

const idle = () => chat.status === 'ready' || chat.status === 'error';
const waiting = () => chat.lastMessage?.parts.find(part => part.state === 'approval-requested');

const doing = {
  send: ({ text, message }) => { running = chat.sendMessage(message ?? { text }); },
  regenerate: () => { running = chat.regenerate(); },
  resume: ({ missed = false }) => {
    if (missed) commanded = position;
    running = chat.resumeStream();
  },
  settle: async () => { await running; await until(idle, 'idle'); },
  replied: ({ count }) => until(() => seen.replies.length >= count, `${count} responses`),
  shows: ({ text }) => until(() => JSON.stringify(chat.messages).includes(text), text),
  gets: ({ type, count = 1 }) => until(() => seen.data.filter(part => part.type === type).length >= count, type),
  answer: async ({ approved, reason }) => {
    await until(() => waiting() && idle(), 'an approval request');
    const before = seen.finishes.length;
    await chat.addToolApprovalResponse({ id: waiting().approval.id, approved, reason });
    await until(() => seen.finishes.length > before, 'the rest of the answer');
  },
  // The page is loaded again: with nothing, with what the user wrote, or with all that was shown.
  reload: async ({ keep = 'user' }) => {
    const kept = chat.messages.filter(message => keep === 'all' || (keep === 'user' && message.role === 'user'));
    await chat.stop();
    chat = new Chat(structuredClone(kept));
  },
  // The page is loaded again, with what the server has.
  load: async () => {
    await chat.stop();
    const reply = await fetch(`${url}/chat/${id}/messages`, { headers: { ...auth, ...headers } });
    const { messages, after } = await reply.json();
    commanded = after;
    chat = new Chat(messages);
  },
  stop: () => chat.stop(),
  post: async ({ path, body }) => {
    const reply = await fetch(`${url}${path}`, {
      method: 'POST', headers: { ...auth, 'content-type': 'application/json' }, body: JSON.stringify(body),
    });
    seen.posted = reply.status;
    commanded = (await reply.json()).positions?.at(-1) ?? null;
  },
  approval: async ({ command }) => {
    // As the application of version 5 does: the data part has the fields of the command.
    const part = chat.lastMessage.parts.find(each => each.type === 'data-approval');
    await doing.post({ path: `/api/sessions/${id}/commands`, body: { command, ...part.data.command } });
  },
  signal: ({ path }) => writeFileSync(path, ''),
  await: ({ path }) => until(() => existsSync(path), path),
};

for (const step of steps) await doing[step.do](step);
console.log(JSON.stringify({ messages: chat.messages, status: chat.status, error: chat.error?.message, ...seen }));
process.exit(0);
