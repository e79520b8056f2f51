"""Any LLM lane makes a legal request to both of OpenAI's APIs, with all of its content."""

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.messages import AssistantMessage, TextBlock, ToolResultMessage
from lanebus.bus.wire import Envelope
from lanebus.context import Context
from lanebus.handlers.providers.options import ERROR_PREFIX
from lanebus.providers import ProviderRequest, RequestOptions, to_openai_chat, to_openai_responses
from tests.support.log.entries import folded
from tests.support.messages.lane_logs import CANARY, lane_logs
from tests.support.providers import openai_chat_rules, openai_responses_rules
from tests.support.suite.scale import examples

Wire = dict[str, JsonValue]

_options = st.fixed_dictionaries(
    {
        "model": st.just("m"),
        "foreign_thinking": st.sampled_from(["drop", "text"]),
        "store": st.sampled_from([None, False, True]),
    },
    optional={"merge_developer": st.booleans(), "stream": st.booleans(), "error_prefix": st.sampled_from(["", "E "])},
).map(lambda options: cast("RequestOptions", options))


@pytest.mark.full
@examples(300)
@given(lane_logs(), _options)
def test_every_context_gives_a_legal_chat_request_that_keeps_what_is_said(
    entries: list[Envelope], options: RequestOptions
) -> None:
    context = folded(entries)
    request = to_openai_chat(context, **options)
    openai_chat_rules.require_legal(request.body)
    assert CANARY not in json.dumps([request.body, request.warnings])
    messages = cast("list[Wire]", request.body["messages"])
    calls = [str(call["id"]) for message in messages for call in _listed(message.get("tool_calls"))]
    answers = [str(message["tool_call_id"]) for message in messages if message["role"] == "tool"]
    _require_pairs(context, request, calls, answers)
    _require_said(context, [text for message in messages for text in _texts(message.get("content"))], _prefix(options))


@pytest.mark.full
@examples(300)
@given(lane_logs(), _options)
def test_every_context_gives_a_legal_responses_request_that_keeps_what_is_said(
    entries: list[Envelope], options: RequestOptions
) -> None:
    context = folded(entries)
    request = to_openai_responses(context, **options)
    openai_responses_rules.require_legal(request.body)
    assert CANARY not in json.dumps([request.body, request.warnings])
    items = cast("list[Wire]", request.body["input"])
    calls = [str(item["call_id"]) for item in items if item["type"] == "function_call"]
    answers = [str(item["call_id"]) for item in items if item["type"] == "function_call_output"]
    _require_pairs(context, request, calls, answers)
    _require_said(
        context, [text for item in items for text in _texts(item.get("content", item.get("output")))], _prefix(options)
    )


def _prefix(options: RequestOptions) -> str:
    return options.get("error_prefix", ERROR_PREFIX)


def _require_pairs(context: Context, request: ProviderRequest, calls: list[str], answers: list[str]) -> None:
    """Each call of the context is on the wire, in order, and so is its result."""
    called = [
        call.id
        for message in context.messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls()
    ]
    results = [message.tool_call_id for message in context.messages if isinstance(message, ToolResultMessage)]
    assert [request.call_ids.get(call, call) for call in calls] == called
    assert [request.call_ids.get(call, call) for call in answers] == results
    assert calls == answers


def _require_said(context: Context, wire: list[str], prefix: str) -> None:
    """All texts are there, in their order, those of a failed result behind the prefix; between them may stand what a
    document or a result's JSON says."""
    remaining = iter(wire)
    for message in context.messages:
        heads = {"", prefix} if isinstance(message, ToolResultMessage) else {""}
        for block in message.content:
            if isinstance(block, TextBlock) and block.text:
                ways = {f"{head}{block.text}" for head in heads}
                assert any(text in ways for text in remaining), f"{block.text!r} is not where it belongs in {wire}"


def _texts(content: JsonValue) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(part["text"]) for part in _listed(content) if "text" in part]


def _listed(value: JsonValue) -> list[Wire]:
    return cast("list[Wire]", value) if isinstance(value, list) else []
