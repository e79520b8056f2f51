"""The text of blocks, for people and for search. What a model reads is made by its provider's form alone."""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.messages.content import Block, TextBlock, ToolResultBlock

__all__ = ("Reasoned", "blocks_text", "result_text", "split_reasoning")

_TAG = re.compile(r"<(/?)(think|thinking)>")


class Reasoned(NamedTuple):
    """A text, and the reasoning that was written into it."""

    text: str
    reasoning: str | None


def blocks_text(blocks: Iterable[Block]) -> str:
    """The text of text blocks and of tool results, with nothing between them.

    Source: seed 002, `text()`.
    """
    parts: list[str] = []
    for block in blocks:
        match block:
            case TextBlock(text=text):
                parts.append(text)
            case ToolResultBlock(content=content, structured=structured):
                parts.append(result_text(content, structured))
            case _:
                continue
    return "".join(parts)


def result_text(content: Iterable[Block], structured: JsonValue) -> str:
    """The text of a tool's result; its JSON where it has no text."""
    text = blocks_text(content)
    return json.dumps(structured) if not text and structured is not None else text


def split_reasoning(text: str) -> Reasoned:
    """A text without what some models think aloud between `<think>` tags, and that apart; None if there is nothing.

    Several such places are joined by a line break. A tag that is never closed is text.

    Source: seed 003's code.
    """
    said, thoughts = list[str](), list[str]()
    end, opened = 0, None
    closing = {name: text.rfind(f"</{name}>") for name in ("think", "thinking")}
    for tag in _TAG.finditer(text):
        is_end, name = bool(tag[1]), tag[2]
        if opened is None and not is_end and closing[name] > tag.start():
            opened = tag
        elif opened is not None and is_end and name == opened[2]:
            said.append(text[end : opened.start()])
            thoughts.append(text[opened.end() : tag.start()].strip())
            end, opened = tag.end(), None
    if not thoughts:
        return Reasoned(text, None)
    return Reasoned("".join([*said, text[end:]]).strip(), "\n".join(filter(None, thoughts)) or None)
