"""An answer of Gemini's API, whole or streamed, makes a message with all of its content."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import cast

import httpx2
import pytest
from pydantic import JsonValue

from lanebus.agent import ModelEvent, Piece
from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AnnotationRef,
    AssistantMessage,
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    MediaRef,
    Rates,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UnknownBlock,
    Usage,
    VideoBlock,
)
from lanebus.providers import GeminiAnswer, from_gemini, to_gemini
from tests.support.log.entries import asks, context_of, results
from tests.support.providers.gemini_rules import require_legal

Json = dict[str, JsonValue]
MODEL = "gemini-3-pro"
SIGNATURE = "c2+/"
PNG = MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe\xfd")


def response(*parts: Json, finish: str | None = "STOP", **fields: JsonValue) -> Json:
    candidate: Json = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": [*parts]}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": f"{MODEL}-001", "responseId": "r1", **fields}


def call(name: str, call_id: str | None = None, **arguments: JsonValue) -> Json:
    return {"functionCall": {"name": name, "args": arguments, **({"id": call_id} if call_id else {})}}


def read(*parts: Json, finish: str | None = "STOP", **fields: JsonValue) -> AssistantMessage:
    return from_gemini(response(*parts, finish=finish, **fields), model=MODEL)


# --- whole --------------------------------------------------------------------------------------------------------


def test_a_response_becomes_a_message_with_model_content_and_stop_reason() -> None:
    message = read({"text": "hm", "thought": True}, {"text": "Hello"})
    assert message.content == (ThinkingBlock(text="hm"), TextBlock(text="Hello"))
    assert (message.provider, message.model, message.response_id) == ("google", MODEL, "r1")
    assert (message.stop_reason, message.raw_stop_reason, message.error_message) == ("stop", "STOP", None)
    assert message.metadata == {"responseModel": f"{MODEL}-001"}
    assert message.usage is None


def test_without_a_requested_model_the_message_has_the_name_in_the_response() -> None:
    message = from_gemini(response({"text": "a"}))
    assert (message.model, message.metadata) == (f"{MODEL}-001", None)


def test_signatures_stay_with_the_parts_they_came_with() -> None:
    message = read(
        {"text": "a", "thought": True, "thoughtSignature": "c2ln"},
        {"text": "b", "thoughtSignature": "c2ln"},
        {"text": "c"},
        {"inlineData": {"mimeType": "image/png", "data": PNG.data}, "thoughtSignature": "c2ln"},
        {**call("f", "g1"), "thoughtSignature": "c2ln"},
        {"text": "", "thoughtSignature": "c2ln"},
    )
    assert message.content == (
        ThinkingBlock(text="a", signature="c2ln"),
        TextBlock(text="b", signature="c2ln"),
        TextBlock(text="c"),
        ImageBlock(media=PNG, signature="c2ln"),
        ToolCallBlock(id="g1", name="f", signature="c2ln"),
        TextBlock(text="", signature="c2ln"),
    )


def test_an_answer_goes_back_to_its_model_unchanged() -> None:
    parts: list[Json] = [
        {"text": "a", "thought": True},
        {"text": "b", "thoughtSignature": "c2ln"},
        {**call("f", "g1", x=1), "thoughtSignature": "c2ln"},
        call("f", "g2", x=2),
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"text": "", "thoughtSignature": "c2ln"},
    ]
    context = context_of(asks("a"), read(*parts), results("g2", "2"), results("g1", "1"))
    body = to_gemini(context).body
    require_legal(body)
    assert cast("list[Json]", body["contents"])[1] == {"role": "model", "parts": parts}


def test_calls_without_an_id_get_one_that_no_other_call_has() -> None:
    found = [each.id for _ in range(2) for each in read(call("f"), call("f")).tool_calls()]
    assert len(set(found)) == 4
    assert all(each.startswith("call_") for each in found)


def test_a_call_by_its_name_on_the_wire_is_one_of_the_tool() -> None:
    message = from_gemini(response(call("seven_up", "g1", a=1)), names={"seven_up": "7 up"})
    assert message.content == (ToolCallBlock(id="g1", name="7 up", arguments={"a": 1}),)


@pytest.mark.parametrize(
    ("mime_type", "kind"),
    [("image/png", ImageBlock), ("audio/wav", AudioBlock), ("video/mp4", VideoBlock), ("text/csv", DocumentBlock)],
)
def test_media_are_blocks_of_their_kind(mime_type: str, kind: type[Block]) -> None:
    (inline,) = read({"inlineData": {"mimeType": mime_type, "data": "QUJD"}}).content
    (stored,) = read({"fileData": {"mimeType": mime_type, "fileUri": "files/1"}}).content
    assert (type(inline), type(stored)) == (kind, kind)
    assert (inline, stored) == (
        kind.model_validate({"media": MediaRef(kind="data", data="QUJD", mime_type=mime_type)}),
        kind.model_validate({"media": MediaRef(kind="file_id", file_id="files/1", mime_type=mime_type)}),
    )


def test_parts_of_other_kinds_are_kept_whole() -> None:
    part: Json = {"executableCode": {"language": "PYTHON", "code": "1"}}
    assert read(part).content == (UnknownBlock(raw=part),)


def test_sources_stand_with_the_text() -> None:
    candidate: Json = {
        "content": {"parts": [{"text": "a"}, call("f", "g1")]},
        "finishReason": "STOP",
        "citationMetadata": {"citations": [{"uri": "https://example.com/a", "startIndex": 1}]},
        "groundingMetadata": {"groundingChunks": [{"web": {"uri": "https://example.com/b", "title": "B"}}]},
    }
    (text, _) = from_gemini({"candidates": [candidate]}).content
    refs = (AnnotationRef(url="https://example.com/a"), AnnotationRef(url="https://example.com/b", title="B"))
    assert text == TextBlock(text="a", annotations=refs)


def test_only_the_first_candidate_is_read() -> None:
    first, second = response({"text": "a"}), response({"text": "b"})
    other = {**cast("list[Json]", second["candidates"])[0], "index": 1}
    message = from_gemini({**first, "candidates": [*cast("list[JsonValue]", first["candidates"]), other]})
    assert message.text_content() == "a"


# --- why it ended -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "ours"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "guardRail"),
        ("RECITATION", "guardRail"),
        ("PROHIBITED_CONTENT", "guardRail"),
        ("IMAGE_SAFETY", "guardRail"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("OTHER", "stop"),
        ("SOMETHING_NEW", "stop"),
    ],
)
def test_stop_reasons_are_ours_with_the_provider_s_own_word(raw: str, ours: str) -> None:
    message = read({"text": "a"}, finish=raw)
    assert (message.stop_reason, message.raw_stop_reason) == (ours, raw)
    assert message.error_message == (raw if ours == "error" else None)


def test_every_word_of_the_sdk_has_a_meaning() -> None:
    from google.genai import types

    for word in types.FinishReason:
        assert read(finish=word.value).raw_stop_reason == word.value


@pytest.mark.parametrize(("raw", "ours"), [("STOP", "toolUse"), ("OTHER", "toolUse"), ("MAX_TOKENS", "length")])
def test_a_model_that_calls_a_tool_stops_for_that_though_it_says_stop_in_the_same_piece(raw: str, ours: str) -> None:
    message = read(call("f"), finish=raw)
    assert (message.stop_reason, message.raw_stop_reason) == (ours, raw)


def test_a_call_in_an_earlier_piece_counts_too() -> None:
    answer = GeminiAnswer(MODEL)
    answer.take(response(call("f"), finish=None))
    answer.take(response({"text": ""}))
    assert answer.message().stop_reason == "toolUse"


def test_a_prompt_that_a_filter_refused_makes_a_message_with_the_reason() -> None:
    message = from_gemini({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "no"}})
    assert (message.stop_reason, message.raw_stop_reason, message.content) == ("guardRail", "PROHIBITED_CONTENT", ())
    assert message.error_message == "no"


def test_a_prompt_that_was_blocked_for_any_reason_is_refused() -> None:
    from google.genai import types

    for word in (*(each.value for each in types.BlockedReason), "SOMETHING_NEW"):
        message = from_gemini({"promptFeedback": {"blockReason": word}})
        assert (message.stop_reason, message.raw_stop_reason) == ("guardRail", word)
    # The same words of an answer mean something else.
    assert read({"text": "a"}, finish="OTHER").stop_reason == "stop"


# --- usage --------------------------------------------------------------------------------------------------------

USAGE: Json = {
    "promptTokenCount": 100,
    "toolUsePromptTokenCount": 7,
    "cachedContentTokenCount": 40,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 5,
    "totalTokenCount": 132,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 70}, {"modality": "IMAGE", "tokenCount": 30}],
}


def test_cached_tokens_are_taken_out_of_the_input_and_thoughts_into_the_output() -> None:
    message = from_gemini(response(usageMetadata=USAGE), rates=Rates(input=Decimal(1), output=Decimal(2)))
    usage = message.usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning, usage.total_tokens) == (67, 40, 25, 5, 132)
    assert (usage.image_tokens, usage.audio_tokens) == (30, None)
    assert usage.raw == USAGE
    assert usage.cost is not None
    assert (usage.cost.total, usage.cost.source) == (Decimal(67 + 50) / 1_000_000, "caller")


def test_a_missing_total_is_the_sum_and_no_count_is_negative() -> None:
    usage = read(usageMetadata={"promptTokenCount": 10, "cachedContentTokenCount": 40, "candidatesTokenCount": 2}).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.output, usage.total_tokens) == (0, 40, 2, 42)


def test_reported_usage_replaces_what_was_reported_before() -> None:
    answer = GeminiAnswer(MODEL)
    told = answer.take(response({"text": "a"}, finish=None, usageMetadata={"promptTokenCount": 9}))
    told += answer.take(response({"text": "b"}, usageMetadata={**USAGE, "thoughtsTokenCount": None}))
    assert [event.input for event in told if isinstance(event, Usage)] == [9, 67]
    assert [event.output for event in told if isinstance(event, Usage)] == [0, 20]


# --- streams ------------------------------------------------------------------------------------------------------

CHUNKS = (
    response({"text": "Let me ", "thought": True}, finish=None, usageMetadata={"promptTokenCount": 9}),
    response({"text": "see.", "thought": True}, finish=None),
    response({"text": "It "}, finish=None),
    response({"text": "is"}, {"text": " so.", "thoughtSignature": SIGNATURE}, finish=None),
    response(
        call("f", "g1", path="ü", snake_case=None),
        {"inlineData": {"mimeType": "image/png", "data": PNG.data}},
        finish=None,
    ),
    response({"text": ""}, usageMetadata=USAGE),
)
WHOLE = response(
    {"text": "Let me see.", "thought": True},
    {"text": "It is"},
    {"text": " so.", "thoughtSignature": SIGNATURE},
    call("f", "g1", path="ü", snake_case=None),
    {"inlineData": {"mimeType": "image/png", "data": PNG.data}},
    usageMetadata=USAGE,
)


def told_by(chunks: Sequence[Json]) -> tuple[GeminiAnswer, list[ModelEvent]]:
    answer = GeminiAnswer(MODEL)
    return answer, [event for chunk in chunks for event in answer.take(chunk)]


def plain(message: AssistantMessage) -> AssistantMessage:
    return message.model_copy(update={"timestamp": None})


def test_a_stream_builds_the_same_message_as_the_whole_response() -> None:
    answer, told = told_by(CHUNKS)
    assert answer.is_complete
    assert plain(answer.message()) == plain(from_gemini(WHOLE, model=MODEL))
    pieces = [event for event in told if isinstance(event, Piece)]
    assert [(piece.kind, piece.text, piece.block) for piece in pieces] == [
        ("thinking", "Let me ", 0),
        ("thinking", "see.", 0),
        ("text", "It ", 1),
        ("text", "is", 1),
        ("text", " so.", 2),
        ("toolCall", '{"path": "ü", "snake_case": null}', 3),
    ]
    assert pieces[-1].tool_name == "f"


@pytest.mark.parametrize("by_alias", [True, False])
async def test_the_sdk_s_own_objects_give_the_same_in_either_spelling(by_alias: bool) -> None:
    from google import genai
    from google.genai import types

    lines = "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in CHUNKS)

    def answer(request: httpx2.Request) -> httpx2.Response:
        del request
        return httpx2.Response(200, text=lines, headers={"content-type": "text/event-stream"})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as transport:
        client = genai.Client(api_key="none", http_options=types.HttpOptions(httpx_async_client=transport))
        events = await client.aio.models.generate_content_stream(model=MODEL, contents="hi")
        dumped = [event.model_dump(mode="json", by_alias=by_alias) async for event in events]
    read_back, _ = told_by(dumped)
    message = plain(read_back.message())
    whole = plain(from_gemini(WHOLE, model=MODEL))
    assert message.usage is not None
    assert whole.usage is not None
    assert message.usage.model_copy(update={"raw": None}) == whole.usage.model_copy(update={"raw": None})
    signed = message.content[2]
    assert isinstance(signed, TextBlock)
    assert signed.signature == SIGNATURE.replace("+", "-").replace("/", "_")  # the SDK writes the alphabet of URLs
    same = (*message.content[:2], signed.model_copy(update={"signature": SIGNATURE}), *message.content[3:])
    assert same == whole.content
    assert (message.stop_reason, message.response_id, message.model) == ("toolUse", "r1", MODEL)


def test_a_stream_that_breaks_off_keeps_the_content_so_far() -> None:
    answer, _ = told_by(CHUNKS[:5])
    assert not answer.is_complete
    message = answer.message("the connection broke")
    assert (message.stop_reason, message.error_message) == ("error", "the connection broke")
    assert len(message.content) == 5
    assert message.usage is not None


def test_an_empty_chunk_adds_nothing() -> None:
    assert GeminiAnswer().take({"candidates": [{}], "modelVersion": MODEL}) == []


def test_events_are_not_changed() -> None:
    before = json.dumps(CHUNKS)
    told_by(CHUNKS)
    assert json.dumps(CHUNKS) == before


# --- what is no answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("malformed", "path"),
    [
        ({}, "candidates"),
        ({"id": "x", "choices": []}, "candidates"),
        ({"candidates": {}}, "candidates"),
        ({"candidates": "x"}, "candidates"),
        ({"candidates": [1]}, "candidates.0"),
        ({"candidates": [{"content": "x"}]}, "candidates.0.content"),
        ({"candidates": [{"content": {"parts": {}}}]}, "candidates.0.content.parts"),
        ({"candidates": [{"finishReason": 1}]}, "candidates.0.finishReason"),
        ({"candidates": [{"citationMetadata": 1}]}, "candidates.0.citationMetadata"),
        ({"candidates": [{"citationMetadata": {"citations": 1}}]}, "candidates.0.citationMetadata.citations"),
        ({"candidates": [{"groundingMetadata": []}]}, "candidates.0.groundingMetadata"),
        (response("x"), "candidates.0.content.parts.0"),  # type: ignore[arg-type]
        (response({"functionCall": "f"}), "candidates.0.content.parts.0.functionCall"),
        (response({"functionCall": {}}), "candidates.0.content.parts.0.functionCall.name"),
        (response({"functionCall": {"name": 1}}), "candidates.0.content.parts.0.functionCall.name"),
        (response({"functionCall": {"name": "f", "args": [1]}}), "candidates.0.content.parts.0.functionCall.args"),
        (response({"functionCall": {"name": "f", "id": 1}}), "candidates.0.content.parts.0.functionCall.id"),
        (response({"text": "\ud800"}), "candidates.0.content.parts.0.text"),
        (response(call("f", a=float("nan"))), "candidates.0.content.parts.0.functionCall.args.a"),
        (response({"text": "a", "thoughtSignature": 1}), "candidates.0.content.parts.0.thoughtSignature"),
        (response({"inlineData": "x"}), "candidates.0.content.parts.0.inlineData"),
        (response({"inlineData": {}}), "candidates.0.content.parts.0.inlineData"),
        (response({"inlineData": {"data": "@@"}}), "candidates.0.content.parts.0.inlineData"),
        (response({"inlineData": {"data": 1}}), "candidates.0.content.parts.0.inlineData.data"),
        (response({"fileData": {"mimeType": "a/b"}}), "candidates.0.content.parts.0.fileData"),
        (response(usageMetadata=[]), "usageMetadata"),
        (response(usageMetadata={"promptTokensDetails": 1}), "usageMetadata.promptTokensDetails"),
        (response(modelVersion=1), "modelVersion"),
        (response(responseId=["r"]), "responseId"),
        ({"promptFeedback": "x"}, "promptFeedback"),
        ({"promptFeedback": {"blockReason": 1}}, "promptFeedback.blockReason"),
    ],
)
def test_a_malformed_response_is_refused_with_the_path_to_its_fault(malformed: Json, path: str) -> None:
    with pytest.raises(DecodeError) as refused:
        from_gemini(malformed)
    assert refused.value.path == path


def test_arguments_that_are_nested_too_deep_for_the_log_are_refused() -> None:
    with pytest.raises(DecodeError, match=r"candidates.*: nested deeper than"):
        read({"functionCall": {"name": "f", "args": {"a": json.loads("[" * 200 + "]" * 200)}}})


def test_an_error_in_the_stream_raises_with_its_text() -> None:
    answer, _ = told_by(CHUNKS[:2])
    with pytest.raises(DecodeError, match="overloaded"):
        answer.take({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}})
    with pytest.raises(DecodeError):
        answer.take({"type": "ping"})
    assert answer.message("it broke").content == (ThinkingBlock(text="Let me see."),)
