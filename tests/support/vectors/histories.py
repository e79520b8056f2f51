"""A case's messages as a context, for every system, and the paths that cases use for parts of a body."""

import json
import re
from collections.abc import Sequence
from typing import cast

from pydantic import JsonValue

from lanebus.agent import ToolSpec
from lanebus.bus.messages import (
    AssistantMessage,
    Publishable,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    read_llm,
)
from lanebus.codecs import universal_client_codec
from lanebus.context import Context
from tests.support.log.entries import asks, context_of
from tests.support.vectors.cases import Case, Object

__all__ = ("MODEL", "SYSTEM", "TOOL", "at", "blocks_of", "history")

MODEL = "m"
SYSTEM = SystemMessage(content=(TextBlock(text="be kind"),))
TOOL = ToolSpec("get_weather", "Tells the weather.", {"type": "object"})


def history(case: Case, *, author: str | None = None, first: Sequence[Publishable] = ()) -> Context:
    """Return the context of a case's messages, or of a question if it has none.

    Args:
        case: the case.
        author: provider of answers that do not name theirs; their model is then `MODEL`.
        first: messages before them.
    """
    values = cast("list[JsonValue]", case.given.get("messages", []))
    if not values:
        return context_of(*first, asks("hi"))
    if isinstance(values[0], list):
        return context_of(*first, *(_listed(value) for value in values))
    if any("kind" in block for value in values for block in blocks_of(value)):
        codec = universal_client_codec(provider=author, model=MODEL) if author else universal_client_codec()
        return context_of(*first, *codec.read_all(values))
    said = [read_llm(json.dumps(value)) for value in values]
    # A result without its call is left out of requests, so its call is put before it.
    alone = said[0] if isinstance(said[0], ToolResultMessage) else None
    call = ToolCallBlock(id=alone.tool_call_id, name=alone.tool_name or "") if alone else None
    return context_of(*first, *([AssistantMessage(content=(call,))] if call else []), *said)


def blocks_of(message: object) -> list[Object]:
    """Return the content of a message as JSON."""
    return cast("list[Object]", cast("Object", message)["content"])


def at(value: object, path: str) -> object:
    """Return the value at a path such as "messages[1].content[0].type"."""
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        value = cast("list[object]", value)[int(index)] if index else cast("Object", value)[name]
    return value


def _listed(value: JsonValue) -> Publishable:
    """Expand the short form of seed 003's cases: ["assistant", ["id:name", …]] and ["tool", id, text]."""
    match value:
        case ["assistant", list(calls)]:
            named = [str(call).split(":") for call in calls]
            return AssistantMessage(content=tuple(ToolCallBlock(id=call, name=name) for call, name in named))
        case ["tool", str(call), str(text)]:
            return ToolResultMessage(tool_call_id=call, content=(TextBlock(text=text),))
        case ["user", str(text)]:
            return UserMessage(content=(TextBlock(text=text),))
        case _:
            raise ValueError(f"no message in short: {value!r}")
