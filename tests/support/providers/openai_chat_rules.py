"""Check whether Chat Completions accepts a body: the SDK's types, then rules that types cannot express."""

import re
from collections.abc import Iterator
from typing import cast

from tests.support.providers.openai_rules import (
    Object,
    argument_faults,
    base64_faults,
    image_faults,
    list_of,
    name_faults,
    offer_faults,
    pdf_or_file_faults,
)
from tests.support.providers.sdk_types import body_faults

__all__ = ("require_legal", "rule_faults", "shape_faults")
_END: Object = {"role": "end"}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")


def require_legal(body: object) -> None:
    """Fail with a list of all faults of the body."""
    faults = shape_faults(body) or rule_faults(body)
    assert not faults, "\n".join(faults)


def shape_faults(body: object) -> list[str]:
    """Return where the body violates the SDK's types or JSON."""
    from openai.types.chat.completion_create_params import (
        CompletionCreateParamsNonStreaming,
        CompletionCreateParamsStreaming,
    )

    return body_faults(body, CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming)


def rule_faults(body: object) -> list[str]:
    """Return what the API refuses although the types allow it. The body must have no shape faults."""
    fields = cast("Object", body)
    messages = list_of(fields["messages"])
    faults = [] if messages else ["messages: empty"]
    if cast("int", fields.get("max_completion_tokens", 1)) < 1:
        faults.append("max_completion_tokens: less than 1")
    if "stream_options" in fields and not fields.get("stream"):
        faults.append("stream_options: it is no stream")
    faults += [f"{old}: deprecated" for old in ("max_tokens", "functions", "function_call") if old in fields]
    for index, message in enumerate(messages):
        faults += [f"messages.{index}: {fault}" for fault in _message_faults(message)]
    tools = [cast("Object", tool.get("function", {})).get("name") for tool in list_of(fields.get("tools"))]
    choice = fields.get("tool_choice")
    named = cast("Object", choice).get("function") if isinstance(choice, dict) else None
    offer = offer_faults(tools, fields.get("tool_choice"), cast("Object", named).get("name") if named else None)
    return [*faults, *offer, *_pairing_faults(messages)]


def _message_faults(message: Object) -> Iterator[str]:
    match message["role"]:
        case "assistant":
            calls = list_of(message.get("tool_calls"))
            if not calls and not message.get("content"):
                yield "an answer that says nothing"
            if "tool_calls" in message and not calls:
                yield "tool_calls: empty"
            if "function_call" in message:
                yield "function_call: deprecated"
            for call in calls:
                yield from _call_faults(call)
        case "function":
            yield "a role of old"
        case "system" | "developer" if not message["content"]:
            yield "instructions that say nothing"
        case _:
            pass
    if message.get("content") == []:
        yield "content: empty"
    for part in list_of(message.get("content")):
        yield from _part_faults(part)


def _call_faults(call: Object) -> Iterator[str]:
    if not _ID.fullmatch(str(call["id"])):
        yield f"illegal id {call['id']!r}"
    if call["type"] != "function":
        yield "a call of a tool that was never offered"
        return
    function = cast("Object", call["function"])
    yield from name_faults(function["name"])
    yield from argument_faults(function["arguments"])


def _part_faults(part: Object) -> Iterator[str]:
    match part:
        case {"type": "text", "text": ""}:
            yield "an empty text"
        case {"type": "image_url"}:
            yield from image_faults(cast("Object", part["image_url"])["url"])
        case {"type": "input_audio"}:
            yield from base64_faults(str(cast("Object", part["input_audio"])["data"]))
        case {"type": "file"}:
            yield from pdf_or_file_faults(cast("Object", part["file"]), only_pdf=True)
        case _:
            pass


def _pairing_faults(messages: list[Object]) -> Iterator[str]:
    """Check that each call is followed by its result, in the order of the calls, before any other message."""
    used: set[str] = set()
    called: list[str] = []
    for index, message in enumerate([*messages, _END]):
        if message["role"] == "tool":
            if called[:1] != [message["tool_call_id"]]:
                yield f"messages.{index}: {message['tool_call_id']} answers none of {called}"
            called = called[1:]
            continue
        if called:
            yield f"messages.{index}: {called} have no results"
        called = [str(call["id"]) for call in list_of(message.get("tool_calls"))]
        for call in called:
            if call in used:
                yield f"messages.{index}: id {call} is used twice"
            used.add(call)
