"""Requests to Gemini's API and answers of it, where they are unlike those of other providers."""

import json
from typing import cast

import httpx2
import pytest
from pydantic import JsonValue
from pydantic.alias_generators import to_camel

from lanebus.agent import Piece, ToolSpec
from lanebus.bus import messages as our
from lanebus.bus.errors import DecodeError
from lanebus.providers import ContentRefused, GeminiAnswer, ProviderRequest, ToolChoice, from_gemini
from tests.support.log.entries import asks, calls, results
from tests.support.log.entries import says as others_say
from tests.support.providers.forms import FORMS
from tests.support.providers.replay import folded, untimed
from tests.support.providers.samples import SAMPLES, Gemini

Wire = dict[str, JsonValue]
Contents = list[tuple[str, list[Wire]]]
FORM = FORMS["gemini"]
MODEL = FORM.model
SIGNATURE = "c2ln"
UNSIGNED = "skip_thought_signature_validator"  # the one that Google documents
PNG = our.MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234")
PDF = our.MediaRef.from_bytes(b"%PDF-1.7 x")
MP3 = our.MediaRef.from_bytes(b"ID3\x03")
TOOL = ToolSpec("add", "Adds.", {"type": "object", "properties": {}})


def contents_of(request: ProviderRequest) -> Contents:
    found = cast("list[Wire]", request.body["contents"])
    return [(cast("str", content["role"]), cast("list[Wire]", content["parts"])) for content in found]


def contents(*messages: our.Publishable) -> Contents:
    return contents_of(FORM.request(*messages))


def inline(media: our.MediaRef, mime_type: str | None = None) -> Wire:
    return {"inlineData": {"mimeType": mime_type or media.mime_type, "data": media.data}}


def at(uri: str, mime_type: str) -> Wire:
    return {"fileData": {"mimeType": mime_type, "fileUri": uri}}


def call(name: str, **fields: JsonValue) -> Wire:
    return {"functionCall": {"name": name, "args": {}, **fields}}


def response(value: JsonValue, name: str = "tool") -> Wire:
    return {"functionResponse": {"name": name, "response": value}}


def answered(*content: our.Block, **fields: JsonValue) -> list[Wire]:
    """The content that answers a call which was answered so."""
    given = our.ToolResultMessage.model_validate({"tool_call_id": "x", "content": content, **fields})
    return contents(asks("a"), calls("x"), given)[2][1]


# --- requests -----------------------------------------------------------------------------------------------------


def test_a_body_holds_instructions_and_contents_and_neither_model_nor_streaming() -> None:
    said: list[our.Publishable] = [our.SystemMessage.text("be kind"), asks("hi")]
    plain: Wire = {
        "systemInstruction": {"parts": [{"text": "be kind"}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    }
    assert FORM.request(*said, stream=True, cache=True) == ProviderRequest(plain)
    declared: Wire = {"name": "add", "description": "Adds.", "parametersJsonSchema": {**TOOL.schema}}
    assert FORM.request(*said, max_tokens=7, tools=[TOOL]).body == {
        **plain,
        "generationConfig": {"maxOutputTokens": 7},
        "tools": [{"functionDeclarations": [declared]}],
    }


def test_instructions_of_both_roles_are_joined_in_order_by_an_empty_line() -> None:
    request = FORM.request(asks("a"), our.DeveloperMessage.of("1", " "), asks("b"), our.SystemMessage.of("2", "3"))
    assert request.body["systemInstruction"] == {"parts": [{"text": "1\n\n2\n\n3"}]}
    assert contents_of(request) == [("user", [{"text": "a"}, {"text": "b"}])]


def test_adjacent_messages_of_one_role_become_one_content_without_empty_ones() -> None:
    assert contents(asks("a"), asks("b"), others_say("c"), others_say("d")) == [
        ("user", [{"text": "a"}, {"text": "b"}]),
        ("model", [{"text": "c"}, {"text": "d"}]),
    ]
    assert contents(asks("a"), others_say(""), asks(" ")) == [("user", [{"text": "a"}])]


def test_the_results_of_a_batch_come_first_in_one_content_in_the_order_of_their_calls() -> None:
    batch = FORM.says(our.ToolCallBlock(id="x", name="f"), our.ToolCallBlock(id="y", name="g"), model="another")
    shape = contents(asks("a"), batch, results("y", "2"), results("x", "1"), asks("now"))
    assert [role for role, _ in shape] == ["user", "model", "user"]
    assert [part["functionCall"] for part in shape[1][1]] == [{"name": name, "args": {}} for name in "fg"]
    assert shape[2][1] == [response({"result": "1"}, "f"), response({"result": "2"}, "g"), {"text": "now"}]


@pytest.mark.parametrize(
    ("content", "fields", "told"),
    [
        (["1"], {}, {"result": "1"}),
        (["1", "2"], {}, {"result": "12"}),
        ([], {}, {"result": ""}),
        ([], {"structured": {"ü": [1]}}, {"ü": [1]}),
        ([], {"structured": [1, 2]}, {"result": [1, 2]}),
        ([], {"structured": 0}, {"result": 0}),
        (['{"ü": [1]}'], {"structured": {"ü": [1]}}, {"ü": [1]}),
        (["one"], {"structured": {"a": 1}}, {"result": "one"}),
        (["boom"], {"is_error": True}, {"result": "[TOOL ERROR] boom"}),
        (["boom"], {"status": "failed"}, {"result": "[TOOL ERROR] boom"}),
        ([], {"is_error": True}, {"result": "[TOOL ERROR] (no output)"}),
        ([], {"is_error": True, "structured": {"a": 1}}, {"result": '[TOOL ERROR] {"a": 1}'}),
    ],
)
def test_a_result_is_an_object(content: list[str], fields: Wire, told: Wire) -> None:
    assert answered(*(our.TextBlock(text=text) for text in content), **fields) == [response(told)]


def test_a_result_inside_a_result_gives_its_content_and_a_missing_one_is_an_error_with_the_callers_mark() -> None:
    assert answered(our.ToolResultBlock(tool_call_id="x", content=(our.TextBlock(text="1"),))) == [
        response({"result": "1"})
    ]
    for options, mark in (({}, "[TOOL ERROR] "), ({"error_prefix": "FAILED: "}, "FAILED: ")):
        request = FORM.request(asks("a"), calls("x"), **options)  # type: ignore[arg-type]
        assert contents_of(request)[2][1] == [response({"result": f"{mark}No result provided"})]


def test_media_in_a_result_are_part_of_its_response_if_the_model_accepts_that() -> None:
    parts: list[JsonValue] = [inline(PNG)]
    held: Wire = {"functionResponse": {"name": "tool", "response": {"result": "1"}, "parts": parts}}
    assert answered(our.TextBlock(text="1"), our.ImageBlock(media=PNG)) == [held]
    assert answered(our.AudioBlock(media=MP3)) == [response({"result": ""}), inline(MP3)]


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "models/gemini-1.5-flash", "gemma-3-27b-it"])
def test_media_in_results_follow_all_responses_for_older_models(model: str) -> None:
    first = our.ToolResultMessage(tool_call_id="x", content=(our.TextBlock(text="1"), our.ImageBlock(media=PNG)))
    second = our.ToolResultMessage(tool_call_id="y", content=(our.ImageBlock(media=PNG), our.TextBlock(text="2")))
    request = FORM.request(asks("a"), calls("x", "y"), first, second, asks("now"), model=model)
    said: list[Wire] = [response({"result": "1"}), response({"result": "2"}), inline(PNG), inline(PNG), {"text": "now"}]
    assert contents_of(request)[2][1] == said


def test_a_model_gets_its_own_ids_back_and_no_others() -> None:
    (made_up,) = (call.id for call in read(Gemini.call("f")).tool_calls())
    own = FORM.says(our.ToolCallBlock(id="g1", name="f"), our.ToolCallBlock(id=made_up, name="f"))
    shape = contents(asks("a"), own, results("g1", "1"), results(made_up, "2"), calls("toolu_1"))
    assert [cast("Wire", part["functionCall"]).get("id") for part in shape[1][1]] == ["g1", None]
    assert [cast("Wire", part["functionResponse"]).get("id") for part in shape[2][1]] == ["g1", None]
    assert "toolu_1" not in json.dumps(shape)


# --- thinking and signatures --------------------------------------------------------------------------------------

SIGNED: tuple[our.Block, ...] = (
    our.ThinkingBlock(text="hm", signature=SIGNATURE),
    our.ThinkingBlock(text="well"),
    our.TextBlock(text="so", signature=SIGNATURE),
    our.TextBlock(text="", signature=SIGNATURE),
    our.ImageBlock(media=PNG, signature=SIGNATURE),
    our.ToolCallBlock(id="g1", name="f", signature=SIGNATURE),
)


def test_thoughts_and_signatures_go_back_to_the_model_that_wrote_them_at_the_parts_they_came_with() -> None:
    assert contents(asks("a"), FORM.says(*SIGNED))[1][1] == [
        {"text": "hm", "thought": True, "thoughtSignature": SIGNATURE},
        {"text": "well", "thought": True},
        {"text": "so", "thoughtSignature": SIGNATURE},
        {"text": "", "thoughtSignature": SIGNATURE},
        {**inline(PNG), "thoughtSignature": SIGNATURE},
        {**call("f", id="g1"), "thoughtSignature": SIGNATURE},
    ]


@pytest.mark.parametrize(
    "other",
    [
        FORM.says(*SIGNED, model="gemini-2.5-pro"),
        FORM.says(*SIGNED, provider="google-vertex"),
        our.AssistantMessage(content=SIGNED),
    ],
)
def test_signatures_of_other_models_are_not_sent_and_their_thoughts_only_as_text(other: our.AssistantMessage) -> None:
    dropped, told = FORM.request(asks("a"), other), FORM.request(asks("a"), other, foreign_thinking="text")
    assert contents_of(dropped)[1][1] == [{"text": "so"}, {**call("f"), "thoughtSignature": UNSIGNED}]
    assert [part.get("text") for part in contents_of(told)[1][1]] == ["[Reasoning] hm", "[Reasoning] well", "so", None]
    assert SIGNATURE not in json.dumps([dropped.body, told.body])


def signatures(*messages: our.Publishable, model: str = MODEL) -> list[JsonValue]:
    """Of all calls, in order; None where there is none."""
    request = FORM.request(*messages, model=model)
    assert request.warnings == ()
    parts = [part for _, parts in contents_of(request) for part in parts]
    return [part.get("thoughtSignature") for part in parts if "functionCall" in part]


def test_the_first_call_of_each_step_of_the_current_turn_is_signed_by_a_placeholder_where_another_model_made_it() -> (
    None
):
    before = (asks("a"), calls("x"), results("x", "1"), others_say("so"))
    own = FORM.says(our.ToolCallBlock(id="g1", name="f", signature=SIGNATURE))
    current = (asks("b"), calls("y", "z"), results("y", "2"), results("z", "3"), calls("v"), results("v", "4"), own)
    assert signatures(*before, *current) == [None, UNSIGNED, None, UNSIGNED, SIGNATURE]
    # What a user says while a tool runs does not end the turn.
    assert signatures(*before[:3], asks("hurry")) == [UNSIGNED]
    assert signatures(*before, asks("b")) == [None]


@pytest.mark.parametrize(
    ("model", "signature"),
    [
        ("gemini-2.5-pro", None),
        ("models/gemini-2.0-flash", None),
        ("publishers/google/models/gemini-2.5-pro", None),
        ("gemini-3-flash-preview", UNSIGNED),
        ("publishers/google/models/gemini-3.1-pro-preview", UNSIGNED),
        ("gemini-10-pro", UNSIGNED),
        ("gemini-flash-latest", UNSIGNED),
    ],
)
def test_only_gemini_3_and_later_models_get_the_placeholder_signature(model: str, signature: str | None) -> None:
    assert signatures(asks("a"), calls("x"), model=model) == [signature]


def test_a_signature_that_cannot_be_one_is_left_out_with_a_warning_and_redacted_thinking_is_not_sent() -> None:
    request = FORM.request(asks("a"), FORM.says(our.ThinkingBlock(text="hm", signature='{"id": 1}'), "b"))
    assert contents_of(request)[1][1] == [{"text": "hm", "thought": True}, {"text": "b"}]
    assert request.warnings == ("messages.1: signature left out: it is not base64",)
    assert contents(asks("a"), FORM.says(our.RedactedThinkingBlock(data="xx"), "b"))[1][1] == [{"text": "b"}]


def test_parts_of_the_providers_own_tools_go_back_to_the_model_that_used_them() -> None:
    ran = our.UnknownBlock(raw={"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": SIGNATURE})
    assert contents(asks("a"), FORM.says(ran, "b"))[1][1][0] == ran.raw
    request = FORM.request(asks("a"), FORM.says(ran, "b", model="gemini-2.5-pro"))
    assert contents_of(request)[1][1] == [{"text": "b"}]
    assert request.warnings == ("messages.1: unknown left out: assistants cannot send it",)


# --- media --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (our.ImageBlock(media=PNG), inline(PNG)),
        (
            our.ImageBlock(media=our.MediaRef(kind="data", data=PNG.data, mime_type="image/jpeg")),
            inline(PNG, "image/png"),
        ),
        (our.AudioBlock(media=MP3), inline(MP3)),
        (our.DocumentBlock(media=PDF), inline(PDF)),
        (our.DocumentBlock(media=our.MediaRef(kind="sha256", sha256="0" * 64), text="whole"), {"text": "whole"}),
        (
            our.VideoBlock(media=our.MediaRef.from_url("gs://bucket/a", mime_type="video/mp4")),
            at("gs://bucket/a", "video/mp4"),
        ),
        (
            our.ImageBlock(media=our.MediaRef(kind="file_id", file_id="files/1", mime_type="image/png")),
            at("files/1", "image/png"),
        ),
    ],
)
def test_media_have_the_part_that_fits(block: our.Block, part: Wire) -> None:
    request = FORM.request(our.UserMessage.of(block))
    assert contents_of(request)[0][1] == [part]
    assert not request.warnings


def test_a_media_type_guessed_from_a_name_is_a_warning_and_refused_if_strict() -> None:
    url = "https://example.com/a.JPG?size=1"
    request = FORM.request(our.UserMessage.of(our.ImageBlock(media=our.MediaRef.from_url(url))))
    assert contents_of(request)[0][1] == [at(url, "image/jpeg")]
    assert request.warnings == ("messages.0: type of image not known, sent as image/jpeg after its name",)
    with pytest.raises(ContentRefused) as refused:
        FORM.request(our.UserMessage.of(our.ImageBlock(media=our.MediaRef.from_url(url))), strict=True)
    assert (refused.value.provider, refused.value.losses) == ("google", request.warnings)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_sends_the_body_for_the_same_content(stream: bool) -> None:
    # It has no way to send a body as it is: it takes the fields apart, checks each and writes them anew.
    from google import genai
    from google.genai import errors, types

    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(500, json={})

    choice = ToolChoice("named", "add")
    body = FORM.request(*_everything(), tools=[TOOL], tool_choice=choice, max_tokens=7, stream=stream).body
    most = cast("dict[str, int]", body["generationConfig"])["maxOutputTokens"]
    config = types.GenerateContentConfig.model_validate(
        {**{key: body[key] for key in ("systemInstruction", "tools", "toolConfig")}, "maxOutputTokens": most}
    )
    said = [types.Content.model_validate_json(json.dumps(each)) for each in cast("list[Wire]", body["contents"])]
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as transport:
        client = genai.Client(api_key="none", http_options=types.HttpOptions(httpx_async_client=transport))
        asked = client.aio.models.generate_content_stream if stream else client.aio.models.generate_content
        with pytest.raises(errors.ServerError):
            async for _ in await asked(model=MODEL, contents=said, config=config):  # type: ignore[union-attr]
                pass
    assert f"models/{MODEL}:{'streamGenerateContent' if stream else 'generateContent'}" in str(sent[0].url)
    assert _in_camel_case(json.loads(sent[0].content)) == body


_OF_THE_CALLER = {"args", "response", "parametersJsonSchema"}


def _in_camel_case(value: JsonValue) -> JsonValue:
    """The API reads both spellings, and the SDK writes now one, now the other."""
    if isinstance(value, list):
        return [_in_camel_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    named = {to_camel(key): item for key, item in value.items()}
    return {key: item if key in _OF_THE_CALLER else _in_camel_case(item) for key, item in named.items()}


def _everything() -> list[our.LlmMessage]:
    return [
        our.SystemMessage.text("be kind"),
        our.UserMessage.of("look", our.ImageBlock(media=PNG), our.DocumentBlock(media=PDF), our.AudioBlock(media=MP3)),
        FORM.says(*SIGNED, our.ToolCallBlock(id="a.b", name="read", arguments={"ü": 1.5, "snake_case": None})),
        our.ToolResultMessage(tool_call_id="a.b", content=(our.TextBlock(text="1"), our.ImageBlock(media=PNG))),
        calls("x"),
        asks("and?"),
    ]


# --- answers ------------------------------------------------------------------------------------------------------


def read(*parts: Wire, finish: str | None = "STOP", **fields: JsonValue) -> our.AssistantMessage:
    return from_gemini(Gemini.response(*parts, finish=finish, **fields), model=MODEL)


def test_an_answer_goes_back_to_its_model_unchanged_with_signatures_at_the_parts_they_came_with() -> None:
    signed: Wire = {"thoughtSignature": "c2ln"}
    parts: list[Wire] = [
        {"text": "a", "thought": True, **signed},
        {"text": "b", **signed},
        {"text": "c"},
        {"inlineData": {"mimeType": "image/png", "data": PNG.data}, **signed},
        {**Gemini.call("f", "g1", x=1), **signed},
        Gemini.call("f", "g2", x=2),
        {"executableCode": {"language": "PYTHON", "code": "1"}, **signed},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"text": "", **signed},
    ]
    message = read(*parts)
    assert message.content == (
        our.ThinkingBlock(text="a", signature="c2ln"),
        our.TextBlock(text="b", signature="c2ln"),
        our.TextBlock(text="c"),
        our.ImageBlock(media=PNG, signature="c2ln"),
        our.ToolCallBlock(id="g1", name="f", arguments={"x": 1}, signature="c2ln"),
        our.ToolCallBlock(id="g2", name="f", arguments={"x": 2}),
        our.UnknownBlock(raw=parts[6]),
        our.UnknownBlock(raw=parts[7]),
        our.TextBlock(text="", signature="c2ln"),
    )
    assert contents(asks("a"), message, results("g2", "2"), results("g1", "1"))[1] == ("model", parts)


def test_calls_without_an_id_get_one_that_no_other_call_has_and_a_wire_name_is_that_of_its_tool() -> None:
    found = [each.id for _ in range(2) for each in read(Gemini.call("f"), Gemini.call("f")).tool_calls()]
    assert len(set(found)) == 4
    assert all(each.startswith("call_") for each in found)
    message = from_gemini(Gemini.response(Gemini.call("seven_up", "g1", a=1)), names={"seven_up": "7 up"})
    assert message.content == (our.ToolCallBlock(id="g1", name="7 up", arguments={"a": 1}),)


@pytest.mark.parametrize(
    ("mime_type", "kind"),
    [
        ("image/png", our.ImageBlock),
        ("audio/wav", our.AudioBlock),
        ("video/mp4", our.VideoBlock),
        ("text/csv", our.DocumentBlock),
    ],
)
def test_media_are_blocks_of_their_kind(mime_type: str, kind: type[our.Block]) -> None:
    (inline,) = read({"inlineData": {"mimeType": mime_type, "data": "QUJD"}}).content
    (stored,) = read({"fileData": {"mimeType": mime_type, "fileUri": "files/1"}}).content
    assert (inline, stored) == (
        kind.model_validate({"media": our.MediaRef(kind="data", data="QUJD", mime_type=mime_type)}),
        kind.model_validate({"media": our.MediaRef(kind="file_id", file_id="files/1", mime_type=mime_type)}),
    )


def test_sources_stand_with_the_text_and_only_the_first_candidate_is_read() -> None:
    candidate: Wire = {
        "content": {"parts": [{"text": "a"}, Gemini.call("f", "g1")]},
        "finishReason": "STOP",
        "citationMetadata": {"citations": [{"uri": "https://example.com/a", "startIndex": 1}]},
        "groundingMetadata": {"groundingChunks": [{"web": {"uri": "https://example.com/b", "title": "B"}}]},
    }
    other: Wire = {"index": 1, "content": {"parts": [{"text": "b"}]}, "finishReason": "STOP"}
    (text, _) = from_gemini({"candidates": [candidate, other]}).content
    refs = (our.AnnotationRef(url="https://example.com/a"), our.AnnotationRef(url="https://example.com/b", title="B"))
    assert text == our.TextBlock(text="a", annotations=refs)


def test_every_word_of_the_sdk_has_a_meaning_and_a_prompt_that_was_blocked_for_any_reason_is_refused() -> None:
    from google.genai import types

    for finish in types.FinishReason:
        assert read(finish=finish.value).raw_stop_reason == finish.value
    for word in (*(each.value for each in types.BlockedReason), "SOMETHING_NEW"):
        message = from_gemini({"promptFeedback": {"blockReason": word, "blockReasonMessage": "no"}})
        assert (message.stop_reason, message.raw_stop_reason, message.content) == ("guardRail", word, ())
        assert message.error_message == "no"


def test_a_call_in_an_earlier_piece_makes_the_answer_stop_for_its_tool() -> None:
    answer = GeminiAnswer(MODEL)
    folded(answer, [Gemini.response(Gemini.call("f"), finish=None), Gemini.response({"text": ""})])
    assert answer.message().stop_reason == "toolUse"


def test_a_missing_total_is_the_sum_and_no_count_is_negative() -> None:
    usage = read(usageMetadata={"promptTokenCount": 10, "cachedContentTokenCount": 40, "candidatesTokenCount": 2}).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.output, usage.total_tokens) == (0, 40, 2, 42)
    assert read().usage is None


def test_reported_usage_replaces_what_was_reported_before_and_unreadable_usage_affects_only_its_event() -> None:
    answer = GeminiAnswer(MODEL)
    told = answer.take(Gemini.response({"text": "a"}, finish=None, usageMetadata={"promptTokenCount": 9}))
    with pytest.raises(DecodeError, match="promptTokensDetails"):
        answer.take({"usageMetadata": {"promptTokensDetails": "x"}})
    broken = answer.message("broken off").usage
    assert broken is not None
    told += answer.take(Gemini.response({"text": "b"}, usageMetadata={**Gemini.usage, "thoughtsTokenCount": None}))
    counts = [(event.input, event.output) for event in told if isinstance(event, our.Usage)]
    assert (broken.input, counts) == (9, [(9, 0), (67, 20)])


def test_the_pieces_of_a_stream_name_their_blocks() -> None:
    pieces = [event for event in folded(GeminiAnswer(MODEL), SAMPLES["gemini"].stream) if isinstance(event, Piece)]
    assert [(piece.kind, piece.text, piece.block) for piece in pieces] == [
        ("thinking", "Let me ", 0),
        ("thinking", "see.", 0),
        ("text", "It ", 1),
        ("text", "is", 1),
        ("text", " so.", 2),
        ("toolCall", '{"path": "ü", "snake_case": null}', 3),
    ]
    assert pieces[-1].tool_name == "f"


def test_a_stream_that_breaks_off_keeps_the_content_so_far_and_an_error_in_it_raises_with_its_text() -> None:
    answer = GeminiAnswer(MODEL)
    folded(answer, SAMPLES["gemini"].stream[:5])
    with pytest.raises(DecodeError, match="overloaded"):
        answer.take({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}})
    message, whole = untimed(answer.message("it broke")), from_gemini(SAMPLES["gemini"].whole)
    assert (message.content, answer.is_complete) == (whole.content, False)
    assert message.usage is not None
