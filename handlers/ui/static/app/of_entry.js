// What the parts of an entry need to know: its session, its position and what the user may and wants to see.
import { createContext } from "preact";

export const OfEntry = createContext({ session: null, position: null, access: null, isPlain: false, isLive: false });
