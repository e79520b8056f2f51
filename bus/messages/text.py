"""Extract the text of blocks, for people and for search. The provider's form builds the text for a model instead."""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import require_instance, require_text
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.content import Block, TextBlock, ToolResultBlock

__all__ = ("Reasoned", "blocks_text", "result_text", "split_reasoning")

_BLOCKS = "pass blocks, such as `message.content`"
_TAG = re.compile(r"<(/?)(think|thinking)>")


class Reasoned(NamedTuple):
    """A text without its reasoning, and the reasoning; `reasoning` is None if the text had none."""

    text: str
    reasoning: str | None


def blocks_text(blocks: Iterable[Block]) -> str:
    """Return the text of text blocks and tool results, joined without a separator.

    Source: `text()` of the first graph format (`GRAPH_V1` in `lanebus.codecs`).
    """
    require_instance("blocks", blocks, Iterable, _BLOCKS)
    parts: list[str] = []
    for block in blocks:
        match block:
            case TextBlock(text=text):
                parts.append(text)
            case ToolResultBlock(content=content, structured=structured):
                parts.append(result_text(content, structured))
            case _:
                require_instance("blocks", block, Wire, _BLOCKS)
    return "".join(parts)


def result_text(content: Iterable[Block], structured: JsonValue) -> str:
    """Return a tool result's text, or its JSON if it has no text."""
    text = blocks_text(content)
    return json.dumps(structured) if not text and structured is not None else text


def split_reasoning(text: str) -> Reasoned:
    """Separate a text from the reasoning in it, which some models write between `<think>` tags.

    Several passages of reasoning are joined by line breaks. A tag that is not closed is part of the text.

    Source: the second graph format (`GRAPH_V2` in `lanebus.codecs`).
    """
    require_text("text", text)
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
