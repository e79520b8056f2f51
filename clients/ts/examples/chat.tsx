// A page with one session. It takes the session and the token from its address: chat.html?session=demo#token=…
import { type Answer, type WaitingCall, connect } from "@lanebus/client";
import { type FormEvent, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { useSession } from "./useSession.js";

const { searchParams, hash, origin } = new URL(location.href);
const token = new URLSearchParams(hash.slice(1)).get("token") ?? "";
const lanebus = connect({ url: searchParams.get("server") ?? origin, token });

type Whole = Answer<"GET", "/api/sessions/{session}/call">;
type Send = (body: Parameters<ReturnType<typeof useSession>["command"]>[0]) => unknown;

/** A call that waits for a person. What is approved is what is shown: the hash names the arguments. */
function Decision({ session, call, send }: { session: string; call: WaitingCall; send: Send }) {
  const { turnId, toolCallId, toolName } = call;
  const [whole, setWhole] = useState<Whole | null>(null);
  useEffect(() => {
    const asked = lanebus.request("GET", "/api/sessions/{session}/call", { path: { session }, query: { id: toolCallId } });
    asked.then(setWhole, () => setWhole(null));
  }, [session, toolCallId]);
  if (!whole) return <p>{toolName} waits for you.</p>;
  const approve = () => send({ command: "approve", turnId, toolCallId, callHash: whole.callHash });
  return (
    <p>
      {toolName} {whole.text} <button onClick={approve}>Approve</button>{" "}
      <button onClick={() => send({ command: "deny", turnId, toolCallId })}>Deny</button>
    </p>
  );
}

function Chat({ session }: { session: string }) {
  const { messages, waiting, isConnected, error, post, command } = useSession(lanebus, session);
  const [draft, setDraft] = useState("");
  const [fault, setFault] = useState<unknown>(null);
  const send = (event: FormEvent) => {
    event.preventDefault();
    post(draft).then(() => setDraft(""), setFault);
  };
  return (
    <main>
      <h1>{session}</h1>
      <ol>
        {messages.map(({ key, role, text, isPartial }) => (
          <li key={key} data-role={role} aria-busy={isPartial}>
            <b>{role}</b> {text}
          </li>
        ))}
      </ol>
      {waiting.map((call) => (
        <Decision key={call.toolCallId} session={session} call={call} send={(body) => command(body).catch(setFault)} />
      ))}
      <form onSubmit={send}>
        <input aria-label="Message" value={draft} onChange={(event) => setDraft(event.target.value)} />
        <button disabled={!draft.trim()}>Send</button>
      </form>
      <p role="status">{error || fault ? String(error ?? fault) : isConnected ? "connected" : "connecting"}</p>
    </main>
  );
}

createRoot(document.getElementById("chat")!).render(<Chat session={searchParams.get("session") ?? "demo"} />);
