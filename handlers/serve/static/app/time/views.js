// The views of a session beside its log. They are loaded together, when the first of them is opened.
export { CompareView } from "./compare_view.js";
export { ContextView } from "./context_view.js";
export { TimelineView } from "./timeline_view.js";
