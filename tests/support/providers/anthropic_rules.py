"""Check whether Anthropic's Messages API accepts a body: the SDK's types, then rules that types cannot express."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import cast

from tests.support.providers.sdk_types import body_faults

__all__ = ("require_legal", "rule_faults", "shape_faults")
Object = dict[str, object]
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SAYS = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "web_search_tool_result"},
}


def require_legal(body: object) -> None:
    """Fail with a list of all faults of the body."""
    faults = shape_faults(body) or rule_faults(body)
    assert not faults, "\n".join(faults)


def shape_faults(body: object) -> list[str]:
    """Return where the body violates the SDK's types or JSON."""
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming

    return body_faults(body, MessageCreateParamsNonStreaming, MessageCreateParamsStreaming)


def rule_faults(body: object) -> list[str]:
    """Return what the API refuses although the types allow it. The body must have no shape faults."""
    fields = cast("Object", body)
    messages = cast("list[Object]", fields["messages"])
    turns = [(str(message["role"]), _blocks(message["content"])) for message in messages]
    faults = [f"system.{index}: blank text" for index, block in enumerate(_blocks(fields.get("system", [])))
              if _is_blank(block)]  # fmt: skip
    if cast("int", fields["max_tokens"]) < 1:
        faults.append("max_tokens: less than 1")
    if not turns or turns[0][0] != "user":
        faults.append("messages: the first is not a user's")
    faults += [f"messages.{at}: {turns[at][0]} twice in a row" for at in range(1, len(turns))
               if turns[at][0] == turns[at - 1][0]]  # fmt: skip
    for index, (role, blocks) in enumerate(turns):
        if not blocks:
            faults.append(f"messages.{index}: empty")
        for block in blocks:
            if block["type"] not in _SAYS.get(role, set()):
                faults.append(f"messages.{index}: a {block['type']} from the {role}")
            faults += [f"messages.{index}: {fault}" for fault in _block_faults(block)]
    return [*faults, *_pairing_faults(turns), *_end_faults(turns)]


def _pairing_faults(turns: list[tuple[str, list[Object]]]) -> Iterator[str]:
    used: set[str] = set()
    called: list[str] = []
    for index, (role, blocks) in enumerate([*turns, ("user", [])]):
        kinds = [block["type"] == "tool_result" for block in blocks]
        answered = [str(block["tool_use_id"]) for block in blocks if block["type"] == "tool_result"]
        if answered != called:
            yield f"messages.{index}: calls {called} are answered by {answered}"
        if sorted(kinds, reverse=True) != kinds:
            yield f"messages.{index}: a result does not stand first"
        called = [str(block["id"]) for block in blocks if block["type"] == "tool_use"] if role == "assistant" else []
        for call in called:
            if call in used:
                yield f"messages.{index}: id {call} is used twice"
            used.add(call)


def _end_faults(turns: list[tuple[str, list[Object]]]) -> Iterator[str]:
    for index, (role, blocks) in enumerate(turns):
        if role == "assistant" and blocks and "thinking" in str(blocks[-1]["type"]):
            yield f"messages.{index}: ends with thinking"
    if turns and turns[-1][0] == "assistant" and turns[-1][1]:
        text = turns[-1][1][-1].get("text")
        if isinstance(text, str) and text != text.rstrip():
            yield "messages: the last one ends with white space"


def _block_faults(block: Object) -> Iterator[str]:
    if _is_blank(block):
        yield "blank text"
    match block:
        case {"type": "tool_use", "id": str(call), "name": str(name)}:
            if not _ID.fullmatch(call):
                yield f"illegal id {call!r}"
            if not _NAME.fullmatch(name):
                yield f"illegal tool name {name!r}"
        case {"type": "tool_result"}:
            content = _blocks(block.get("content", []))
            if block.get("is_error") and not block.get("content"):
                yield "an error without content"
            if block.get("is_error") and any(inner["type"] != "text" for inner in content):
                yield "an error with something else than text"
            for inner in content:
                if inner["type"] not in {"text", "image", "document"}:
                    yield f"a {inner['type']} in a result"
                if not isinstance(block["content"], str):
                    yield from _block_faults(inner)
        case {"type": "thinking", "signature": ""}:
            yield "thinking without a signature"
        case {"source": dict()}:
            yield from _source_faults(cast("Object", block["source"]))
        case _:
            pass


def _source_faults(source: Object) -> Iterator[str]:
    match source:
        case {"type": "base64", "data": str(data)}:
            try:
                binascii.a2b_base64(data, strict_mode=True)
                base64.b64decode(data, validate=True)
            except binascii.Error:
                yield "not base64"
        case {"type": "url", "url": str(url)} if not url.startswith(("http://", "https://")):
            yield f"not a web URL: {url}"
        case {"type": "text", "data": str(data)} if not data.strip():
            yield "a document without text"
        case _:
            pass


def _blocks(content: object) -> list[Object]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else cast("list[Object]", content)


def _is_blank(block: Object) -> bool:
    text = block.get("text") if block["type"] == "text" else "text"
    return not str(text).strip()
