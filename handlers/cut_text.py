"""Cut a text to a length without cutting a character that people see. Pure."""

import unicodedata
from itertools import takewhile

__all__ = ("cut_text",)

_JOINER = "\u200d"
"""joins the characters on both sides, such as those of a family emoji"""


def cut_text(text: str, length: int) -> str:
    """Return the longest start of at most `length` code points that does not end within a character.

    Marks, joined consonants and emoji, skin tones and flags stay whole. A character longer than `length` is left out.
    """
    if len(text) <= length:
        return text
    while length > 0 and _is_within(text, length):
        length -= 1
    return text[:length]


def _is_within(text: str, place: int) -> bool:
    """Return whether a place between two code points is within one character."""
    before, after = text[place - 1], text[place]
    joins = before == _JOINER or unicodedata.combining(before) == 9  # class 9 joins two consonants, as in Devanagari
    if joins or _extends(after):
        return True
    if not (_is_regional(before) and _is_regional(after)):
        return False
    return len([*takewhile(_is_regional, reversed(text[:place]))]) % 2 == 1  # two of them are a flag


def _extends(character: str) -> bool:
    if "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7fb" or character in "\u0e33\u0eb3":
        return True  # vowels and finals of Hangul, and the Thai and Lao vowel AM: letters that continue a character
    is_skin_or_tag = "\U0001f3fb" <= character <= "\U0001f3ff" or "\U000e0020" <= character <= "\U000e007f"
    return character == _JOINER or is_skin_or_tag or unicodedata.category(character) in {"Mn", "Me", "Mc"}


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
