// Formats numbers, times and texts. Pure.

const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const count = (number) => whole.format(number);

export const tokens = (number) => ((number ?? 0) < 10_000 ? whole.format(number ?? 0) : compact.format(number));

/** Format the total of a cost in US dollars, which comes as exact decimal text. An unknown cost is a dash. */
export function money(cost) {
  if (cost === null || cost === undefined) return "–";
  const dollars = Number(cost.total);
  if (dollars === 0) return "$0";
  return `$${dollars.toFixed(dollars < 0.01 ? 5 : dollars < 1 ? 4 : 2)}`;
}

export const time = (seconds) => clock.format(new Date(seconds * 1000));

export const dateTime = (seconds) => full.format(new Date(seconds * 1000));

export function ago(seconds, now) {
  const past = Math.max(0, now - seconds);
  if (past < 5) return "now";
  if (past < 60) return `${Math.floor(past)} s`;
  if (past < 3600) return `${Math.floor(past / 60)} min`;
  if (past < 86_400) return `${Math.floor(past / 3600)} h`;
  return `${Math.floor(past / 86_400)} d`;
}

export function bytes(size) {
  if (size < 1000) return `${size} B`;
  return size < 1_000_000 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1_000_000).toFixed(1)} MB`;
}

const graphemes = new Intl.Segmenter();

/** Return the start of a text, of at most `most` UTF-16 units, that ends at the end of what people see as a character. */
export function cut(text, most) {
  if (text.length <= most) return text;
  // Only a part is taken apart: a text may have megabytes, and no character that people write is this long.
  const from = Math.max(0, most - 128);
  return text.slice(0, from + graphemes.segment(text.slice(from, most + 128)).containing(most - from).index);
}

// A blank Braille pattern, a filler of Khitan letters and an empty head of a note have no ink, but no property says so.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\u{16FE4}\u{1D159}]/gu;

/** Write characters that cannot be seen, or that change the order of others, as their code: `⟨U+202E⟩`. */
export const visible = (text) =>
  String(text).replace(UNSEEN, (one) => (one === "\n" ? one : `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`));

/** Format JSON for people, short values in one line. */
export function pretty(value) {
  const line = JSON.stringify(value);
  return line === undefined || line.length <= 72 ? (line ?? "") : JSON.stringify(value, null, 2);
}

/** Return the decoded size of base64 text, in bytes. */
export const base64Size = (text) => Math.floor((text.length * 3) / 4);

/** Format a duration in seconds. */
export function seconds(took) {
  if (took < 1) return `${Math.max(0, Math.round(took * 1000))} ms`;
  if (took < 60) return `${took.toFixed(1)} s`;
  const rounded = Math.round(took);
  return took < 3600 ? `${Math.floor(rounded / 60)} min ${rounded % 60} s` : `${Math.floor(rounded / 3600)} h ${Math.floor((rounded % 3600) / 60)} min`;
}

/** How far the server has read the sessions: `{sessions, read}` in words. */
export const readText = ({ sessions, read }) => `${count(read)} of ${count(sessions)} ${sessions === 1 ? "session" : "sessions"} read`;
