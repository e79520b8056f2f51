// What the parts of an entry need to know: its session, its position and what the user may and wants to see.
import { createContext } from "preact";

/** `sought` is the text that the user looks for, if this entry is the match that is shown: it must not be folded. */
export const OfEntry = createContext({ session: null, position: null, access: null, isPlain: false, isLive: false, sought: "" });
