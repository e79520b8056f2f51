"""A context becomes a request that Chat Completions accepts, with everything that it can represent."""

import json
import re
from typing import Literal, cast

import httpx2
import pytest
from pydantic import JsonValue

from lanebus.agent import ToolSpec
from lanebus.bus.messages import (
    AnnotationBlock,
    AssistantMessage,
    AudioBlock,
    Block,
    BranchSummary,
    Compaction,
    DataBlock,
    DeveloperMessage,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
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
from lanebus.providers import ContentRefused, NoModel, ProviderRequest, ToolChoice, to_openai_chat
from tests.support.log.entries import asks, calls, context_of, results, says
from tests.support.providers.openai_chat_rules import require_legal

MODEL = "gpt-5.2"
PNG = MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234")
PDF = MediaRef.from_bytes(b"%PDF-1.7 x", filename="a.pdf")
MP3 = MediaRef.from_bytes(b"ID3\x03")
STORED = MediaRef(kind="sha256", sha256="0" * 64)
Wire = dict[str, JsonValue]


def request_for(*messages: Publishable) -> ProviderRequest:
    request = to_openai_chat(context_of(*messages), model=MODEL)
    require_legal(request.body)
    return request


def messages_of(request: ProviderRequest) -> list[Wire]:
    return cast("list[Wire]", request.body["messages"])


def wire(*messages: Publishable) -> list[Wire]:
    return messages_of(request_for(*messages))


def user(*content: Block | str) -> UserMessage:
    return UserMessage(content=tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content))


def said(content: JsonValue) -> Wire:
    return {"role": "user", "content": content}


def text(words: str) -> Wire:
    return {"type": "text", "text": words}


def image(media: MediaRef = PNG) -> Wire:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{media.data}"}}


def answered(*content: Block, **fields: JsonValue) -> JsonValue:
    """The content of the wire result of a call that was answered so."""
    given = ToolResultMessage.model_validate({"tool_call_id": "x", "content": content, **fields})
    result = wire(asks("a"), calls("x"), given)[2]
    assert (result["role"], result["tool_call_id"]) == ("tool", "x")
    return result["content"]


# --- the body -----------------------------------------------------------------------------------------------------


def test_a_body_holds_model_and_messages_and_nothing_else() -> None:
    assert request_for(SystemMessage.text("be kind"), asks("hi")) == ProviderRequest(
        {"model": MODEL, "messages": [{"role": "system", "content": "be kind"}, said("hi")]}
    )


def test_options_are_passed_on() -> None:
    tool = ToolSpec("fs.read", "Reads.", {"type": "object"})
    request = to_openai_chat(context_of(asks("hi")), model=MODEL, max_tokens=7, tools=[tool], stream=True, store=False)
    require_legal(request.body)
    function: Wire = {"name": "fs_read", "description": "Reads.", "parameters": {"type": "object"}}
    assert {name: value for name, value in request.body.items() if name not in {"model", "messages"}} == {
        "max_completion_tokens": 7,
        "tools": [{"type": "function", "function": function}],
        "store": False,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert request.tool_names == {"fs_read": "fs.read"}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice("auto"), "auto"),
        (ToolChoice("required"), "required"),
        (ToolChoice("none"), "none"),
        (ToolChoice("named", "fs.read"), {"type": "function", "function": {"name": "fs_read"}}),
    ],
)
def test_a_tool_choice_is_sent_only_with_tools(choice: ToolChoice, sent: JsonValue) -> None:
    tool = ToolSpec("fs.read", "", {})
    request = to_openai_chat(context_of(asks("hi")), model=MODEL, tools=[tool], tool_choice=choice)
    require_legal(request.body)
    assert request.body["tool_choice"] == sent
    assert "tool_choice" not in to_openai_chat(context_of(asks("hi")), model=MODEL, tool_choice=choice).body


def test_without_a_model_the_context_names_it_or_it_is_an_error() -> None:
    assert to_openai_chat(context_of(ModelChange(provider="openai", model="o9"), asks("hi"))).body["model"] == "o9"
    with pytest.raises(NoModel):
        to_openai_chat(context_of(asks("hi")))


def test_a_request_for_an_empty_context_has_one_placeholder() -> None:
    assert wire() == [said("...")]


# --- instructions -------------------------------------------------------------------------------------------------

_INSTRUCTIONS = (
    asks("a"),
    DeveloperMessage.text("1"),
    asks("b"),
    SystemMessage.of("2", "3"),
    SystemMessage.of(""),
)


def test_instructions_stand_first_in_order_and_in_their_roles() -> None:
    assert wire(*_INSTRUCTIONS) == [
        {"role": "developer", "content": "1"},
        {"role": "system", "content": [text("2"), text("3")]},
        said("a"),
        said("b"),
    ]


def test_a_developers_instructions_are_the_systems_on_demand() -> None:
    request = to_openai_chat(context_of(*_INSTRUCTIONS), model=MODEL, merge_developer=True)
    assert [message["role"] for message in messages_of(request)] == ["system", "system", "user", "user"]


def test_summaries_reach_the_wire() -> None:
    found = wire(asks("a"), Compaction(summary="S1"), BranchSummary(summary="S2"))
    assert ["S1" in str(found[0]), "S2" in str(found[1])] == [True, True]


# --- what is said -------------------------------------------------------------------------------------------------


def test_one_text_is_a_string_and_several_are_parts() -> None:
    assert wire(asks("a"), user("b", "", "c")) == [said("a"), said([text("b"), text("c")])]


def test_an_empty_user_message_is_empty_text_and_one_that_lost_everything_is_left_out() -> None:
    assert wire(user(), user("")) == [said(""), said("")]
    assert wire(asks("a"), user(DataBlock(mime_type="x/y"))) == [said("a")]


def test_an_empty_answer_is_left_out() -> None:
    assert wire(asks("a"), says(""), asks("b")) == [said("a"), said("b")]


def test_white_space_is_kept() -> None:
    assert wire(asks(" "), says("b \n")) == [said(" "), {"role": "assistant", "content": "b \n"}]


def test_an_answer_holds_its_texts_and_its_calls() -> None:
    call = ToolCallBlock(id="x", name="read", arguments={"ü": 1})
    assert wire(asks("a"), says("b", call, "c"))[1] == {
        "role": "assistant",
        "content": [text("b"), text("c")],
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "read", "arguments": '{"ü": 1}'}}],
    }


# --- calls and results --------------------------------------------------------------------------------------------


def test_each_result_is_a_message_after_its_calls_in_their_order() -> None:
    found = wire(asks("a"), calls("x", "y"), asks("and?"), results("y", "2"), results("x", "1"), asks("now"))
    assert "content" not in found[1]
    assert found[2:] == [
        {"role": "tool", "tool_call_id": "x", "content": "1"},
        {"role": "tool", "tool_call_id": "y", "content": "2"},
        said("and?"),
        said("now"),
    ]


def test_a_call_without_a_result_is_answered_by_an_error() -> None:
    assert wire(asks("a"), calls("x"))[2]["content"] == "[TOOL ERROR] No result provided"


def test_texts_of_a_result_are_kept_and_json_stands_for_one_without() -> None:
    one, two = TextBlock(text="1"), TextBlock(text="2")
    assert answered(one) == "1"
    assert answered(one, two) == [text("1"), text("2")]
    assert answered(ToolResultBlock(tool_call_id="x", content=(one,))) == "1"
    assert answered(structured={"ü": [1]}) == '{"ü": [1]}'
    assert answered(one, structured={"a": 1}) == "1"
    assert answered() == ""


def test_a_failed_result_starts_with_a_prefix() -> None:
    one = TextBlock(text="1")
    assert answered(one, is_error=True) == "[TOOL ERROR] 1"
    assert answered(one, one, status="failed") == [text("[TOOL ERROR] 1"), text("1")]
    assert answered(is_error=True) == "[TOOL ERROR] (no output)"
    assert answered(ImageBlock(media=PNG), is_error=True) == "[TOOL ERROR] (see the next message)"


@pytest.mark.parametrize(("prefix", "sent"), [("Failed: ", "Failed: 1"), ("", "1")])
def test_the_prefix_is_the_callers(prefix: str, sent: str) -> None:
    failed = ToolResultMessage(tool_call_id="x", content=(TextBlock(text="1"),), is_error=True)
    request = to_openai_chat(context_of(asks("a"), calls("x"), failed), model=MODEL, error_prefix=prefix)
    assert messages_of(request)[2]["content"] == sent
    assert failed.content == (TextBlock(text="1"),)


def test_media_of_results_follow_all_results_in_a_users_message() -> None:
    first = ToolResultMessage(tool_call_id="x", content=(ImageBlock(media=PNG), AudioBlock(media=MP3)))
    second = ToolResultMessage(tool_call_id="y", content=(TextBlock(text="2"), DocumentBlock(media=PDF)))
    request = request_for(asks("a"), calls("x", "y"), first, second, asks("b"))
    audio: Wire = {"type": "input_audio", "input_audio": {"data": MP3.data, "format": "mp3"}}
    file: Wire = {"file_data": f"data:application/pdf;base64,{PDF.data}", "filename": "a.pdf"}
    assert messages_of(request)[2:] == [
        {"role": "tool", "tool_call_id": "x", "content": "(see the next message)"},
        {"role": "tool", "tool_call_id": "y", "content": "2"},
        said(
            [
                text("Media in the result of call x:"),
                image(),
                audio,
                text("Media in the result of call y:"),
                {"type": "file", "file": file},
            ]
        ),
        said("b"),
    ]
    assert not request.warnings


def test_media_of_results_are_not_lost_at_the_end_of_a_request() -> None:
    last = ToolResultMessage(tool_call_id="x", content=(ImageBlock(media=PNG),))
    assert wire(asks("a"), calls("x"), last)[-1] == said([text("Media in the result of call x:"), image()])


def test_illegal_ids_are_made_legal_and_stay_apart_at_calls_and_results() -> None:
    ids = ["a.b", "a:b", "a_b", "", "x" * 41, "x" * 42, "ok"]
    request = request_for(asks("a"), calls(*ids), *(results(call, call) for call in reversed(ids)))
    _, assistant, *given = messages_of(request)
    called = [cast("str", call["id"]) for call in cast("list[Wire]", assistant["tool_calls"])]
    assert [request.call_ids.get(call, call) for call in called] == ids
    assert (called[2], called[6]) == ("a_b", "ok")
    assert [message["tool_call_id"] for message in given] == called
    assert [message["content"] for message in given] == ids


def test_an_id_used_again_in_a_later_message_is_another_on_the_wire() -> None:
    found = wire(asks("a"), calls("x"), results("x", "1"), calls("x"), results("x", "2"))
    assert found[2]["tool_call_id"] != found[4]["tool_call_id"]
    assert found[4]["content"] == "2"


@pytest.mark.parametrize(
    ("call", "sent", "warned"),
    [
        (ToolCallBlock(id="x", name="t", arguments={"a": 1}), {"a": 1}, False),
        (ToolCallBlock(id="x", name="t", arguments=None), {}, False),
        (ToolCallBlock(id="x", name="t", arguments=[1]), {"value": [1]}, True),
        (ToolCallBlock(id="x", name="t", arguments="a"), {"value": "a"}, True),
        (ToolCallBlock(id="x", name="t", arguments={"a": 1}, arguments_raw='{"a":2}'), {"a": 1}, False),
        (ToolCallBlock(id="x", name="t", arguments_raw=""), {}, False),
    ],
)
def test_arguments_are_the_text_of_an_object(call: ToolCallBlock, sent: Wire, warned: bool) -> None:
    request = request_for(asks("a"), says(call))
    (wire_call,) = cast("list[Wire]", messages_of(request)[1]["tool_calls"])
    assert json.loads(cast("dict[str, str]", wire_call["function"])["arguments"]) == sent
    assert any("arguments" in warning for warning in request.warnings) is warned


@pytest.mark.parametrize("raw", ['{"a":', "[1]"])
def test_arguments_that_are_no_json_object_go_back_as_they_came_with_a_warning(raw: str) -> None:
    context = context_of(asks("a"), says(ToolCallBlock(id="x", name="t", arguments_raw=raw)))
    request = to_openai_chat(context)
    (call,) = cast("list[Wire]", messages_of(request)[1]["tool_calls"])
    assert cast("Wire", call["function"])["arguments"] == raw
    assert request.warnings == ("messages.1: arguments of tool call 'x' are no JSON object, sent as they came",)
    with pytest.raises(ContentRefused):
        to_openai_chat(context, strict=True)


def test_audio_of_a_model_goes_back_as_its_transcript_with_a_warning() -> None:
    request = to_openai_chat(context_of(asks("a"), says(AudioBlock(media=MP3, transcript="hello"))))
    assert messages_of(request)[1] == {"role": "assistant", "content": "hello"}
    assert request.warnings == ("messages.1: audio sent as its transcript: assistants cannot send it",)


def test_an_illegal_tool_name_is_made_legal_with_a_warning() -> None:
    request = request_for(asks("a"), says(ToolCallBlock(id="x", name="fs.read"), ToolCallBlock(id="y", name="n" * 65)))
    assert request.warnings[0] == "messages.1: tool name 'fs.read' sent as 'fs_read'"
    assert set(request.tool_names.values()) == {"fs.read", "n" * 65}


# --- thinking -----------------------------------------------------------------------------------------------------

SIGNED = ThinkingBlock(text="hm", signature="sig")
REDACTED = RedactedThinkingBlock(data="xx")


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_thinking_is_left_out_with_one_warning_or_sent_as_text(provider: str) -> None:
    answer = AssistantMessage(content=(SIGNED, REDACTED, TextBlock(text="b")), provider=provider, model=MODEL)
    context = context_of(asks("a"), answer, asks("c"), answer)
    dropped = to_openai_chat(context, strict=True)
    told = to_openai_chat(context, foreign_thinking="text")
    assert messages_of(dropped)[1] == {"role": "assistant", "content": "b"}
    assert len(dropped.warnings) == 1
    assert dropped.warnings[0].startswith("messages.1 and 1 more: thinking left out: ")
    assert messages_of(told)[1] == {"role": "assistant", "content": [text("[Reasoning] hm"), text("b")]}
    assert "sig" not in json.dumps(told.body)
    assert "xx" not in json.dumps(told.body)


# --- media --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (ImageBlock(media=PNG), image()),
        (ImageBlock(media=MediaRef(kind="data", data=PNG.data, mime_type="image/jpeg")), image()),
        (ImageBlock(media=MediaRef(kind="data", data="Pz8/")), image(MediaRef(kind="data", data="Pz8/"))),
        (
            ImageBlock(media=MediaRef.from_url("https://example.com/a.png"), detail="high"),
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "high"}},
        ),
        (AudioBlock(media=MP3), {"type": "input_audio", "input_audio": {"data": MP3.data, "format": "mp3"}}),
        (
            AudioBlock(media=MediaRef(kind="data", data="Pz8/")),
            {"type": "input_audio", "input_audio": {"data": "Pz8/", "format": "wav"}},
        ),
        (
            DocumentBlock(media=MediaRef.from_bytes(b"%PDF-1.7 x")),
            {
                "type": "file",
                "file": {"file_data": f"data:application/pdf;base64,{PDF.data}", "filename": "document.pdf"},
            },
        ),
        (
            DocumentBlock(media=MediaRef(kind="file_id", file_id="file-1")),
            {"type": "file", "file": {"file_id": "file-1"}},
        ),
        (DocumentBlock(media=MediaRef.from_bytes(b"whole", mime_type="text/markdown")), text("whole")),
        (DocumentBlock(media=MediaRef.from_url("https://example.com/a.pdf"), excerpt="whole"), text("whole")),
        (DocumentBlock(media=STORED, text="whole", excerpt="part"), text("whole")),
    ],
)
def test_media_have_the_part_that_fits(block: Block, part: Wire) -> None:
    request = request_for(user(block))
    assert messages_of(request) == [said([part])]
    assert not request.warnings


def test_audio_that_cannot_be_sent_is_replaced_by_its_transcript() -> None:
    request = request_for(user(AudioBlock(media=STORED, transcript="hello")))
    assert messages_of(request) == [said([text("hello")])]
    assert request.warnings == ("messages.0: audio sent as its transcript: audio is taken inline alone",)


def test_stored_media_are_sent_as_what_they_were_resolved_to() -> None:
    context = context_of(user(ImageBlock(media=STORED)))
    request = to_openai_chat(context, model=MODEL, media={"0" * 64: PNG}, strict=True)
    assert messages_of(request) == [said([image()])]


_UNSENDABLE: list[tuple[Block, str]] = [
    (VideoBlock(media=MediaRef.from_url("https://example.com/a.mp4")), "video"),
    (DataBlock(mime_type="x/y"), "data"),
    (AnnotationBlock(), "annotation"),
    (ErrorBlock(message="boom"), "error 'boom'"),
    (UnknownBlock(raw={"type": "new"}), "unknown"),
    (SIGNED, "thinking"),
    (ToolCallBlock(id="x", name="t"), "toolCall"),
    (ImageBlock(media=MediaRef.from_bytes(b"II*\0", mime_type="image/tiff")), "image"),
    (ImageBlock(media=MediaRef.from_url("s3://bucket/a.png")), "image"),
    (ImageBlock(media=MediaRef(kind="file_id", file_id="file-1")), "image"),
    (ImageBlock(media=STORED), "image"),
    (AudioBlock(media=MediaRef.from_bytes(b"fLaC\0\0\0\x22")), "audio"),
    (AudioBlock(media=MediaRef.from_url("https://example.com/a.mp3")), "audio"),
    (DocumentBlock(media=MediaRef.from_bytes(b"\0", mime_type="x/docx")), "document"),
    (DocumentBlock(media=MediaRef.from_bytes(b"\xff", mime_type="text/plain")), "document"),
    (DocumentBlock(media=MediaRef.from_url("https://example.com/a.pdf")), "document"),
    (DocumentBlock(media=STORED), "document"),
]


@pytest.mark.parametrize(("block", "named"), _UNSENDABLE)
def test_what_the_api_cannot_represent_is_left_out_with_a_warning(block: Block, named: str) -> None:
    context = context_of(asks("a"), says("b"), user("c", block))
    request = to_openai_chat(context)
    assert messages_of(request)[2] == said([text("c")])
    assert len(request.warnings) == 1
    assert re.match(rf"messages\.2: {re.escape(named)} left out: .", request.warnings[0])
    with pytest.raises(ContentRefused) as refused:
        to_openai_chat(context, strict=True)
    assert (refused.value.provider, refused.value.losses) == ("openai", request.warnings)


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_an_image_of_a_model_or_in_instructions_is_left_out(role: Literal["assistant", "system"]) -> None:
    content = (TextBlock(text="b"), ImageBlock(media=PNG))
    message = AssistantMessage(content=content) if role == "assistant" else SystemMessage(content=content)
    request = request_for(asks("a"), message)
    assert {"role": role, "content": "b"} in messages_of(request)
    assert "image left out" in request.warnings[0]


# --- what is sent -------------------------------------------------------------------------------------------------


def test_a_request_may_be_changed_without_changing_the_next() -> None:
    context = _everything()
    before = json.dumps(to_openai_chat(context).body)
    for message in messages_of(to_openai_chat(context)):
        message["name"] = "x"
        if isinstance(content := message.get("content"), list):
            content.clear()
    assert json.dumps(to_openai_chat(context).body) == before


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_sends_the_body_as_it_is(stream: bool) -> None:
    import openai

    sent: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return httpx2.Response(500)

    tools = [ToolSpec("read", "Reads.", {"type": "object", "properties": {"ü": {"type": "number"}}})]
    body = to_openai_chat(
        _everything(), stream=stream, tools=tools, tool_choice=ToolChoice("auto"), max_tokens=9, store=False
    ).body
    require_legal(body)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as transport:
        client = openai.AsyncOpenAI(api_key="none", http_client=transport, max_retries=0)
        with pytest.raises(openai.InternalServerError):
            # The body is plain JSON; that it fits the SDK's types is checked above.
            await client.chat.completions.create(**body)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownMemberType]
    assert json.loads(sent[0]) == body


def _everything() -> Context:
    return context_of(
        SystemMessage.text("be kind"),
        DeveloperMessage.text("be short"),
        user("look", ImageBlock(media=PNG), DocumentBlock(media=PDF), AudioBlock(media=MP3)),
        says(SIGNED, "so", ToolCallBlock(id="a.b", name="read", arguments={"ü": 1.5}), model=MODEL),
        ToolResultMessage(tool_call_id="a.b", content=(TextBlock(text="1"), ImageBlock(media=PNG))),
        calls("x"),
        asks("and?"),
    )
