// Give recorded streams to an unmodified client: a version and files. Fail at the first stream that it refuses.

import { readFileSync } from 'node:fs';

const [version, ...files] = process.argv.slice(2);
const { HttpAgent } = await import({ 1: '@ag-ui/client', 0: 'ag-ui-client-0' }[version]);

for (const file of files) {
  let text = readFileSync(file, 'utf8');
  // A server answers a client before version 1.0 in another way.
  if (version === '0') text = text.replace('"outcome":{"type":"cancelled"}', '"result":{"cancelled":true}');
  const threadId = /"threadId":"([^"]+)"/.exec(text)[1];
  globalThis.fetch = async () => new Response(text, { headers: { 'content-type': 'text/event-stream' } });
  const agent = new HttpAgent({ url: 'http://recorded.invalid', threadId });
  await agent.runAgent({ runId: 'run' }, { onRunFailed: ({ error }) => { throw new Error(`${file}: ${error.message}`); } });
  if (!agent.messages.length) throw new Error(`${file}: no message is shown`);
}
