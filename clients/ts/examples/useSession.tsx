// A session as React state: its messages, and functions that send. Copy it, and change it as you like.
import { type Lanebus, type Options, type ShownMessage, Transcript, type WaitingCall } from "@lanebus/client";
import { useCallback, useEffect, useState } from "react";

type Command = Options<"POST", "/api/sessions/{session}/commands">["body"];

export function useSession(lanebus: Lanebus, session: string) {
  const [messages, setMessages] = useState<readonly ShownMessage[]>([]);
  const [waiting, setWaiting] = useState<readonly WaitingCall[]>([]);
  const [isConnected, setConnected] = useState(false);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    const stop = new AbortController();
    const transcript = new Transcript();
    let frame = 0;
    const show = () => {
      frame = 0;
      setMessages(transcript.messages);
      setWaiting(transcript.waiting);
      setConnected(transcript.isConnected);
    };
    const run = async () => {
      for await (const item of lanebus.follow(session, { signal: stop.signal })) {
        transcript.add(item);
        frame ||= requestAnimationFrame(show); // stored entries come faster than they can be drawn
      }
    };
    setError(null);
    run().catch(setError);
    return () => (stop.abort(), cancelAnimationFrame(frame));
  }, [lanebus, session]);

  const post = useCallback((text: string) =>
    lanebus.request("POST", "/api/sessions/{session}/messages", { path: { session }, body: { text } }), [lanebus, session]);
  const command = useCallback((body: Command) =>
    lanebus.request("POST", "/api/sessions/{session}/commands", { path: { session }, body }), [lanebus, session]);
  return { messages, waiting, isConnected, error, post, command };
}
