"""Cut long texts: at a length without cutting a character that people see, or in the middle. Pure."""

import unicodedata
from itertools import takewhile

from lanebus.bus.messages import Block, LlmMessage, TextBlock, ToolResultMessage

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


# Cut long tool outputs in the middle. Pure; the text is from the `two-lane-agent` system.


def head_and_tail(text: str, most_lines: int) -> str:
    """Return the text. If it has more than `most_lines` lines, replace the lines in the middle by a note."""
    lines = text.splitlines()
    if len(lines) <= most_lines:
        return text
    head, tail = lines[: most_lines // 2], lines[len(lines) - (most_lines - most_lines // 2) :]
    cut = len(lines) - most_lines
    return "\n".join(head) + f"\n\n[... {cut} lines truncated ...]\n\n" + "\n".join(tail)


def truncated(message: LlmMessage, most_lines: int) -> LlmMessage:
    """Return a tool result with its long texts cut by `head_and_tail`, and any other message unchanged.

    If a text is cut, `structured` is None in the result.
    """
    if not isinstance(message, ToolResultMessage):
        return message
    content = tuple(_cut_block(block, most_lines) for block in message.content)
    if content == message.content:
        return message
    # The structured result is dropped, because it would still hold the whole output.
    return message.model_copy(update={"content": content, "structured": None})


def _cut_block(block: Block, most_lines: int) -> Block:
    if not isinstance(block, TextBlock):
        return block
    text = head_and_tail(block.text, most_lines)
    return block if text == block.text else block.model_copy(update={"text": text})
