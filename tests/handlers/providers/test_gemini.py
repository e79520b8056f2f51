"""A context becomes a request that Gemini's API accepts, with everything that it can represent."""

import json
import re
from typing import cast

import httpx2
import pytest
from pydantic import JsonValue
from pydantic.alias_generators import to_camel

from lanebus.agent import ToolSpec
from lanebus.bus.messages import (
    AnnotationBlock,
    AssistantMessage,
    AudioBlock,
    Block,
    Compaction,
    DataBlock,
    DeveloperMessage,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    LlmMessage,
    MediaRef,
    ModelChange,
    Publishable,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    UnknownBlock,
    UserMessage,
    VideoBlock,
)
from lanebus.context import Context
from lanebus.handlers.providers.answer import minted_id
from lanebus.providers import ContentRefused, NoModel, ProviderRequest, ToolChoice, to_gemini
from tests.support.log.entries import asks, calls, context_of, results
from tests.support.providers.gemini_rules import require_legal

MODEL = "gemini-3-pro"
SIGNATURE = "c2ln"
UNSIGNED = "skip_thought_signature_validator"  # the one that Google documents
PNG = MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234")
PDF = MediaRef.from_bytes(b"%PDF-1.7 x")
MP3 = MediaRef.from_bytes(b"ID3\x03")
TOOL = ToolSpec("add", "Adds.", {"type": "object", "properties": {}})
Wire = dict[str, JsonValue]


def request_for(*messages: Publishable) -> ProviderRequest:
    request = to_gemini(context_of(*messages), model=MODEL)
    require_legal(request.body)
    return request


def contents(*messages: Publishable) -> list[tuple[str, list[Wire]]]:
    return contents_of(request_for(*messages))


def contents_of(request: ProviderRequest) -> list[tuple[str, list[Wire]]]:
    found = cast("list[Wire]", request.body["contents"])
    return [(cast("str", content["role"]), cast("list[Wire]", content["parts"])) for content in found]


def user(*content: Block | str) -> UserMessage:
    return UserMessage(content=tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content))


def says(*content: Block | str, model: str = MODEL) -> AssistantMessage:
    blocks = tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content)
    return AssistantMessage(content=blocks, provider="google", model=model)


def inline(media: MediaRef, mime_type: str | None = None) -> Wire:
    return {"inlineData": {"mimeType": mime_type or media.mime_type, "data": media.data}}


def answered(*content: Block, **fields: JsonValue) -> list[Wire]:
    """The content that answers a call which was answered so."""
    given = ToolResultMessage.model_validate({"tool_call_id": "x", "content": content, **fields})
    return contents(asks("a"), calls("x"), given)[2][1]


def response(value: JsonValue, name: str = "tool") -> Wire:
    return {"functionResponse": {"name": name, "response": value}}


# --- the body -----------------------------------------------------------------------------------------------------


def test_a_body_holds_instructions_and_contents_and_neither_model_nor_streaming() -> None:
    system = SystemMessage(content=(TextBlock(text="be kind"),))
    request = to_gemini(context_of(system, asks("hi")), model=MODEL, stream=True, cache=True)
    assert request == ProviderRequest(
        {
            "systemInstruction": {"parts": [{"text": "be kind"}]},
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        }
    )


def test_max_tokens_are_sent_if_they_are_set() -> None:
    request = to_gemini(context_of(asks("hi")), model=MODEL, max_tokens=7)
    require_legal(request.body)
    assert request.body["generationConfig"] == {"maxOutputTokens": 7}


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (ToolChoice("auto"), {"mode": "AUTO"}),
        (ToolChoice("required"), {"mode": "ANY"}),
        (ToolChoice("none"), {"mode": "NONE"}),
        (ToolChoice("named", "add"), {"mode": "ANY", "allowedFunctionNames": ["add"]}),
    ],
)
def test_tools_are_declared_with_their_json_schema_and_the_choice(choice: ToolChoice, config: Wire) -> None:
    body = to_gemini(context_of(asks("hi")), model=MODEL, tools=[TOOL], tool_choice=choice).body
    require_legal(body)
    declared: Wire = {"name": "add", "description": "Adds.", "parametersJsonSchema": {**TOOL.schema}}
    assert body["tools"] == [{"functionDeclarations": [declared]}]
    assert body["toolConfig"] == {"functionCallingConfig": config}


def test_without_a_model_the_context_must_name_one() -> None:
    assert not to_gemini(context_of(ModelChange(provider="google", model=MODEL), asks("hi"))).warnings
    with pytest.raises(NoModel):
        to_gemini(context_of(asks("hi")))


def test_instructions_of_both_roles_are_joined_in_order_by_an_empty_line() -> None:
    request = request_for(
        asks("a"),
        DeveloperMessage(content=(TextBlock(text="1"), TextBlock(text=" "))),
        asks("b"),
        SystemMessage(content=(TextBlock(text="2"), TextBlock(text="3"))),
    )
    assert request.body["systemInstruction"] == {"parts": [{"text": "1\n\n2\n\n3"}]}
    assert contents_of(request) == [("user", [{"text": "a"}, {"text": "b"}])]


def test_a_summary_reaches_the_wire() -> None:
    assert "S1" in str(contents(asks("a"), Compaction(summary="S1"))[0])


# --- contents -----------------------------------------------------------------------------------------------------


def test_adjacent_messages_of_one_role_become_one_content() -> None:
    assert contents(asks("a"), asks("b"), says("c"), says("d")) == [
        ("user", [{"text": "a"}, {"text": "b"}]),
        ("model", [{"text": "c"}, {"text": "d"}]),
    ]


def test_a_request_that_would_not_begin_with_a_user_begins_with_a_placeholder() -> None:
    assert contents(says("hi")) == [("user", [{"text": "..."}]), ("model", [{"text": "hi"}])]
    assert contents() == [("user", [{"text": "..."}])]


def test_an_empty_message_is_left_out() -> None:
    assert contents(asks("a"), says(""), asks(" ")) == [("user", [{"text": "a"}])]


def test_the_results_of_a_batch_come_first_in_one_content_in_the_order_of_their_calls() -> None:
    shape = contents(
        asks("a"),
        AssistantMessage(content=(ToolCallBlock(id="x", name="f"), ToolCallBlock(id="y", name="g"))),
        results("y", "2"),
        results("x", "1"),
        asks("now"),
    )
    assert [role for role, _ in shape] == ["user", "model", "user"]
    assert [part["functionCall"] for part in shape[1][1]] == [{"name": name, "args": {}} for name in "fg"]
    assert shape[2][1] == [response({"result": "1"}, "f"), response({"result": "2"}, "g"), {"text": "now"}]


# --- calls and results --------------------------------------------------------------------------------------------


def test_a_call_without_a_result_is_answered_by_an_error() -> None:
    assert contents(asks("a"), calls("x"))[2][1] == [response({"result": "[TOOL ERROR] No result provided"})]


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
    assert answered(*(TextBlock(text=text) for text in content), **fields) == [response(told)]


def test_a_result_inside_a_result_gives_its_content() -> None:
    inner = ToolResultBlock(tool_call_id="x", content=(TextBlock(text="1"),))
    assert answered(inner) == [response({"result": "1"})]


def test_the_mark_of_an_error_may_be_another() -> None:
    request = to_gemini(context_of(asks("a"), calls("x")), model=MODEL, error_prefix="FAILED: ")
    assert contents_of(request)[2][1] == [response({"result": "FAILED: No result provided"})]


def test_media_in_a_result_are_part_of_its_response_if_the_model_accepts_that() -> None:
    parts: list[JsonValue] = [inline(PNG)]
    held: Wire = {"functionResponse": {"name": "tool", "response": {"result": "1"}, "parts": parts}}
    assert answered(TextBlock(text="1"), ImageBlock(media=PNG)) == [held]
    assert answered(AudioBlock(media=MP3)) == [response({"result": ""}), inline(MP3)]


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "models/gemini-1.5-flash", "gemma-3-27b-it"])
def test_media_in_results_follow_all_responses_for_older_models(model: str) -> None:
    batch = [
        asks("a"),
        calls("x", "y"),
        ToolResultMessage(tool_call_id="x", content=(TextBlock(text="1"), ImageBlock(media=PNG))),
        ToolResultMessage(tool_call_id="y", content=(ImageBlock(media=PNG), TextBlock(text="2"))),
        asks("now"),
    ]
    request = to_gemini(context_of(*batch), model=model)
    require_legal(request.body)
    said: list[Wire] = [response({"result": "1"}), response({"result": "2"}), inline(PNG), inline(PNG), {"text": "now"}]
    assert contents_of(request)[2][1] == said


def test_a_model_gets_its_own_ids_back_and_no_others() -> None:
    made_up = minted_id()
    own = says(ToolCallBlock(id="g1", name="f"), ToolCallBlock(id=made_up, name="f"))
    shape = contents(asks("a"), own, results("g1", "1"), results(made_up, "2"), calls("toolu_1"))
    assert [cast("Wire", part["functionCall"]).get("id") for part in shape[1][1]] == ["g1", None]
    assert [cast("Wire", part["functionResponse"]).get("id") for part in shape[2][1]] == ["g1", None]
    assert "toolu_1" not in json.dumps(shape)


@pytest.mark.parametrize(
    ("call", "sent", "warned"),
    [
        (ToolCallBlock(id="x", name="t", arguments={"a": 1}), {"a": 1}, False),
        (ToolCallBlock(id="x", name="t", arguments=None), {}, False),
        (ToolCallBlock(id="x", name="t", arguments=[1]), {"value": [1]}, True),
        (ToolCallBlock(id="x", name="t", arguments_raw='{"a":'), {"value": '{"a":'}, True),
    ],
)
def test_arguments_are_sent_as_an_object(call: ToolCallBlock, sent: Wire, warned: bool) -> None:
    request = request_for(asks("a"), says(call))
    assert cast("Wire", contents_of(request)[1][1][0]["functionCall"])["args"] == sent
    assert any("arguments" in warning for warning in request.warnings) is warned


def test_illegal_names_are_made_legal_at_call_and_response_with_a_warning() -> None:
    request = request_for(asks("a"), says(ToolCallBlock(id="x", name="7 up")), results("x", "1"))
    (_, (call,)), (_, (told,)) = contents_of(request)[1:]
    sent = cast("Wire", call["functionCall"])["name"]
    assert cast("Wire", told["functionResponse"])["name"] == sent
    assert [*request.tool_names.items()] == [(sent, "7 up")]
    assert request.warnings == (f"messages.1: tool name '7 up' sent as {sent!r}",)


# --- thinking and signatures --------------------------------------------------------------------------------------

SIGNED: tuple[Block, ...] = (
    ThinkingBlock(text="hm", signature=SIGNATURE),
    ThinkingBlock(text="well"),
    TextBlock(text="so", signature=SIGNATURE),
    TextBlock(text="", signature=SIGNATURE),
    ImageBlock(media=PNG, signature=SIGNATURE),
    ToolCallBlock(id="g1", name="f", signature=SIGNATURE),
)


def test_thoughts_and_signatures_go_back_to_the_model_that_wrote_them_at_the_parts_they_came_with() -> None:
    assert contents(asks("a"), says(*SIGNED))[1][1] == [
        {"text": "hm", "thought": True, "thoughtSignature": SIGNATURE},
        {"text": "well", "thought": True},
        {"text": "so", "thoughtSignature": SIGNATURE},
        {"text": "", "thoughtSignature": SIGNATURE},
        {**inline(PNG), "thoughtSignature": SIGNATURE},
        {"functionCall": {"name": "f", "args": {}, "id": "g1"}, "thoughtSignature": SIGNATURE},
    ]


@pytest.mark.parametrize(
    "other",
    [
        says(*SIGNED, model="gemini-2.5-pro"),
        AssistantMessage(content=SIGNED, provider="google-vertex", model=MODEL),
        AssistantMessage(content=SIGNED),
    ],
)
def test_signatures_of_other_models_are_not_sent_and_their_thoughts_only_as_text(other: AssistantMessage) -> None:
    context = context_of(asks("a"), other)
    dropped, told = to_gemini(context, model=MODEL), to_gemini(context, model=MODEL, foreign_thinking="text")
    call: Wire = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": UNSIGNED}
    assert contents_of(dropped)[1][1] == [{"text": "so"}, call]
    assert [part.get("text") for part in contents_of(told)[1][1]] == ["[Reasoning] hm", "[Reasoning] well", "so", None]
    assert SIGNATURE not in json.dumps([dropped.body, told.body])


def signatures(request: ProviderRequest) -> list[JsonValue]:
    """Of all calls, in order; None where there is none."""
    parts = [part for _, parts in contents_of(request) for part in parts]
    return [part.get("thoughtSignature") for part in parts if "functionCall" in part]


def test_the_first_call_of_each_step_of_the_current_turn_is_signed_by_a_placeholder_where_another_model_made_it() -> (
    None
):
    before = (asks("a"), calls("x"), results("x", "1"), says("so"))
    own = says(ToolCallBlock(id="g1", name="f", signature=SIGNATURE))
    current = (asks("b"), calls("y", "z"), results("y", "2"), results("z", "3"), calls("v"), results("v", "4"), own)
    request = request_for(*before, *current)
    assert signatures(request) == [None, UNSIGNED, None, UNSIGNED, SIGNATURE]
    assert request.warnings == ()


def test_what_a_user_says_while_a_tool_runs_does_not_end_the_current_turn() -> None:
    assert signatures(request_for(asks("a"), calls("x"), results("x", "1"), asks("hurry"))) == [UNSIGNED]
    assert signatures(request_for(asks("a"), calls("x"), results("x", "1"), says("so"), asks("b"))) == [None]


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
    assert signatures(to_gemini(context_of(asks("a"), calls("x")), model=model)) == [signature]


def test_a_signature_that_cannot_be_one_is_left_out_with_a_warning() -> None:
    request = request_for(asks("a"), says(ThinkingBlock(text="hm", signature='{"id": 1}'), "b"))
    assert contents_of(request)[1][1] == [{"text": "hm", "thought": True}, {"text": "b"}]
    assert request.warnings == ("messages.1: signature left out: it is not base64",)


def test_redacted_thinking_is_not_sent() -> None:
    assert contents(asks("a"), says(RedactedThinkingBlock(data="xx"), "b"))[1][1] == [{"text": "b"}]


def test_parts_of_the_providers_own_tools_go_back_to_the_model_that_used_them() -> None:
    ran = UnknownBlock(raw={"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": SIGNATURE})
    assert contents(asks("a"), says(ran, "b"))[1][1][0] == ran.raw
    request = request_for(asks("a"), says(ran, "b", model="gemini-2.5-pro"))
    assert contents_of(request)[1][1] == [{"text": "b"}]
    assert request.warnings == ("messages.1: unknown left out: assistants cannot send it",)


# --- media --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (ImageBlock(media=PNG), inline(PNG)),
        (ImageBlock(media=MediaRef(kind="data", data=PNG.data, mime_type="image/jpeg")), inline(PNG, "image/png")),
        (AudioBlock(media=MP3), inline(MP3)),
        (DocumentBlock(media=PDF), inline(PDF)),
        (DocumentBlock(media=MediaRef(kind="sha256", sha256="0" * 64), text="whole"), {"text": "whole"}),
        (
            VideoBlock(media=MediaRef.from_url("gs://bucket/a", mime_type="video/mp4")),
            {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/a"}},
        ),
        (
            ImageBlock(media=MediaRef(kind="file_id", file_id="files/1", mime_type="image/png")),
            {"fileData": {"mimeType": "image/png", "fileUri": "files/1"}},
        ),
    ],
)
def test_media_have_the_part_that_fits(block: Block, part: Wire) -> None:
    request = request_for(user(block))
    assert contents_of(request)[0][1] == [part]
    assert not request.warnings


def test_a_media_type_guessed_from_a_name_is_a_warning() -> None:
    request = request_for(user(ImageBlock(media=MediaRef.from_url("https://example.com/a.JPG?size=1"))))
    assert contents_of(request)[0][1] == [
        {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://example.com/a.JPG?size=1"}}
    ]
    assert request.warnings == ("messages.0: type of image not known, sent as image/jpeg after its name",)


def test_stored_media_are_sent_as_what_they_were_resolved_to() -> None:
    stored = ImageBlock(media=MediaRef(kind="sha256", sha256="0" * 64))
    request = to_gemini(context_of(user(stored)), model=MODEL, media={"0" * 64: PNG})
    assert contents_of(request)[0][1] == [inline(PNG)]


_UNSENDABLE: list[tuple[Block, str]] = [
    (DataBlock(mime_type="x/y"), "data"),
    (AnnotationBlock(), "annotation"),
    (ErrorBlock(message="boom"), "error 'boom'"),
    (UnknownBlock(raw={"executableCode": {}}), "unknown"),
    (ThinkingBlock(text="hm"), "thinking"),
    (ToolCallBlock(id="x", name="t"), "toolCall"),
    (ImageBlock(media=MediaRef.from_bytes(b"GIF89a....")), "image"),
    (ImageBlock(media=PDF), "image"),
    (ImageBlock(media=MediaRef.from_url("https://example.com/a")), "image"),
    (ImageBlock(media=MediaRef.from_url("s3://bucket/a.png")), "image"),
    (ImageBlock(media=MediaRef(kind="sha256", sha256="0" * 64)), "image"),
    (ImageBlock(media=MediaRef(kind="file_id", file_id="files/1")), "image"),
    (AudioBlock(media=PNG), "audio"),
    (VideoBlock(media=MediaRef.from_url("https://example.com/a.png")), "video"),
    (DocumentBlock(media=MediaRef.from_bytes(b"\0", mime_type="x/docx")), "document"),
]


@pytest.mark.parametrize(("block", "named"), _UNSENDABLE)
def test_what_the_api_cannot_represent_is_left_out_with_a_warning(block: Block, named: str) -> None:
    request = request_for(asks("a"), says("b"), user("c", block))
    assert contents_of(request)[2] == ("user", [{"text": "c"}])
    assert len(request.warnings) == 1
    assert re.match(rf"messages\.2: {re.escape(named)} left out: .", request.warnings[0])


@pytest.mark.parametrize(
    "where",
    [
        user("a", DataBlock(mime_type="x/y")),
        AssistantMessage(content=(ImageBlock(media=PNG),)),
        SystemMessage(content=(ImageBlock(media=PNG),)),
        user(ImageBlock(media=MediaRef.from_url("https://example.com/a.png"))),
    ],
)
def test_strict_mode_refuses_what_the_api_cannot_represent_or_has_to_guess(where: LlmMessage) -> None:
    with pytest.raises(ContentRefused) as refused:
        to_gemini(context_of(where), model=MODEL, strict=True)
    assert refused.value.provider == "google"
    assert len(refused.value.losses) == 1


# --- what is sent -------------------------------------------------------------------------------------------------


def test_a_request_may_be_changed_without_changing_what_it_was_made_of() -> None:
    call = ToolCallBlock(id="x", name="f", arguments={"a": {"b": [1]}})
    given = ToolResultMessage(tool_call_id="x", structured={"c": {"d": [2]}})
    context, tool = context_of(asks("a"), says(call), given), ToolSpec("f", "", {"type": "object", "x": [3]})
    before = to_gemini(context, tools=[tool]).body
    spoiled = to_gemini(context, tools=[tool]).body
    _spoil(spoiled)
    assert spoiled != before
    assert to_gemini(context, tools=[tool]).body == before


def _spoil(value: JsonValue) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value["spoiled"] = True
    elif isinstance(value, list):
        for item in value:
            _spoil(item)
        value.append("spoiled")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_sends_the_body_for_the_same_content(stream: bool) -> None:
    # It has no way to send a body as it is: it takes the fields apart, checks each and writes them anew.
    from google import genai
    from google.genai import errors, types

    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(500, json={})

    body = to_gemini(
        _everything(), tools=[TOOL], tool_choice=ToolChoice("named", "add"), max_tokens=7, stream=stream
    ).body
    require_legal(body)
    fields = cast("dict[str, dict[str, int]]", body)
    config = types.GenerateContentConfig.model_validate(
        {
            **{key: body[key] for key in ("systemInstruction", "tools", "toolConfig")},
            "maxOutputTokens": fields["generationConfig"]["maxOutputTokens"],
        }
    )
    contents = [types.Content.model_validate_json(json.dumps(each)) for each in cast("list[Wire]", body["contents"])]
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as transport:
        client = genai.Client(api_key="none", http_options=types.HttpOptions(httpx_async_client=transport))
        asked = client.aio.models.generate_content_stream if stream else client.aio.models.generate_content
        with pytest.raises(errors.ServerError):
            async for _ in await asked(model=MODEL, contents=contents, config=config):  # type: ignore[union-attr]
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


def _everything() -> Context:
    return context_of(
        SystemMessage(content=(TextBlock(text="be kind"),)),
        user("look", ImageBlock(media=PNG), DocumentBlock(media=PDF), AudioBlock(media=MP3)),
        says(*SIGNED, ToolCallBlock(id="a.b", name="read", arguments={"ü": 1.5, "snake_case": None})),
        ToolResultMessage(tool_call_id="a.b", content=(TextBlock(text="1"), ImageBlock(media=PNG))),
        calls("x"),
        asks("and?"),
        ModelChange(provider="google", model=MODEL),
    )
