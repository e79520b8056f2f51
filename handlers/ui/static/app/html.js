// Templates without a build step. What is put into one is text or a vnode: no code here writes HTML.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
