// Follow sessions with our client until stdin ends. Each item and the messages after it is a line of JSON.
const [folder, text] = process.argv.slice(2);
const { Transcript, connect } = await import(`${folder}/dist/index.js`);
const { url, token, sessions, retry, maxRetry, silence, attempts, ...follow } = JSON.parse(text);
const lanebus = connect({ url, token, retry, maxRetry, silence, attempts });

process.stdin.resume().on("end", () => process.exit());
const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const transcripts = new Map(sessions.map((session) => [session, new Transcript()]));
const shown = ({ messages, waiting, isCaughtUp, isClosed, cursor }) => ({
  messages: messages.map(({ role, text, isPartial }) => `${role}${isPartial ? "…" : ""}: ${text}`),
  waiting: waiting.map(({ toolName }) => toolName),
  isCaughtUp,
  isClosed,
  cursor,
});

try {
  const items =
    sessions.length === 0
      ? lanebus.changes()
      : sessions.length === 1
        ? lanebus.follow(sessions[0], follow)
        : lanebus.followMany(sessions, follow);
  for await (const item of items) {
    const session = sessions.length === 1 ? sessions[0] : item.session;
    const transcript = sessions.length ? transcripts.get(session) : undefined;
    transcript?.add(item);
    tell({ item, session, transcript: transcript ? shown(transcript) : null });
  }
} catch (error) {
  const { name, status, error: code, message } = error;
  tell({ error: { name, status, error: code, message } });
}
process.exit();
