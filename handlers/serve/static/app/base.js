// Where the server is: "", or the path below which a proxy serves it, such as "/lanebus".
export const BASE = new URL("../..", import.meta.url).pathname.replace(/\/$/, "");
