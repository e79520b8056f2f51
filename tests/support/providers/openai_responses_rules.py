"""Check whether the Responses API accepts a body: the SDK's types, then rules that types cannot express."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import cast

from tests.support.providers.openai_rules import (
    Object,
    argument_faults,
    image_faults,
    list_of,
    name_faults,
    offer_faults,
    pdf_or_file_faults,
)
from tests.support.providers.sdk_types import body_faults

__all__ = ("require_legal", "rule_faults", "shape_faults")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_END: Object = {"type": "end"}


def require_legal(body: object) -> None:
    """Fail with a list of all faults of the body."""
    faults = shape_faults(body) or rule_faults(body)
    assert not faults, "\n".join(faults)


def shape_faults(body: object) -> list[str]:
    """Return where the body violates the SDK's types or JSON."""
    from openai.types.responses.response_create_params import (
        ResponseCreateParamsNonStreaming,
        ResponseCreateParamsStreaming,
    )

    return body_faults(body, ResponseCreateParamsNonStreaming, ResponseCreateParamsStreaming)


def rule_faults(body: object) -> list[str]:
    """Return what the API refuses although the types allow it. The body must have no shape faults."""
    fields = cast("Object", body)
    items = list_of(fields.get("input"))
    faults = [] if items else ["input: empty"]
    faults += ["model: missing"] if not fields.get("model") else []
    if cast("int", fields.get("max_output_tokens", 1)) < 1:
        faults.append("max_output_tokens: less than 1")
    if fields.get("instructions") == "":
        faults.append("instructions: empty")
    for index, item in enumerate(items):
        faults += [f"input.{index}: {fault}" for fault in _item_faults(item, stored=fields.get("store") is not False)]
    tools = [tool.get("name") for tool in list_of(fields.get("tools"))]
    choice = fields.get("tool_choice")
    named = cast("Object", choice).get("name") if isinstance(choice, dict) else None
    return [
        *faults,
        *offer_faults(tools, fields.get("tool_choice"), named),
        *_pairing_faults(items),
        *_order_faults(items),
    ]


def _item_faults(item: Object, *, stored: bool) -> Iterator[str]:
    match item:
        case {"type": "message", "role": str(role)}:
            yield from _message_faults(item, role)
        case {"type": "function_call"}:
            if not _ID.fullmatch(str(item["call_id"])):
                yield f"illegal id {item['call_id']!r}"
            if not str(item.get("id", "fc_")).startswith("fc_"):
                yield f"{item['id']!r} is no id of OpenAI's"
            yield from name_faults(item["name"])
            yield from argument_faults(item["arguments"])
        case {"type": "function_call_output"}:
            if item["output"] == []:
                yield "output: empty"
            for part in list_of(item["output"]):
                yield from _part_faults(part)
        case {"type": "reasoning"}:
            if not str(item["id"]).startswith("rs_"):
                yield f"{item['id']!r} is no id of OpenAI's"
            if not item.get("encrypted_content") and not stored:
                yield "reasoning that nobody has kept"
        case _:
            yield f"an item that is never sent: {item.get('type')}"


def _message_faults(item: Object, role: str) -> Iterator[str]:
    parts = list_of(item["content"])
    if not parts:
        yield "content: empty"
    prefix = "output_" if role == "assistant" else "input_"
    if role == "assistant" and not str(item.get("id")).startswith("msg_"):
        yield f"{item.get('id')!r} is no id of OpenAI's"
    for part in parts:
        if not str(part["type"]).startswith(prefix) and part["type"] != "refusal":
            yield f"a {part['type']} from the {role}"
        if role in {"system", "developer"} and part["type"] != "input_text":
            yield "instructions are text"
        yield from _part_faults(part)


def _part_faults(part: Object) -> Iterator[str]:
    match part:
        case {"type": "input_text" | "output_text", "text": ""}:
            yield "an empty text"
        case {"type": "input_image"}:
            if bool(part.get("image_url")) == bool(part.get("file_id")):
                yield "an image in no place or in two"
            elif part.get("image_url"):
                yield from image_faults(part["image_url"])
        case {"type": "input_file"}:
            yield from pdf_or_file_faults(part, only_pdf=False)
        case _:
            pass


def _pairing_faults(items: list[Object]) -> Iterator[str]:
    """Check that an answer's calls are followed by their outputs, in the order of the calls, before any other item."""
    used: set[object] = set()
    called: list[object] = []
    answering = False
    for index, item in enumerate([*items, _END]):
        match item:
            case {"type": "function_call_output"}:
                if called[:1] != [item.get("call_id")]:
                    yield f"input.{index}: {item.get('call_id')} answers none of {called}"
                called, answering = called[1:], True
            case {"type": "function_call"}:
                if item["call_id"] in used:
                    yield f"input.{index}: id {item['call_id']} is used twice"
                used.add(item["call_id"])
                called.append(item["call_id"])
            case _:
                pass
        if called and (answering or item is _END or item.get("role") in {"user", "system", "developer"}):
            if item.get("type") != "function_call_output":
                yield f"input.{index}: {called} have no output"
        else:
            answering = False


def _order_faults(items: list[Object]) -> Iterator[str]:
    said = [item["id"] for item in items if "id" in item]
    if len(set(said)) != len(said):
        yield "input: an id twice"
    for index, (item, following) in enumerate(pairwise([*items, _END])):
        followed = following["type"] in {"reasoning", "function_call"} or following.get("role") == "assistant"
        if item["type"] == "reasoning" and not followed:
            yield f"input.{index}: reasoning without what it led to"
