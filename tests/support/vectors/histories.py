"""A case's messages as a context, whichever system wrote them, and the paths by which a case names parts of a body."""

import json
import re
from collections.abc import Sequence
from typing import cast

from pydantic import JsonValue

from lanebus.agent import ToolSpec
from lanebus.bus.messages.content import TextBlock, ToolCallBlock
from lanebus.bus.messages.json_reader import Publishable, read_llm
from lanebus.bus.messages.message import AssistantMessage, SystemMessage, ToolResultMessage, UserMessage
from lanebus.codecs import universal_client_codec
from lanebus.context import Context
from tests.support.log.entries import asks, context_of
from tests.support.vectors.cases import Case, Object

__all__ = ("MODEL", "SYSTEM", "TOOL", "at", "blocks_of", "history")

MODEL = "m"
SYSTEM = SystemMessage(content=(TextBlock(text="be kind"),))
TOOL = ToolSpec("get_weather", "Tells the weather.", {"type": "object"})


def history(case: Case, *, author: str | None = None, first: Sequence[Publishable] = ()) -> Context:
    """The context of a case's messages; of a question where it has none.

    Args:
        author: the provider of the answers that do not name theirs, whose model is then `MODEL`.
        first: what stands before them.
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
    # A result by itself answers nothing, and is left out: its call goes before it.
    alone = said[0] if isinstance(said[0], ToolResultMessage) else None
    call = ToolCallBlock(id=alone.tool_call_id, name=alone.tool_name or "") if alone else None
    return context_of(*first, *([AssistantMessage(content=(call,))] if call else []), *said)


def blocks_of(message: object) -> list[Object]:
    """The content of a message in JSON."""
    return cast("list[Object]", cast("Object", message)["content"])


def at(value: object, path: str) -> object:
    """What stands at a path such as "messages[1].content[0].type"."""
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        value = cast("list[object]", value)[int(index)] if index else cast("Object", value)[name]
    return value


def _listed(value: JsonValue) -> Publishable:
    """Seed 003's cases in short: ["assistant", ["id:name", …]] and ["tool", id, text]."""
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
