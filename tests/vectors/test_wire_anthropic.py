"""The sample cases of requests to Anthropic."""

import re
from typing import cast

import pytest

from lanebus.handlers.providers.anthropic import PLACEHOLDER
from lanebus.providers import ToolChoice, to_anthropic
from tests.support.providers.anthropic_rules import require_legal
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.histories import MODEL, SYSTEM, TOOL, at, history

__all__ = ()


@cases("wire_anthropic")
def test_the_request_says_what_the_case_says(case: Case) -> None:
    match case.expect:
        case {"wire": _} if "recommended" in cast("Object", case.expect["wire"]):
            assert _last(_body(case))["content"] == at(case.expect, "wire.recommended")
        case {"wire": _}:
            for path, value in cast("Object", case.expect["wire"]).items():
                _require(_body(case), path, value)
        case {"tool_choice": choice}:
            assert _body(case)["tool_choice"] == choice
        case {"keys_absent": keys}:
            assert not _body(case).keys() & set(cast("list[str]", keys))
        case _:
            pytest.fail("no such case")


def _require(body: Object, path: str, value: object) -> None:
    messages = _messages(body)
    match path:
        case "system" | "messages" | "max_tokens" | "system[0].cache_control.type":
            assert at(body, path) == value
        case "last_message":
            assert messages[-1] == value
        case "roles":
            assert [message["role"] for message in messages] == value
        case "last_block_types":
            assert [block["type"] for block in _content(messages[-1])] == value
        case "tool_use_ids":
            assert [block["tool_use_id"] for block in _content(messages[-1]) if "tool_use_id" in block] == value
        case "tool_result.content":
            assert _last(body)["content"] == value
        case "last_tool.cache_control.type":
            assert at(body, "tools[0].cache_control.type") == value
        case "second_to_last_message.last_block.cache_control.type":
            # Two messages of one role are one turn here: the mark stands where the first of them ends.
            assert at(body, "messages[0].content[0].cache_control.type") == value
            assert "cache_control" not in _last(body)
        case str() if re.match(r"messages\[\d+\]\.", path):
            assert at({"messages": _said(body)}, path) == value
        case _:
            pytest.fail("no such case")


def _body(case: Case) -> Object:
    """The request, with what the case asked beside its messages. A history of seed 004 thinks as Anthropic does."""
    wire = cast("Object", case.expect.get("wire", {}))
    cache = any("cache_control" in path for path in wire)
    chosen = cast("dict[str, str]", case.given.get("tool_choice", {}))
    choice = ToolChoice(chosen["mode"], chosen.get("tool_name")) if chosen else None  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # one of the four modes
    context = history(case, author="anthropic", first=[SYSTEM] if cache else [])
    tools = [TOOL] if cache or choice else []
    body: Object = {**to_anthropic(context, model=MODEL, tools=tools, tool_choice=choice, cache=cache).body}
    require_legal(body)
    return body


def _messages(body: Object) -> list[Object]:
    return cast("list[Object]", body["messages"])


def _said(body: Object) -> list[Object]:
    """The messages without ours, which the API wants before an assistant's and the originals leave out."""
    messages = _messages(body)
    return messages[1:] if messages[0]["content"] == [{"type": "text", "text": PLACEHOLDER}] else messages


def _content(message: Object) -> list[Object]:
    return cast("list[Object]", message["content"])


def _last(body: Object) -> Object:
    return _content(_messages(body)[-1])[-1]
