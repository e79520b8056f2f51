// Reads recorded responses with the unmodified transport of each version of `ai`, and prints the messages they make.
// The argument is JSON: [[version, path], …].

import { readFileSync } from 'node:fs';

const found = [];
for (const [version, path] of JSON.parse(process.argv[2])) {
  const ai = await import(`ai-${version}`);
  const transport = new ai.DefaultChatTransport({ fetch: async () => new Response(readFileSync(path)) });
  const stream = await transport.sendMessages({ chatId: 'c', messages: [], trigger: 'submit-message' });
  let message;
  const errors = [];
  const seed = path.includes('continued')
    ? { id: 'golden-approval.main.1', role: 'assistant', parts: [
        { type: 'step-start' },
        { type: 'dynamic-tool', toolCallId: 'golden-approval.main.1#0.1.call1', toolName: 'sign', state: 'input-available', input: {} },
      ] }
    : undefined;
  const options = { message: seed, stream, terminateOnError: true, onError: error => errors.push(error.message) };
  for await (const state of ai.readUIMessageStream(options)) message = state;
  found.push({ message, errors });
}
console.log(JSON.stringify(found));
