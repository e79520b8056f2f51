"""Any LLM lane makes a legal request to each provider, with all of its content."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus.agent import ToolSpec
from lanebus.bus.messages import (
    AnnotationRef,
    AssistantMessage,
    ExtensionMessage,
    ImageBlock,
    MediaRef,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from lanebus.bus.wire import Envelope
from lanebus.context import Context, build_context, evolve
from lanebus.providers import ContentRefused, RequestOptions, ToolChoice, ToolNotOffered
from tests.support.log.entries import ListedSession, asks, calls, context_of, folded, results
from tests.support.messages.lane_logs import CANARY, lane_logs
from tests.support.providers.forms import FORMS
from tests.support.providers.gemini_rules import signature_faults
from tests.support.suite.scale import SCALE, examples, randomness
from tests.support.transcripts.real_session import real_log

__all__ = ()

Object = dict[str, object]
Step = tuple[str, int]

_TOOLS = (ToolSpec("read", "Reads.", {"type": "object"}), ToolSpec("fs.read", "Reads, too.", {"type": "object"}))
_OPTIONS: list[RequestOptions] = [
    {"model": "m"},
    {"model": "m", "foreign_thinking": "text", "tools": _TOOLS, "cache": True},
    {"model": "m", "stream": True, "max_tokens": 7, "error_prefix": ""},
]


@pytest.mark.full
@pytest.mark.parametrize("name", FORMS)
@examples(150)
@given(entries=lane_logs(), options=st.sampled_from(_OPTIONS))
def test_every_context_is_a_legal_request_without_private_things(
    name: str, entries: list[Envelope], options: RequestOptions
) -> None:
    request = FORMS[name].to(folded(entries), **options)
    FORMS[name].require_legal(request.body)
    assert name != "gemini" or not signature_faults(request.body)
    assert CANARY not in json.dumps([request.body, request.warnings])
    assert "terminate" not in json.dumps(request.body)


@pytest.mark.full
@pytest.mark.parametrize("name", FORMS)
@examples(150)
@given(entries=lane_logs())
def test_every_call_stands_with_its_result_and_every_text_in_its_order(name: str, entries: list[Envelope]) -> None:
    context = folded(entries)
    body: Object = {**FORMS[name].to(context, model="m").body}
    said = list(_said(name, cast("list[Object]", body[FORMS[name].said])))
    assert _steps(said) == _expected_steps(context)
    # A summary of thinking or of a document may stand between them; what was said may not be missing.
    remaining = iter([str(one["text"]).strip() for one in said if "text" in one])
    assert [text for text in _expected_texts(context) if text not in remaining] == []


@pytest.mark.parametrize("name", FORMS)
async def test_extension_messages_are_never_sent(name: str) -> None:
    said = ExtensionMessage.of("notification", {"text": CANARY})
    session = ListedSession(asks("a"), said, calls("x"), said, results("x", "1"), said)
    request = FORMS[name].to(await build_context(session), model="m")
    FORMS[name].require_legal(request.body)
    assert CANARY not in json.dumps(request.body)


@pytest.mark.parametrize("name", FORMS)
def test_thinking_that_cannot_go_back_is_one_warning(name: str) -> None:
    thought = AssistantMessage(content=(ThinkingBlock(text="hm"), TextBlock(text="b")), provider="p", model="m")
    redacted = AssistantMessage(content=(RedactedThinkingBlock(data="xx"), TextBlock(text="c")))
    request = FORMS[name].to(context_of(asks("a"), thought, asks("d"), redacted), model="m", strict=True)
    assert [warning.partition(": it ")[0] for warning in request.warnings] == [
        "messages.1 and 1 more: thinking left out"
    ]
    as_text = FORMS[name].to(context_of(asks("a"), thought), model="m", foreign_thinking="text")
    assert "[Reasoning] hm" in json.dumps(as_text.body)
    assert as_text.warnings == ()


@pytest.mark.parametrize("name", FORMS)
def test_a_choice_of_a_tool_that_is_not_offered_is_refused_by_its_name_and_those_offered(name: str) -> None:
    context, choice = context_of(asks("a")), ToolChoice("named", "fs_read")
    with pytest.raises(ToolNotOffered, match=r"'fs_read', which is not offered: choose one of 'read', 'fs.read'") as no:
        FORMS[name].to(context, model="m", tools=_TOOLS, tool_choice=choice)
    assert (no.value.name, no.value.offered) == ("fs_read", ("read", "fs.read"))


@pytest.mark.parametrize("name", FORMS)
def test_a_request_shares_nothing_with_the_tools_it_offers(name: str) -> None:
    tool = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
    body = json.dumps(FORMS[name].to(context_of(asks("a")), model="m", tools=[tool]).body)
    spoilt = FORMS[name].to(context_of(asks("a")), model="m", tools=[tool]).body
    _spoil(spoilt)
    assert json.dumps(FORMS[name].to(context_of(asks("a")), model="m", tools=[tool]).body) == body


@pytest.mark.full
def test_a_context_of_a_real_session_is_a_legal_request_at_every_position_that_is_drawn(seed_data: Path) -> None:
    log = list(real_log(seed_data))
    assert len(log) == 1002
    # A request is made of the whole context, so all positions cost the square of them: 100 CPU seconds.
    share = math.ceil(len(log) * min(SCALE, 1) ** 2)
    drawn = {1, len(log), *randomness("real session").sample(range(1, len(log) + 1), share)}
    context = Context("s")
    checked: dict[str, list[object]] = {name: [] for name in FORMS}
    for position, envelope in enumerate(log, 1):
        context = evolve(context, envelope)
        if position not in drawn:
            continue
        for name, form in FORMS.items():
            body = form.to(context, model="claude-opus-4-5", strict=True).body
            said = cast("list[object]", body[form.said])
            # The shape of a message does not depend on its neighbours: one that was checked as it is need not be again.
            known = checked[name]
            new = [each for index, each in enumerate(said) if index >= len(known) or known[index] != each]
            assert not form.shape_faults({**body, form.said: new}), (name, position)
            assert not form.rule_faults(body), (name, position)
            assert name != "gemini" or not signature_faults(body), position
            checked[name] = said


def _spoil(value: object) -> None:
    """Empties every object and list in it."""
    children: list[object] = []
    match value:
        case dict():
            found = cast("Object", value)
            children = [*found.values()]
            found.clear()
        case list():
            items = cast("list[object]", value)
            children = [*items]
            items.clear()
        case _:
            pass
    for child in children:
        _spoil(child)


# --- what was said ------------------------------------------------------------------------------------------------


def _said(name: str, messages: list[Object]) -> Iterator[Object]:
    """Texts, calls and results on a wire, in their order, as {"text"}, {"call"} and {"result"}."""
    for index, message in enumerate(messages):
        match name:
            case "anthropic":
                yield from _said_to_anthropic(_list(message["content"]))
            case "gemini":
                yield from _said_to_gemini(index, _list(message["parts"]))
            case "openai_chat":
                yield from _said_to_chat(message)
            case _:
                yield from _said_to_responses(message)


def _said_to_anthropic(blocks: list[Object]) -> Iterator[Object]:
    for block in blocks:
        match block["type"]:
            case "text":
                yield {"text": block["text"]}
            case "tool_use":
                yield {"call": block["id"]}
            case "tool_result":
                yield {"result": block["tool_use_id"]}
            case _:
                pass


def _said_to_gemini(content: int, parts: list[Object]) -> Iterator[Object]:
    # Their order alone says which response is whose: both count from 0 in their content.
    counted = {"functionCall": 0, "functionResponse": 0}
    for part in parts:
        for kind, word, place in (("functionCall", "call", content), ("functionResponse", "result", content - 1)):
            if kind in part:
                yield {word: f"{place}.{counted[kind]}"}
                counted[kind] += 1
        if "text" in part and not part.get("thought"):
            yield {"text": part["text"]}


def _said_to_chat(message: Object) -> Iterator[Object]:
    if message["role"] in {"system", "developer"}:
        return
    if message["role"] == "tool":
        yield {"result": message["tool_call_id"]}
        return
    yield from _texts(message.get("content"))
    yield from ({"call": call["id"]} for call in _list(message.get("tool_calls") or []))


def _said_to_responses(item: Object) -> Iterator[Object]:
    match item.get("type", "message"):
        case "function_call":
            yield {"call": item["call_id"]}
        case "function_call_output":
            yield {"result": item["call_id"]}
        case "message" if item["role"] in {"user", "assistant"}:
            yield from _texts(item["content"])
        case _:
            pass


def _texts(content: object) -> Iterator[Object]:
    if isinstance(content, str):
        yield {"text": content}
    else:
        yield from ({"text": part["text"]} for part in _list(content or []) if "text" in part)


def _list(value: object) -> list[Object]:
    return cast("list[Object]", value)


def _steps(said: list[Object]) -> list[Step]:
    """The calls and results in order; each result as the number of its call."""
    steps: list[Step] = []
    numbers: dict[object, int] = {}
    for one in said:
        if "call" in one:
            assert one["call"] not in numbers
            numbers[one["call"]] = len(numbers)
            steps.append(("call", numbers[one["call"]]))
        elif "result" in one:
            steps.append(("result", numbers[one["result"]]))
    return steps


def _expected_steps(context: Context) -> list[Step]:
    steps: list[Step] = []
    called = answered = 0
    for message in context.messages:
        if isinstance(message, ToolResultMessage):
            steps.append(("result", answered))
            answered += 1
        elif isinstance(message, AssistantMessage):
            count = sum(isinstance(block, ToolCallBlock) for block in message.content)
            steps += [("call", called + number) for number in range(count)]
            called += count
    return steps


def _expected_texts(context: Context) -> list[str]:
    return [
        block.text.strip()
        for message in context.messages
        if isinstance(message, UserMessage | AssistantMessage)
        for block in message.content
        if isinstance(block, TextBlock) and block.text.strip()
    ]


@pytest.mark.parametrize("name", FORMS)
def test_details_of_blocks_that_are_left_out_are_warnings(name: str) -> None:
    ref = AnnotationRef(url="https://example.com")
    picture = MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234")
    context = context_of(
        UserMessage.of(
            TextBlock(text="a", annotations=(ref,)), ImageBlock(media=picture, alt_text="x", bbox=(0, 0, 1, 1))
        ),
        UserMessage.of(TextBlock(text="b", annotations=())),
    )
    told = [loss for loss in FORMS[name].to(context, model="m").warnings if "no request has a field" in loss]
    assert [loss.partition(" left out")[0] for loss in told] == [
        "messages.0: annotations of a text, alt text of an image, bounding box of an image"
    ]
    with pytest.raises(ContentRefused):
        FORMS[name].to(context, model="m", strict=True)
