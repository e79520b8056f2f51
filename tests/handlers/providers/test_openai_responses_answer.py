"""An answer of the Responses API makes the same message, whole or streamed."""

import json
from decimal import Decimal
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.agent import Piece
from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AnnotationRef,
    AssistantMessage,
    Rates,
    RedactedThinkingBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
    Usage,
)
from lanebus.handlers.providers import Json
from lanebus.handlers.providers.openai.responses import reasoning_item, thinking_block
from lanebus.providers import OpenAIResponsesAnswer, from_openai_responses, to_openai_responses
from tests.support.log.entries import asks, context_of
from tests.support.providers.openai_replay import folded, responses_events, spoken, untimed
from tests.support.providers.openai_responses_rules import require_legal

USAGE: Json = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 130,
}
CITATION: Json = {
    "type": "url_citation",
    "url": "https://example.com",
    "title": "E",
    "start_index": 0,
    "end_index": 1,
}
NAMES = {"fs_read": "fs.read"}


def summary(*texts: str) -> list[JsonValue]:
    return [{"type": "summary_text", "text": text} for text in texts]


def reasoning(item_id: str, *texts: str, **fields: JsonValue) -> Json:
    return {"type": "reasoning", "id": item_id, "summary": summary(*texts), **fields}


def message(item_id: str, *parts: Json, status: str = "completed") -> Json:
    return {"type": "message", "id": item_id, "role": "assistant", "status": status, "content": [*parts]}


def text(words: str, *annotations: Json) -> Json:
    return {"type": "output_text", "text": words, "annotations": [*annotations]}


def call(item_id: str, call_id: str, name: str, arguments: str, status: str = "completed") -> Json:
    return {
        "type": "function_call",
        "id": item_id,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def response(*output: Json, status: str = "completed", **fields: JsonValue) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5.2-2026-01-01",
        "status": status,
        "output": [*output],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **fields,
    }


REASONED = reasoning("rs_1", "First.", "Then.", encrypted_content="gAAA")
HIDDEN = reasoning("rs_2", encrypted_content="gBBB")
SAID = message("msg_1", text("Let me see.", CITATION))
CALLED = call("fc_1", "call_1", "fs_read", '{"path": "a"}')
CALLED_AGAIN = call("fc_2", "call_2", "add", '{"a": 1')
WHOLE = response(REASONED, SAID, HIDDEN, CALLED, CALLED_AGAIN, usage=USAGE)


def event(kind: str, index: int, **fields: JsonValue) -> Json:
    return {"type": f"response.{kind}", "output_index": index, "item_id": "x", **fields}


def summary_part(index: int, words: str) -> list[Json]:
    first, second = words[:2], words[2:]
    return [
        event("reasoning_summary_part.added", 0, summary_index=index, part={"type": "summary_text", "text": ""}),
        event("reasoning_summary_text.delta", 0, summary_index=index, delta=first),
        event("reasoning_summary_text.delta", 0, summary_index=index, delta=second),
        event("reasoning_summary_text.done", 0, summary_index=index, text=words),
        event("reasoning_summary_part.done", 0, summary_index=index, part={"type": "summary_text", "text": words}),
    ]


def spoken_call(index: int, item: Json) -> list[Json]:
    arguments = cast("str", item["arguments"])
    return [
        event("output_item.added", index, item={**item, "arguments": "", "status": "in_progress"}),
        event("function_call_arguments.delta", index, delta=arguments[:5]),
        event("function_call_arguments.delta", index, delta=arguments[5:]),
        event("function_call_arguments.done", index, arguments=arguments),
        event("output_item.done", index, item=item),
    ]


def ended(final: Json) -> Json:
    return {"type": f"response.{final['status']}", "response": final}


STREAM: list[Json] = [
    {"type": "response.created", "response": response(status="in_progress")},
    {"type": "response.in_progress", "response": response(status="in_progress")},
    event("output_item.added", 0, item=reasoning("rs_1")),
    *summary_part(0, "First."),
    *summary_part(1, "Then."),
    event("output_item.done", 0, item=REASONED),
    event("output_item.added", 1, item=message("msg_1", status="in_progress")),
    event("content_part.added", 1, content_index=0, part=text("")),
    event("output_text.delta", 1, content_index=0, delta="Let me", logprobs=[]),
    event("output_text.delta", 1, content_index=0, delta=" see.", logprobs=[]),
    event("output_text.annotation.added", 1, content_index=0, annotation_index=0, annotation=CITATION),
    event("output_text.done", 1, content_index=0, text="Let me see.", logprobs=[]),
    event("content_part.done", 1, content_index=0, part=text("Let me see.", CITATION)),
    event("output_item.done", 1, item=SAID),
    event("output_item.added", 2, item=HIDDEN),
    event("output_item.done", 2, item=HIDDEN),
    *spoken_call(3, CALLED),
    *spoken_call(4, CALLED_AGAIN),
    ended(WHOLE),
]


def test_a_whole_response_is_a_message() -> None:
    from openai.types.responses import Response

    Response.model_validate(WHOLE)
    assert untimed(from_openai_responses(WHOLE, model="gpt-5.2", names=NAMES)) == AssistantMessage(
        content=(
            ThinkingBlock(
                text="First.\n\nThen.",
                details=("First.", "Then."),
                signature='{"id":"rs_1","encrypted_content":"gAAA"}',
            ),
            TextBlock(text="Let me see.", annotations=(AnnotationRef(url="https://example.com", title="E"),)),
            RedactedThinkingBlock(data='{"id":"rs_2","encrypted_content":"gBBB"}'),
            ToolCallBlock(id="call_1", name="fs.read", arguments={"path": "a"}),
            ToolCallBlock(id="call_2", name="add", arguments_raw='{"a": 1'),
        ),
        stop_reason="toolUse",
        raw_stop_reason="completed",
        provider="openai",
        model="gpt-5.2",
        metadata={"responseModel": "gpt-5.2-2026-01-01"},
        response_id="resp_1",
        usage=Usage(input=30, output=30, reasoning=20, cache_read=60, cache_write=10, total_tokens=130, raw=USAGE),
    )


async def test_a_stream_through_the_sdk_is_the_same_message() -> None:
    answer = OpenAIResponsesAnswer("gpt-5.2", None, NAMES)
    told = folded(answer, await responses_events(STREAM))
    assert answer.is_complete
    assert untimed(answer.message()) == untimed(from_openai_responses(WHOLE, model="gpt-5.2", names=NAMES))
    assert [*spoken(told).values()] == ["First.\n\nThen.", "Let me see.", '{"path": "a"}', '{"a": 1']
    assert [piece.tool_name for piece in told if isinstance(piece, Piece) and piece.tool_name] == ["fs.read", "add"]
    assert told[-1] == answer.message().usage


async def test_a_stream_whose_last_event_has_no_items_is_the_same_message() -> None:
    answer = OpenAIResponsesAnswer("gpt-5.2", None, NAMES)
    folded(answer, await responses_events([*STREAM[:-1], ended({**WHOLE, "output": []})]))
    assert untimed(answer.message()) == untimed(from_openai_responses(WHOLE, model="gpt-5.2", names=NAMES))


def test_a_stream_cut_anywhere_keeps_its_text_and_only_complete_calls() -> None:
    ends = [
        at
        for at, told in enumerate(STREAM)
        if told["type"] == "response.output_item.done" and told["output_index"] in (3, 4)
    ]
    said = ""
    for end in range(len(STREAM)):
        answer = OpenAIResponsesAnswer()
        folded(answer, STREAM[:end])
        found = answer.message("cut")
        assert (found.stop_reason, found.error_message, answer.is_complete) == ("error", "cut", False)
        assert len([*found.tool_calls()]) == len([at for at in ends if at < end])
        assert found.text_content().startswith(said)
        said = found.text_content()
        for block in found.thinking():
            assert "First.\n\nThen.".startswith(block.text)
    assert said == "Let me see."


@pytest.mark.parametrize(
    ("fields", "stop", "raw"),
    [
        ({"status": "completed"}, "stop", "completed"),
        ({"status": "incomplete"}, "length", "incomplete"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "length",
            "max_output_tokens",
        ),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "guardRail", "content_filter"),
        ({"status": "cancelled"}, "aborted", "cancelled"),
    ],
)
async def test_the_reason_to_stop_is_ours_and_theirs(fields: Json, stop: StopReason, raw: str) -> None:
    final = {**response(SAID), **fields}
    found = from_openai_responses(final)
    assert (found.stop_reason, found.raw_stop_reason) == (stop, raw)
    answer = OpenAIResponsesAnswer()
    folded(answer, [ended(final)])
    assert (untimed(answer.message()), answer.is_complete) == (untimed(found), True)


def test_a_refusal_is_text_and_stops_by_a_guard_rail() -> None:
    final = response(message("msg_1", {"type": "refusal", "refusal": "I will not."}))
    found = from_openai_responses(final)
    assert (found.text_content(), found.stop_reason, found.raw_stop_reason) == ("I will not.", "guardRail", "refusal")
    answer = OpenAIResponsesAnswer()
    told = folded(
        answer,
        [
            event("output_item.added", 0, item=message("msg_1")),
            event("refusal.delta", 0, content_index=0, delta="I will "),
            event("refusal.delta", 0, content_index=0, delta="not."),
            ended(final),
        ],
    )
    assert spoken(told) == {0: "I will not."}
    assert untimed(answer.message()) == untimed(found)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ({"type": "error", "code": "x", "message": "overloaded", "param": None}, "overloaded"),
        (ended(response(status="failed", error={"code": "server_error", "message": "boom"})), "boom"),
        (ended(response(status="failed", error=None)), "the provider failed and did not say why"),
    ],
)
async def test_a_failure_in_the_stream_makes_a_failed_message(last: Json, error: str) -> None:
    answer = OpenAIResponsesAnswer()
    folded(answer, [*STREAM[:17], last])
    found = answer.message()
    assert answer.is_complete
    assert (found.stop_reason, found.error_message, found.text_content()) == ("error", error, "Let me")


def test_a_failed_response_keeps_only_complete_calls() -> None:
    cut = call("fc_2", "call_2", "add", "{", "incomplete")
    found = from_openai_responses(response(CALLED, cut, status="failed", error={"code": "x", "message": "boom"}))
    assert [block.id for block in found.tool_calls()] == ["call_1"]


def test_readable_reasoning_is_thinking() -> None:
    open_one = reasoning("rs_1", content=[{"type": "reasoning_text", "text": "hm"}])
    found = from_openai_responses(response(open_one, SAID))
    (block,) = found.thinking()
    assert (block.text, block.details) == ("hm", None)
    answer = OpenAIResponsesAnswer()
    growing = [
        event("output_item.added", 0, item=reasoning("rs_1")),
        event("reasoning_text.delta", 0, content_index=0, delta="hm"),
    ]
    assert spoken(folded(answer, growing)) == {0: "hm"}


@pytest.mark.parametrize(
    "item",
    [
        REASONED,
        HIDDEN,
        reasoning("rs_3"),
        reasoning("rs_4", "a", status="completed"),
        reasoning("rs_5", content=[{"type": "reasoning_text", "text": "hm"}], encrypted_content="x"),
        reasoning("rs_6", "a", "", "b\n\nc", content=[{"type": "reasoning_text", "text": "hm"}]),
    ],
)
def test_a_reasoning_item_comes_back_as_it_was(item: Json) -> None:
    block = thinking_block(item, "")
    assert reasoning_item(block) == item
    request = to_openai_responses(context_of(asks("a"), from_openai_responses(response(item, SAID), model="m")))
    require_legal(request.body)
    assert item in cast("list[Json]", request.body["input"])


def test_what_was_read_can_be_sent_again() -> None:
    answer = from_openai_responses(response(REASONED, SAID, HIDDEN, CALLED), model="m", names=NAMES)
    request = to_openai_responses(context_of(asks("a"), answer))
    require_legal(request.body)
    _, first, said, second, called, _ = cast("list[Json]", request.body["input"])
    assert (first, second) == (REASONED, HIDDEN)
    assert cast("list[Json]", said["content"])[0]["text"] == "Let me see."
    assert called == {name: value for name, value in CALLED.items() if name not in {"id", "status"}}


async def test_the_phase_of_a_message_goes_back_with_it() -> None:
    commentary = {**message("msg_1", text("Let me see.")), "phase": "commentary"}
    final = {**message("msg_2", text("Done.")), "phase": "final_answer"}
    read = from_openai_responses(response(commentary, final), model="gpt-5.2")
    events = [event("output_item.done", at, item=item) for at, item in enumerate((commentary, final))]
    answer = OpenAIResponsesAnswer("gpt-5.2")
    folded(answer, await responses_events([*events, ended(response())]))
    assert answer.message().content == read.content
    body = to_openai_responses(context_of(asks("a"), read)).body
    require_legal(body)
    sent = cast("list[Json]", body["input"])[1:]
    assert [item.get("phase") for item in sent] == ["commentary", "final_answer"]
    assert "signature" not in json.dumps(sent)


def test_unknown_items_and_parts_are_kept_whole() -> None:
    search: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    part: Json = {"type": "output_hologram", "data": "x"}
    found = from_openai_responses(response(search, message("msg_1", part, text("a"))))
    assert found.content == (UnknownBlock(raw=search), UnknownBlock(raw=part), TextBlock(text="a"))


def test_sources_of_all_kinds_are_annotations() -> None:
    file: Json = {"type": "file_citation", "file_id": "file-1", "filename": "a.pdf", "index": 3}
    found = from_openai_responses(response(message("msg_1", text("a", file, CITATION))))
    assert found.content[0] == TextBlock(
        text="a",
        annotations=(
            AnnotationRef(file_id="file-1", title="a.pdf", index=3),
            AnnotationRef(url="https://example.com", title="E"),
        ),
    )


def test_events_of_other_kinds_are_ignored() -> None:
    answer = OpenAIResponsesAnswer()
    assert answer.take({"type": "response.new_thing", "output_index": 7}) == []
    assert answer.take({"type": "response.web_search_call.searching", "output_index": {}, "item_id": "x"}) == []
    assert (answer.message().content, answer.is_complete) == ((), False)


def test_usage_is_priced_at_the_callers_rates() -> None:
    rates = Rates(input=Decimal(1), output=Decimal(10), cache_read=Decimal("0.1"), cache_write=Decimal(2))
    usage = from_openai_responses(WHOLE, rates=rates).usage
    assert usage is not None
    assert usage.cost is not None
    assert usage.cost.total == Decimal("0.000356")


_MALFORMED: list[tuple[Json, str]] = [
    ({}, "output"),
    ({"object": "chat.completion", "output": []}, "output"),
    ({"output": {}}, "output"),
    (response(status="in_progress"), "status"),
    ({**response(), "status": 1}, "status"),
    ({**response(), "output": [1]}, "output.0"),
    (response({"id": "x"}), "output.0.type"),
    (response({"type": "message", "content": {}}), "output.0.content"),
    (response({"type": "message", "content": [1]}), "output.0.content.0"),
    (response(message("m", {"text": "a"})), "output.0.content.0.type"),
    (response(message("m", {"type": "output_text"})), "output.0.content.0.text"),
    (response(message("m", {"type": "output_text", "text": "a", "annotations": 1})), "output.0.content.0.annotations"),
    (response(message("m", {"type": "refusal", "refusal": 1})), "output.0.content.0.refusal"),
    (response(SAID, {"type": "function_call", "name": "x", "arguments": "{}"}), "output.1.call_id"),
    (response({"type": "function_call", "call_id": "x", "arguments": "{}"}), "output.0.name"),
    (response({"type": "function_call", "call_id": "x", "name": "x", "arguments": {}}), "output.0.arguments"),
    (response({"type": "reasoning", "summary": []}), "output.0.id"),
    (response({"type": "reasoning", "id": "rs_1", "summary": ["a"]}), "output.0.summary.0"),
    (response({"type": "reasoning", "id": "rs_1", "summary": [{}]}), "output.0.summary.0.text"),
    (response(reasoning("rs_1", encrypted_content=1)), "output.0.encrypted_content"),
    (response(usage=[]), "usage"),
]


@pytest.mark.parametrize(("value", "path"), _MALFORMED)
def test_a_malformed_response_is_refused_with_the_path_to_its_fault(value: Json, path: str) -> None:
    with pytest.raises(DecodeError) as refused:
        from_openai_responses(value)
    assert refused.value.path == path
    if path not in {"output", "output.0"} and "output" in value:
        with pytest.raises(DecodeError) as refused:
            OpenAIResponsesAnswer().take({"type": "response.completed", "response": value})
        assert refused.value.path == f"response.{path}"


_NO_EVENTS: list[tuple[Json, str]] = [
    ({}, "type"),
    ({"type": 1}, "type"),
    ({"type": "response.created"}, "response"),
    ({"type": "response.completed", "response": []}, "response"),
    ({"type": "response.output_item.added", "item": SAID}, "output_index"),
    ({"type": "response.output_item.added", "output_index": 0}, "item"),
    ({"type": "response.output_item.added", "output_index": 0, "item": {}}, "item.type"),
    ({"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call"}}, "item.name"),
    ({"type": "response.output_item.done", "output_index": True, "item": SAID}, "output_index"),
    (
        {"type": "response.output_item.done", "output_index": 0, "item": message("m", {"type": "output_text"})},
        "item.content.0.text",
    ),
    ({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"}, "output_index"),
    ({"type": "response.output_text.delta", "output_index": {}, "content_index": 0, "delta": "a"}, "output_index"),
    ({"type": "error", "message": 1}, "message"),
]


@pytest.mark.parametrize(("value", "path"), _NO_EVENTS)
def test_a_malformed_event_is_refused_with_the_path_to_its_fault(value: Json, path: str) -> None:
    with pytest.raises(DecodeError) as refused:
        OpenAIResponsesAnswer().take(value)
    assert refused.value.path == path


@pytest.mark.parametrize(("fields", "path"), [({"delta": "a"}, "content_index"), ({"content_index": 0}, "delta")])
def test_a_piece_without_text_is_refused_with_the_path_to_its_fault(fields: Json, path: str) -> None:
    answer = OpenAIResponsesAnswer()
    folded(answer, [event("output_item.added", 0, item=message("msg_1"))])
    with pytest.raises(DecodeError) as refused:
        answer.take(event("output_text.delta", 0, **fields))
    assert refused.value.path == path


def test_the_signature_of_thinking_is_json_text() -> None:
    block = thinking_block(REASONED, "")
    assert isinstance(block, ThinkingBlock)
    assert json.loads(block.signature or "") == {"id": "rs_1", "encrypted_content": "gAAA"}


@pytest.mark.parametrize("spoilt", ["\ud800", float("nan"), json.loads("[" * 70 + "]" * 70)])
def test_what_the_log_cannot_store_is_refused(spoilt: JsonValue) -> None:
    with pytest.raises(DecodeError):
        OpenAIResponsesAnswer().take({"type": "response.new_thing", "data": spoilt})
