"""An answer of Chat Completions makes the same message, whole or streamed."""

import json
from base64 import b64encode
from decimal import Decimal
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.agent import Piece
from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AnnotationRef,
    AssistantMessage,
    AudioBlock,
    MediaRef,
    Rates,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
    Usage,
)
from lanebus.handlers.providers import Json
from lanebus.handlers.providers.answer import is_minted
from lanebus.providers import OpenAIChatAnswer, from_openai_chat, to_openai_chat
from tests.support.log.entries import asks, context_of
from tests.support.providers.openai_chat_rules import require_legal
from tests.support.providers.openai_replay import chat_chunks, folded, spoken, untimed

USAGE: Json = {
    "prompt_tokens": 100,
    "completion_tokens": 30,
    "total_tokens": 130,
    "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10, "audio_tokens": 1},
    "completion_tokens_details": {"reasoning_tokens": 20, "audio_tokens": 2},
}
HEAD: Json = {"id": "chatcmpl-1", "created": 1, "model": "gpt-5.2-2026-01-01"}


def call(call_id: str, name: str, arguments: str) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def response(message: Json, finish: JsonValue = "stop", **fields: JsonValue) -> Json:
    choice: Json = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {**HEAD, "object": "chat.completion", "choices": [choice], **fields}


def chunk(delta: Json | None = None, finish: JsonValue = None, **fields: JsonValue) -> Json:
    choice: Json = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {**HEAD, "object": "chat.completion.chunk", "choices": [choice], "usage": None, **fields}


def grows(index: int, fragment: str) -> Json:
    return chunk({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})


def begins(index: int, call_id: str, name: str) -> Json:
    return chunk({"tool_calls": [{"index": index, **call(call_id, name, "")}]})


WHOLE = response(
    {
        "content": "Let me see.",
        "tool_calls": [call("call_1", "fs_read", '{"path": "a"}'), call("call_2", "add", '{"a": 1')],
    },
    "tool_calls",
    usage=USAGE,
)
STREAM: list[Json] = [
    chunk({"role": "assistant", "content": "", "refusal": None}),
    chunk({"content": "Let me"}),
    chunk({"content": " see."}),
    begins(0, "call_1", "fs_read"),
    grows(0, '{"path"'),
    begins(1, "call_2", "add"),
    grows(0, ': "a"}'),
    grows(1, '{"a": 1'),
    chunk(finish="tool_calls"),
    {**HEAD, "object": "chat.completion.chunk", "choices": [], "usage": USAGE},
]
NAMES = {"fs_read": "fs.read"}


def test_a_whole_response_is_a_message() -> None:
    from openai.types.chat import ChatCompletion

    ChatCompletion.model_validate(WHOLE)
    assert untimed(from_openai_chat(WHOLE, model="gpt-5.2", names=NAMES)) == AssistantMessage(
        content=(
            TextBlock(text="Let me see."),
            ToolCallBlock(id="call_1", name="fs.read", arguments={"path": "a"}),
            ToolCallBlock(id="call_2", name="add", arguments_raw='{"a": 1'),
        ),
        stop_reason="toolUse",
        raw_stop_reason="tool_calls",
        provider="openai",
        model="gpt-5.2",
        metadata={"responseModel": "gpt-5.2-2026-01-01"},
        response_id="chatcmpl-1",
        usage=Usage(
            input=30,
            output=30,
            reasoning=20,
            cache_read=60,
            cache_write=10,
            total_tokens=130,
            audio_tokens=3,
            raw=USAGE,
        ),
    )


async def test_a_stream_through_the_sdk_is_the_same_message() -> None:
    answer = OpenAIChatAnswer("gpt-5.2", None, NAMES)
    told = folded(answer, await chat_chunks(STREAM))
    assert answer.is_complete
    assert untimed(answer.message()) == untimed(from_openai_chat(WHOLE, model="gpt-5.2", names=NAMES))
    assert spoken(told) == {0: "Let me see.", 1: '{"path": "a"}', 2: '{"a": 1'}
    assert [piece.tool_name for piece in told if isinstance(piece, Piece) and piece.tool_name] == ["fs.read", "add"]
    assert isinstance(told[-1], Usage)


def test_a_stream_cut_anywhere_keeps_only_complete_calls() -> None:
    for end in range(len(STREAM)):
        answer = OpenAIChatAnswer()
        folded(answer, STREAM[:end])
        message = answer.message("cut")
        assert (message.stop_reason, message.error_message) == ("error", "cut")
        # The first call's object closes in the seventh chunk, the second one's never does; the ninth says it is over.
        assert len([*message.tool_calls()]) == (0 if end < 7 else 1 if end < 9 else 2)


def test_an_answer_is_complete_once_it_has_a_stop_reason() -> None:
    answer = OpenAIChatAnswer()
    folded(answer, STREAM[:8])
    assert not answer.is_complete
    folded(answer, STREAM[8:9])
    assert answer.is_complete
    assert answer.message().usage is None


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "toolUse"),
        ("function_call", "toolUse"),
        ("content_filter", "guardRail"),
        ("eos", "stop"),
    ],
)
def test_the_reason_to_stop_is_ours_and_theirs(finish: str, stop: StopReason) -> None:
    message = from_openai_chat(response({"content": "a"}, finish))
    assert (message.stop_reason, message.raw_stop_reason) == (stop, finish)


def test_a_tool_that_had_to_be_called_is_a_call_though_the_provider_says_stop() -> None:
    message = from_openai_chat(response({"content": None, "tool_calls": [call("c", "add", "")]}, "stop"))
    assert (message.stop_reason, message.raw_stop_reason) == ("toolUse", "stop")
    assert message.content == (ToolCallBlock(id="c", name="add"),)


async def test_a_refusal_is_text_and_stops_by_a_guard_rail() -> None:
    message = from_openai_chat(response({"content": None, "refusal": "I will not."}))
    assert (message.text_content(), message.stop_reason, message.raw_stop_reason) == (
        "I will not.",
        "guardRail",
        "refusal",
    )
    answer = OpenAIChatAnswer()
    folded(answer, await chat_chunks([chunk({"refusal": "I will "}), chunk({"refusal": "not."}), chunk({}, "stop")]))
    assert untimed(answer.message()) == untimed(message)


@pytest.mark.parametrize("names", [("reasoning_content",), ("reasoning",), ("reasoning_content", "reasoning")])
async def test_thinking_of_other_servers_is_thinking_once(names: tuple[str, ...]) -> None:
    message = from_openai_chat(response({**dict.fromkeys(names, "hm"), "content": "a"}))
    assert message.content == (ThinkingBlock(text="hm"), TextBlock(text="a"))
    answer = OpenAIChatAnswer()
    parts = [chunk(dict.fromkeys(names, part)) for part in ("h", "m")]
    folded(answer, await chat_chunks([*parts, chunk({"content": "a"}), chunk(finish="stop")]))
    assert untimed(answer.message()) == untimed(message)


def test_sources_of_a_text_are_annotations() -> None:
    citation: Json = {"url": "https://example.com", "title": "E", "start_index": 0, "end_index": 1}
    message = from_openai_chat(
        response({"content": "a", "annotations": [{"type": "url_citation", "url_citation": citation}]})
    )
    assert message.content == (TextBlock(text="a", annotations=(AnnotationRef(url="https://example.com", title="E"),)),)


def test_a_call_of_a_tool_that_is_no_function_is_kept_whole() -> None:
    custom: Json = {"id": "c", "type": "custom", "custom": {"name": "grep", "input": "x"}}
    message = from_openai_chat(response({"content": None, "tool_calls": [custom]}))
    assert (message.content, message.stop_reason) == ((UnknownBlock(raw=custom),), "stop")


async def test_calls_of_one_index_and_different_ids_are_kept_apart() -> None:
    answer = OpenAIChatAnswer()
    whole = [{"index": 0, **call(name, name, '{"x": 1}')} for name in "ab"]
    chunks = [chunk({"tool_calls": [whole[0]]}), chunk({"tool_calls": [whole[1]]}), begins(0, "c", "c"), grows(0, "{}")]
    told = folded(answer, await chat_chunks([*chunks, chunk(finish="tool_calls")]))
    assert answer.message().content == (
        ToolCallBlock(id="a", name="a", arguments={"x": 1}),
        ToolCallBlock(id="b", name="b", arguments={"x": 1}),
        ToolCallBlock(id="c", name="c", arguments={}),
    )
    assert spoken(told) == {0: '{"x": 1}', 1: '{"x": 1}', 2: "{}"}


def test_pieces_of_a_call_that_name_its_id_again_or_one_of_their_own_are_one_call() -> None:
    for piece_id in ("a", "made-up"):
        answer = OpenAIChatAnswer()
        piece = chunk({"tool_calls": [{"index": 0, "id": piece_id, "function": {"arguments": "{}"}}]})
        folded(answer, [begins(0, "a", "f"), piece, chunk(finish="tool_calls")])
        assert answer.message().content == (ToolCallBlock(id="a", name="f"),)


SOUND = b"RIFF\x24\x00\x00\x00WAVEfmt "


async def test_audio_of_a_model_is_an_audio_block_with_its_transcript() -> None:
    audio: Json = {"id": "audio_1", "expires_at": 1, "data": b64encode(SOUND).decode(), "transcript": "hello"}
    message = from_openai_chat(response({"content": None, "audio": audio}))
    assert message.content == (AudioBlock(media=MediaRef.from_bytes(SOUND), transcript="hello"),)
    assert MediaRef.from_bytes(SOUND).mime_type == "audio/wav"
    # Of a stream each piece is base64 by itself.
    pieces: list[Json] = [
        {"id": "audio_1", "transcript": "hel"},
        {"data": b64encode(SOUND[:5]).decode()},
        {"data": b64encode(SOUND[5:]).decode()},
        {"transcript": "lo"},
        {"expires_at": 1},
    ]
    answer = OpenAIChatAnswer()
    told = folded(answer, await chat_chunks([*(chunk({"audio": piece}) for piece in pieces), chunk({}, "stop")]))
    assert untimed(answer.message()) == untimed(message)
    assert spoken(told) == {0: "hello"}


def test_a_transcript_without_its_sound_is_text_and_sound_that_is_not_base64_is_refused() -> None:
    answer = OpenAIChatAnswer()
    folded(answer, [chunk({"audio": {"id": "audio_1", "transcript": "hel"}})])
    assert answer.message("cut").content == (TextBlock(text="hel"),)
    with pytest.raises(DecodeError, match=r"choices\.0\.message\.audio\.data"):
        from_openai_chat(response({"audio": {"data": "@@"}}))


async def test_a_call_in_the_old_form_is_a_call_with_an_id_of_ours() -> None:
    message = from_openai_chat(
        response({"content": None, "function_call": {"name": "fs_read", "arguments": '{"a": 1}'}}, "function_call"),
        names=NAMES,
    )
    (called,) = message.tool_calls()
    assert (called.name, called.arguments, message.stop_reason) == ("fs.read", {"a": 1}, "toolUse")
    assert is_minted(called.id)
    answer = OpenAIChatAnswer(None, None, NAMES)
    pieces: list[Json] = [{"name": "fs_read", "arguments": ""}, {"arguments": '{"a"'}, {"arguments": ": 1}"}]
    chunks = [*(chunk({"function_call": piece}) for piece in pieces), chunk(finish="function_call")]
    told = folded(answer, await chat_chunks(chunks))
    assert [(each.name, each.arguments) for each in answer.message().tool_calls()] == [("fs.read", {"a": 1})]
    assert spoken(told) == {0: '{"a": 1}'}


def test_a_call_in_both_forms_is_one_call() -> None:
    both: Json = {"tool_calls": [call("c", "f", "{}")], "function_call": {"name": "f", "arguments": "{}"}}
    assert from_openai_chat(response(both)).content == (ToolCallBlock(id="c", name="f"),)


def test_other_choices_and_other_objects_are_ignored() -> None:
    answer = OpenAIChatAnswer()
    other: Json = {"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}
    assert answer.take({**HEAD, "object": "chat.completion.chunk", "choices": [other]}) == []
    assert answer.take({"object": "new.thing"}) == []
    assert (answer.message().content, answer.is_complete) == ((), False)


def test_an_error_in_the_stream_makes_a_failed_message() -> None:
    answer = OpenAIChatAnswer()
    error: Json = {"error": {"message": "overloaded"}}
    folded(answer, [*STREAM[:5], error])
    message = answer.message()
    assert answer.is_complete
    assert (message.stop_reason, message.error_message, message.text_content()) == (
        "error",
        "overloaded",
        "Let me see.",
    )
    assert not [*message.tool_calls()]


def test_usage_is_priced_at_the_callers_rates_and_cached_tokens_only_once() -> None:
    rates = Rates(input=Decimal(1), output=Decimal(10), cache_read=Decimal("0.1"), cache_write=Decimal(2))
    usage = from_openai_chat(WHOLE, rates=rates).usage
    assert usage is not None
    assert usage.cost is not None
    assert (usage.cost.total, usage.cost.source) == (Decimal("0.000356"), "caller")
    assert usage.cache_hit_rate() == 0.6


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}])
def test_inconsistent_usage_is_never_negative(usage: Json) -> None:
    found = from_openai_chat(response({"content": "a"}, usage=usage)).usage
    assert found is not None
    assert (found.input, found.output) == (0, 0)


def test_what_was_read_can_be_sent_again() -> None:
    request = to_openai_chat(context_of(asks("a"), from_openai_chat(WHOLE, model="gpt-5.2", names=NAMES)))
    sent = cast("list[Json]", cast("list[Json]", request.body["messages"])[1]["tool_calls"])
    assert sent == cast("list[dict[str, Json]]", WHOLE["choices"])[0]["message"]["tool_calls"]
    assert request.tool_names == NAMES


def test_a_tool_under_its_wire_name_has_a_legal_request() -> None:
    require_legal(to_openai_chat(context_of(asks("a"), from_openai_chat(response({"content": "b"})))).body)


_MALFORMED: list[tuple[Json, str]] = [
    ({}, "choices"),
    ({"choices": []}, "choices"),
    ({"choices": {}}, "choices"),
    ({"choices": [1]}, "choices.0"),
    ({"choices": [{"finish_reason": "stop"}]}, "choices.0.message"),
    ({"choices": [{"message": {"content": "a"}}]}, "choices.0.finish_reason"),
    (response({"content": 1}), "choices.0.message.content"),
    (response({"content": [{"type": "text"}]}), "choices.0.message.content"),
    (response({"refusal": {}}), "choices.0.message.refusal"),
    (response({"tool_calls": {}}), "choices.0.message.tool_calls"),
    (response({"tool_calls": [1]}), "choices.0.message.tool_calls.0"),
    (response({"tool_calls": [{"function": {"name": "x"}}]}), "choices.0.message.tool_calls.0.id"),
    (response({"tool_calls": [{"id": "c"}]}), "choices.0.message.tool_calls.0.function.name"),
    (response({"tool_calls": [{"id": "c", "function": 1}]}), "choices.0.message.tool_calls.0.function"),
    (
        response({"tool_calls": [{"id": "c", "function": {"name": "x", "arguments": {}}}]}),
        "choices.0.message.tool_calls.0.function.arguments",
    ),
    (response({"annotations": {}}), "choices.0.message.annotations"),
    (response({"content": "a"}, 1), "choices.0.finish_reason"),
    (response({"content": "a"}, usage=[]), "usage"),
]


@pytest.mark.parametrize(("value", "path"), _MALFORMED)
def test_a_malformed_response_is_refused_with_the_path_to_its_fault(value: Json, path: str) -> None:
    with pytest.raises(DecodeError) as refused:
        from_openai_chat(value)
    assert refused.value.path == path


_NO_CHUNKS: list[tuple[Json, str]] = [
    ({}, "choices"),
    ({"object": "chat.completion.chunk"}, "choices"),
    ({"choices": None}, "choices"),
    (chunk({"content": 1}), "choices.0.delta.content"),
    (chunk({"tool_calls": [{"function": {"arguments": "{"}}]}), "choices.0.delta.tool_calls.0.index"),
    (chunk({"tool_calls": [{"index": True}]}), "choices.0.delta.tool_calls.0.index"),
    (chunk({"tool_calls": [{"index": -1}]}), "choices.0.delta.tool_calls.0.index"),
    (grows(0, "{"), "choices.0.delta.tool_calls.0.function.name"),
]


@pytest.mark.parametrize(("value", "path"), _NO_CHUNKS)
def test_a_malformed_chunk_is_refused_with_the_path_to_its_fault(value: Json, path: str) -> None:
    with pytest.raises(DecodeError) as refused:
        OpenAIChatAnswer().take(value)
    assert refused.value.path == path


@pytest.mark.parametrize("spoilt", ["\ud800", float("nan"), json.loads("[" * 70 + "]" * 70)])
def test_what_the_log_cannot_store_is_refused(spoilt: JsonValue) -> None:
    with pytest.raises(DecodeError):
        OpenAIChatAnswer().take(chunk({"content": spoilt}))
