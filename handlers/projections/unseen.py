"""Characters that people cannot see, or that change what they see of others. Pure."""

import re

# Characters that a terminal obeys, that change the order of others, that have no ink, that end a line, or whose form is
# known only to a font. `UNSEEN` in the page's format.js names the same ones by their properties: a test compares them.
_UNSEEN = (
    "\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5"
    "\u180b-\u180f\u200b\u200e-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\uf8ff\ufe00-\ufe0e\ufeff"
    "\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U000fffff\U00100000-\U0010ffff"
)
_JOINERS = "\u200c\u200d"
_AS_PICTURE = "\ufe0f"
# Scripts and pictures that are written with joiners, which only there are no means to hide something.
_JOINED = "\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17ff\u2600-\u27bf\ufe0f\U0001f000-\U0001faff"
_PICTURES = "#*0-9\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"

UNSAFE = re.compile(f"[{_UNSEEN}{_JOINERS}{_AS_PICTURE}]")
"""any such character, for JSON, where each of them can be escaped"""
UNSAFE_IN_TEXT = re.compile(
    f"[{_UNSEEN}]|(?<![{_JOINED}])[{_JOINERS}]|[{_JOINERS}](?![{_JOINED}])|(?<![{_PICTURES}]){_AS_PICTURE}"
)
"""any such character where it can hide something: joiners are left where a script or picture needs them"""


def with_codes(text: str) -> str:
    """Return text with each such character as its code, `⟨U+202E⟩`, as the page writes it."""
    return UNSAFE_IN_TEXT.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)
