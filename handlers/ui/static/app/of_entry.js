// What the parts of an entry need to know: its session, its position and what the user may and wants to see.
import { createContext } from "preact";

/** `sought` is the text that the user looks for, if this entry is the match that is shown: it must not be folded. */
export const OfEntry = createContext({ session: null, position: null, access: null, isPlain: false, isLive: false, sought: "" });

/** The share of an entry's bounds on Markdown that each of its texts has: an entry of many texts costs no more than one. */
export const TextShare = createContext(1);
