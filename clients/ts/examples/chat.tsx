// A page with one session. It takes the session and the token from its address: chat.html?session=demo#token=…
import { connect } from "@lanebus/client";
import { type FormEvent, useState } from "react";
import { createRoot } from "react-dom/client";
import { useSession } from "./useSession.js";

const { searchParams, hash, origin } = new URL(location.href);
const token = new URLSearchParams(hash.slice(1)).get("token") ?? "";
const lanebus = connect({ url: searchParams.get("server") ?? origin, token });

function Chat({ session }: { session: string }) {
  const { messages, waiting, isConnected, error, post, decide } = useSession(lanebus, session);
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
        <p key={call.toolCallId}>
          {call.toolName} waits for you.{" "}
          <button onClick={() => decide("approve", call).catch(setFault)}>Approve</button>{" "}
          <button onClick={() => decide("deny", call).catch(setFault)}>Deny</button>
        </p>
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
