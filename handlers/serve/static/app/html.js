// Templates without a build step. Inserted values are text or virtual nodes: no code writes HTML.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
