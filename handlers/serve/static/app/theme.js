// Light or dark: the system's choice, or the user's, which is kept.
const KEY = "lanebus.theme";
const NAMES = ["system", "light", "dark"];

/** Return "system", "light" or "dark". */
export function getTheme() {
  const kept = localStorage.getItem(KEY);
  return NAMES.includes(kept) ? kept : "system";
}

/** Draw the page in a theme. */
export function applyTheme(theme = getTheme()) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** Choose the next theme, keep it, and return it. */
export function nextTheme() {
  const theme = NAMES[(NAMES.indexOf(getTheme()) + 1) % NAMES.length];
  if (theme === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme);
  applyTheme(theme);
  return theme;
}
