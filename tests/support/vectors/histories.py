"""The messages of cases: in our own JSON and as contexts; and the paths that cases use for parts of a body."""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Sequence
from typing import cast

from pydantic import JsonValue

from lanebus.agent import ToolSpec
from lanebus.bus.messages import (
    AssistantMessage,
    DeveloperMessage,
    ExtensionMessage,
    LlmMessage,
    Publishable,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    parse_json,
    read_llm,
)
from lanebus.bus.wire import encode
from lanebus.codecs import UNIVERSAL_CLIENT, universal_client_codec
from lanebus.context import Context
from lanebus.messages import read_message
from tests.support.log.entries import asks, context_of
from tests.support.vectors.cases import Case, Object

__all__ = (
    "MODEL",
    "SYSTEM",
    "TOOL",
    "Json",
    "answering",
    "at",
    "blocks_of",
    "dumped",
    "history",
    "is_merged",
    "native",
    "read_all",
    "with_data",
    "without_arguments_text",
)
Json = dict[str, JsonValue]


def native(value: object) -> LlmMessage | ExtensionMessage:
    """Return the message, of either lane."""
    message = read_message(json.dumps(value))
    assert isinstance(message, LlmMessage | ExtensionMessage)
    return message


def dumped(message: LlmMessage | ExtensionMessage) -> JsonValue:
    """Return the JSON that the log stores."""
    return parse_json(encode(message))


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


def read_all(messages: list[JsonValue]) -> list[LlmMessage]:
    """Return messages of seed 004, whose blocks have a kind, or else messages in the native form."""
    return [message for value in messages for message in _read(value)]


def answering(messages: list[LlmMessage]) -> tuple[Context, bool]:
    """Return the context, and whether calls were added. A result without a call gets one, or requests would omit it."""
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    called = {block.id for message in messages for block in message.content if isinstance(block, ToolCallBlock)}
    calls = [ToolCallBlock(id=result.tool_call_id, name="tool") for result in results]
    missing = tuple(call for call in calls if call.id not in called)
    before = [AssistantMessage(content=missing)] if missing else []
    return context_of(*before, *messages), bool(missing)


def is_merged(messages: list[LlmMessage], expect: Object) -> bool:
    """Return whether the case wants a developer's instructions sent as the system's, which is one of our options."""
    return any(isinstance(message, DeveloperMessage) for message in messages) and "developer" not in json.dumps(expect)


def with_data(case: Case) -> tuple[dict[str, JsonValue], Object]:
    """Return the input and the expected output, with real base64 in place of the case's placeholders."""
    text = json.dumps([case.given, case.expect])
    for word in _words(json.loads(text)):
        text = text.replace(word, base64.b64encode(word.encode()).decode())
    given, expect = json.loads(text)
    return given, expect


def without_arguments_text(call: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the call with its arguments parsed, because the spacing of their text does not matter."""
    arguments = call.get("arguments")
    return {**call, "arguments": json.loads(arguments)} if isinstance(arguments, str) else call


def _read(value: JsonValue) -> list[LlmMessage]:
    blocks = value.get("content") if isinstance(value, dict) else None
    if isinstance(blocks, list) and any(isinstance(block, dict) and "kind" in block for block in blocks):
        found = UNIVERSAL_CLIENT.read(value)
    else:
        found = [read_llm(json.dumps(value))]
    return [message for message in found if isinstance(message, LlmMessage)]


def _words(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _words(item)
    if isinstance(value, dict):
        for name, item in cast("dict[str, object]", value).items():
            if name in {"data", "data_base64"} and isinstance(item, str) and not _is_base64(item):
                yield item
                return
            yield from _words(item)


def _is_base64(text: str) -> bool:
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        return False
    return True
