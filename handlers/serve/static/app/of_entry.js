// What the parts of an entry need to know: its session, its position and what the user may and wants to see.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { visible } from "./format.js";

/**
 * `tool` is the name of the tool that an answer is about, if it is known. `sought` is the text that the user looks for, if this
 * entry is the match that is shown: it must not be folded. Parts unfold in layout effects, so that all of them are unfolded in
 * the next frame.
 */
export const OfEntry = createContext({ session: null, position: null, tool: null, access: null, isPlain: false, isLive: false, sought: "" });

/** Whether invisible characters are written as codes below here: a person judges a call by its arguments. */
export const Exact = createContext(false);

const asIs = (text) => text;
const withTabs = (text) => text.split("\t").map(visible).join("\t");

/** Return the function that texts pass through before they are drawn. Tabs stay: code is indented with them. */
export const useExact = () => (useContext(Exact) ? withTabs : asIs);

/** The share of an entry's bounds on Markdown that each of its texts has: an entry of many texts costs no more than one. */
export const TextShare = createContext(1);
