"""Shared by the sample cases of OpenAI's two APIs: reading their messages, and replacing placeholder data."""

import base64
import binascii
import json
from collections.abc import Iterator
from typing import cast

from pydantic import JsonValue

from lanebus.bus.messages import (
    AssistantMessage,
    DeveloperMessage,
    LlmMessage,
    ToolCallBlock,
    ToolResultMessage,
    read_llm,
)
from lanebus.codecs import UNIVERSAL_CLIENT
from lanebus.context import Context
from tests.support.log.entries import context_of
from tests.support.vectors.cases import Case, Object

__all__ = ("answering", "is_merged", "read_all", "with_data", "without_arguments_text")


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
