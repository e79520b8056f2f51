"""A context becomes a request that OpenAI's Responses API accepts, with everything that it can represent."""

import json
import re
from typing import cast

import httpx2
import pytest
from pydantic import JsonValue

from lanebus.agent import ToolSpec
from lanebus.bus.messages import (
    AnnotationBlock,
    AssistantMessage,
    AudioBlock,
    Block,
    DataBlock,
    DeveloperMessage,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    MediaRef,
    Publishable,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UnknownBlock,
    UserMessage,
    VideoBlock,
)
from lanebus.context import Context
from lanebus.providers import ContentRefused, NoModel, ProviderRequest, ToolChoice, to_openai_responses
from tests.support.log.entries import asks, calls, context_of, results, says
from tests.support.providers.openai_responses_rules import require_legal

MODEL = "gpt-5.2"
PNG = MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234")
PDF = MediaRef.from_bytes(b"%PDF-1.7 x", filename="a.pdf")
STORED = MediaRef(kind="sha256", sha256="0" * 64)
Wire = dict[str, JsonValue]


def request_for(*messages: Publishable) -> ProviderRequest:
    request = to_openai_responses(context_of(*messages), model=MODEL)
    require_legal(request.body)
    return request


def items_of(request: ProviderRequest) -> list[Wire]:
    return cast("list[Wire]", request.body["input"])


def items(*messages: Publishable) -> list[Wire]:
    return items_of(request_for(*messages))


def user(*content: Block | str) -> UserMessage:
    return UserMessage(content=tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content))


def answer(*content: Block | str, model: str = MODEL, provider: str = "openai") -> AssistantMessage:
    return says(*content).model_copy(update={"model": model, "provider": provider})


def text(words: str) -> Wire:
    return {"type": "input_text", "text": words}


def said(*parts: Wire, role: str = "user") -> Wire:
    return {"type": "message", "role": role, "content": [*parts]}


def spoken(item: Wire) -> tuple[JsonValue, list[JsonValue]]:
    """An item's type, and the texts of an answer or who is called."""
    if item["type"] == "message":
        return item["type"], [part["text"] for part in cast("list[Wire]", item["content"])]
    return item["type"], [item.get("call_id") or item.get("id")]


def answered(*content: Block, **fields: JsonValue) -> JsonValue:
    """The output of a call that was answered so."""
    given = ToolResultMessage.model_validate({"tool_call_id": "x", "content": content, **fields})
    result = items(asks("a"), calls("x"), given)[2]
    assert (result["type"], result["call_id"]) == ("function_call_output", "x")
    return result["output"]


# --- the body -----------------------------------------------------------------------------------------------------


def test_a_body_holds_model_instructions_and_input_and_nothing_else() -> None:
    assert request_for(SystemMessage.text("be kind"), asks("hi")) == ProviderRequest(
        {"model": MODEL, "instructions": "be kind", "input": [said(text("hi"))]}
    )


def test_options_are_passed_on() -> None:
    tool = ToolSpec("fs.read", "Reads.", {"type": "object"})
    context = context_of(asks("hi"))
    request = to_openai_responses(context, model=MODEL, max_tokens=16, tools=[tool], stream=True, store=False)
    require_legal(request.body)
    wire = {
        "type": "function",
        "name": "fs_read",
        "description": "Reads.",
        "parameters": {"type": "object"},
        "strict": False,
    }
    assert {name: value for name, value in request.body.items() if name not in {"model", "input"}} == {
        "max_output_tokens": 16,
        "tools": [wire],
        "store": False,
        "stream": True,
    }
    assert request.tool_names == {"fs_read": "fs.read"}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice("auto"), "auto"),
        (ToolChoice("required"), "required"),
        (ToolChoice("none"), "none"),
        (ToolChoice("named", "fs.read"), {"type": "function", "name": "fs_read"}),
    ],
)
def test_a_tool_choice_is_sent_only_with_tools(choice: ToolChoice, sent: JsonValue) -> None:
    tool = ToolSpec("fs.read", "", {})
    request = to_openai_responses(context_of(asks("hi")), model=MODEL, tools=[tool], tool_choice=choice)
    require_legal(request.body)
    assert request.body["tool_choice"] == sent
    assert "tool_choice" not in to_openai_responses(context_of(asks("hi")), model=MODEL, tool_choice=choice).body


def test_a_session_that_names_no_model_has_no_request() -> None:
    with pytest.raises(NoModel):
        to_openai_responses(context_of(asks("hi")))


def test_a_request_for_an_empty_context_has_one_placeholder() -> None:
    assert items() == [said(text("..."))]
    assert items(SystemMessage.text("be kind"), user(), says("")) == [said(text("..."))]


# --- instructions -------------------------------------------------------------------------------------------------

_INSTRUCTIONS = (
    asks("a"),
    SystemMessage.of("1", "2"),
    SystemMessage.text("3"),
    DeveloperMessage.of("4", "5"),
    SystemMessage.text("6"),
    DeveloperMessage.text(""),
)


def test_instructions_keep_their_order_and_their_roles() -> None:
    request = request_for(*_INSTRUCTIONS)
    assert request.body["instructions"] == "12\n\n3"
    assert items_of(request) == [
        said(text("4"), text("5"), role="developer"),
        said(text("6"), role="system"),
        said(text("a")),
    ]


def test_a_developers_instructions_are_the_systems_on_demand() -> None:
    request = to_openai_responses(context_of(*_INSTRUCTIONS), model=MODEL, merge_developer=True)
    assert request.body["instructions"] == "12\n\n3\n\n45\n\n6"
    assert items_of(request) == [said(text("a"))]


# --- what is said -------------------------------------------------------------------------------------------------


def test_an_answers_texts_are_one_message_until_it_calls() -> None:
    call = ToolCallBlock(id="x", name="read", arguments={"ü": 1})
    found = items(asks("a"), says("b", "", "c", call, "d"), results("x", "1"))
    assert [spoken(item) for item in found] == [
        ("message", ["a"]),
        ("message", ["b", "c"]),
        ("function_call", ["x"]),
        ("message", ["d"]),
        ("function_call_output", ["x"]),
    ]
    assert found[1] == {
        "type": "message",
        "id": "msg_1_0",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "b", "annotations": []},
            {"type": "output_text", "text": "c", "annotations": []},
        ],
    }
    assert found[2] == {"type": "function_call", "call_id": "x", "name": "read", "arguments": '{"ü": 1}'}


def test_empty_text_is_left_out_and_white_space_is_kept() -> None:
    assert items(user(), user("", " "), says("")) == [said(text(" "))]


# --- calls and results --------------------------------------------------------------------------------------------


def test_results_follow_their_calls_in_order() -> None:
    found = items(asks("a"), calls("x", "y"), asks("and?"), results("y", "2"), results("x", "1"))
    assert found[3:] == [
        {"type": "function_call_output", "call_id": "x", "output": "1"},
        {"type": "function_call_output", "call_id": "y", "output": "2"},
        said(text("and?")),
    ]


def test_a_result_is_a_string_if_it_is_one_text_and_an_array_if_it_is_more() -> None:
    one = TextBlock(text="1")
    image: Wire = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG.data}", "detail": "auto"}
    file: Wire = {"type": "input_file", "file_data": f"data:application/pdf;base64,{PDF.data}", "filename": "a.pdf"}
    assert answered(one) == "1"
    assert answered() == ""
    assert answered(structured={"ü": [1]}) == '{"ü": [1]}'
    assert answered(one, one) == [text("1"), text("1")]
    assert answered(ImageBlock(media=PNG), DocumentBlock(media=PDF)) == [image, file]
    assert answered(ImageBlock(media=PNG), one, is_error=True) == [image, text("[TOOL ERROR] 1")]
    assert answered(ImageBlock(media=PNG), is_error=True) == [text("[TOOL ERROR] "), image]
    assert answered(status="failed") == "[TOOL ERROR] (no output)"


def test_illegal_ids_are_made_legal_and_stay_apart_at_calls_and_results() -> None:
    ids = ["a.b", "a:b", "a_b", "", "x" * 65, "x" * 66, "ok"]
    request = request_for(asks("a"), calls(*ids), *(results(call, call) for call in reversed(ids)))
    called = [cast("str", item["call_id"]) for item in items_of(request)[1:8]]
    assert [request.call_ids.get(call, call) for call in called] == ids
    assert [(item["call_id"], item["output"]) for item in items_of(request)[8:]] == [*zip(called, ids, strict=True)]


def test_arguments_that_did_not_parse_go_back_as_they_came() -> None:
    context = context_of(asks("a"), says(ToolCallBlock(id="x", name="t", arguments_raw='{"a":')))
    request = to_openai_responses(context)
    assert items_of(request)[1]["arguments"] == '{"a":'
    assert request.warnings == ("messages.1: arguments of tool call 'x' are no JSON object, sent as they came",)


def test_arguments_that_are_no_object_and_illegal_names_are_changed_with_a_warning() -> None:
    request = request_for(asks("a"), says(ToolCallBlock(id="x", name="fs.read", arguments=[1])))
    assert (items_of(request)[1]["name"], items_of(request)[1]["arguments"]) == ("fs_read", '{"value": [1]}')
    assert ["fs.read" in request.warnings[0], "arguments" in request.warnings[1]] == [True, True]


# --- thinking -----------------------------------------------------------------------------------------------------


def reasoning(item_id: str, encrypted: str = "x") -> ThinkingBlock:
    signature = json.dumps({"id": item_id, "encrypted_content": encrypted})
    return ThinkingBlock(text="so\n\nhm", details=("so", "hm"), signature=signature)


def redacted(item_id: str) -> RedactedThinkingBlock:
    return RedactedThinkingBlock(data=json.dumps({"id": item_id, "encrypted_content": "y"}))


def test_its_own_thinking_goes_back_to_the_model_as_it_was() -> None:
    call = ToolCallBlock(id="x", name="read")
    found = items(asks("a"), answer(reasoning("rs_1"), redacted("rs_2"), "b", reasoning("rs_3"), call))
    assert [spoken(item) for item in found[1:6]] == [
        ("reasoning", ["rs_1"]),
        ("reasoning", ["rs_2"]),
        ("message", ["b"]),
        ("reasoning", ["rs_3"]),
        ("function_call", ["x"]),
    ]
    summary = [{"type": "summary_text", "text": "so"}, {"type": "summary_text", "text": "hm"}]
    assert found[1] == {"type": "reasoning", "id": "rs_1", "encrypted_content": "x", "summary": summary}
    assert found[2] == {"type": "reasoning", "id": "rs_2", "encrypted_content": "y", "summary": []}


def test_a_signature_that_is_a_whole_item_is_read_too() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "so"}], "status": None}
    found = items(asks("a"), answer(ThinkingBlock(text="so", signature=json.dumps(item)), "b"))
    assert found[1] == {"type": "reasoning", "id": "rs_1", "summary": item["summary"]}


@pytest.mark.parametrize(
    "other",
    [
        answer(reasoning("rs_1"), redacted("rs_2"), "b", model="gpt-5"),
        answer(reasoning("rs_1"), redacted("rs_2"), "b", provider="azure"),
        answer(ThinkingBlock(text="so\n\nhm"), "b"),
        answer(ThinkingBlock(text="so\n\nhm", signature="reasoning_content"), RedactedThinkingBlock(data="xx"), "b"),
        answer(ThinkingBlock(text="so\n\nhm", signature='{"id": "rs_1", "encrypted_content": 1}'), "b"),
        answer(ThinkingBlock(text="so\n\nhm", signature='{"id": "rs_1", "status": "new"}'), "b"),
        answer(ThinkingBlock(text="so\n\nhm", signature='{"encrypted_content": "x"}'), "b"),
        answer(ThinkingBlock(text="so\n\nhm", signature='{"id": "rs_1", "summary": [1]}'), "b"),
    ],
)
def test_other_thinking_is_left_out_with_a_warning_or_sent_as_text(other: AssistantMessage) -> None:
    context = context_of(asks("a"), other)
    dropped = to_openai_responses(context, model=MODEL, strict=True)
    told = to_openai_responses(context, model=MODEL, foreign_thinking="text")
    assert [spoken(item) for item in items_of(dropped)[1:]] == [("message", ["b"])]
    assert [warning.split(":")[0] for warning in dropped.warnings] == ["messages.1"]
    assert [spoken(item) for item in items_of(told)[1:]] == [("message", ["[Reasoning] so\n\nhm", "b"])]
    assert "rs_" not in json.dumps(told.body)


def test_thinking_that_ends_a_message_is_left_out_with_a_warning() -> None:
    request = request_for(asks("a"), answer("b", reasoning("rs_1")), answer(redacted("rs_2")), asks("c"))
    assert [spoken(item)[1] for item in items_of(request)] == [["a"], ["b"], ["c"]]
    assert [warning.split(":")[0] for warning in request.warnings] == ["messages.1", "messages.2"]


def test_thinking_is_left_out_with_what_followed_it() -> None:
    searched = UnknownBlock(raw={"type": "web_search_call", "id": "ws_1", "status": "completed"})
    request = request_for(asks("a"), answer(reasoning("rs_1"), redacted("rs_2"), searched, reasoning("rs_3"), "b"))
    assert [spoken(item)[1] for item in items_of(request)] == [["a"], ["rs_3"], ["b"]]
    left_out = "thinking left out: what followed it is left out"
    assert request.warnings == (
        "messages.1: unknown left out: assistants cannot send it",
        *[f"messages.1: {left_out}"] * 2,
    )


def test_the_phase_of_a_text_goes_back_to_the_model_that_said_it_and_to_no_other() -> None:
    def said(text: str, phase: str) -> TextBlock:
        return TextBlock(text=text, signature=json.dumps({"phase": phase}))

    blocks = (said("a", "commentary"), said("b", "commentary"), said("c", "final_answer"), said("d", "new"), "e")
    found = items(asks("a"), answer(*blocks))
    assert [(item.get("phase"), spoken(item)[1]) for item in found[1:]] == [
        ("commentary", ["a", "b"]),
        ("final_answer", ["c"]),
        (None, ["d", "e"]),
    ]
    assert "phase" not in json.dumps(items(asks("a"), answer(*blocks, model="gpt-5")))


def test_thinking_goes_back_once_though_the_context_has_it_twice() -> None:
    found = items(asks("a"), answer(reasoning("rs_1"), "b"), answer(reasoning("rs_1"), "c"))
    assert [spoken(item)[0] for item in found] == ["message", "reasoning", "message", "message"]


def test_thinking_that_the_provider_did_not_store_does_not_go_back() -> None:
    only_a_name = ThinkingBlock(text="hm", signature='{"id": "rs_1"}')
    context = context_of(asks("a"), answer(only_a_name, "b"))
    kept, not_kept = to_openai_responses(context), to_openai_responses(context, store=False)
    assert ["rs_1" in json.dumps(request.body) for request in (kept, not_kept)] == [True, False]
    require_legal(not_kept.body)


# --- media --------------------------------------------------------------------------------------------------------

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            ImageBlock(media=PNG),
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG.data}", "detail": "auto"},
        ),
        (
            ImageBlock(media=MediaRef.from_url("https://example.com/a.png"), detail="high"),
            {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "high"},
        ),
        (
            ImageBlock(media=MediaRef(kind="file_id", file_id="file-1")),
            {"type": "input_image", "file_id": "file-1", "detail": "auto"},
        ),
        (
            DocumentBlock(media=PDF),
            {"type": "input_file", "file_data": f"data:application/pdf;base64,{PDF.data}", "filename": "a.pdf"},
        ),
        (
            DocumentBlock(media=MediaRef(kind="data", data="Pz8/", mime_type=DOCX), text="whole"),
            {"type": "input_file", "file_data": f"data:{DOCX};base64,Pz8/", "filename": "document"},
        ),
        (
            DocumentBlock(media=MediaRef.from_url("https://example.com/a.docx")),
            {"type": "input_file", "file_url": "https://example.com/a.docx"},
        ),
        (
            DocumentBlock(media=MediaRef(kind="file_id", file_id="file-1")),
            {"type": "input_file", "file_id": "file-1"},
        ),
        (DocumentBlock(media=MediaRef.from_bytes(b"whole", mime_type="text/csv")), text("whole")),
        (DocumentBlock(media=MediaRef.from_bytes(b"\0"), excerpt="part"), text("part")),
    ],
)
def test_media_have_the_part_that_fits(block: Block, part: Wire) -> None:
    request = request_for(user(block))
    assert items_of(request) == [said(part)]
    assert not request.warnings


_UNSENDABLE: list[tuple[Block, str]] = [
    (AudioBlock(media=MediaRef.from_bytes(b"ID3\x03")), "audio"),
    (VideoBlock(media=MediaRef.from_url("https://example.com/a.mp4")), "video"),
    (DataBlock(mime_type="x/y"), "data"),
    (AnnotationBlock(), "annotation"),
    (ErrorBlock(message="boom"), "error 'boom'"),
    (UnknownBlock(raw={"type": "new"}), "unknown"),
    (ToolCallBlock(id="x", name="t"), "toolCall"),
    (ImageBlock(media=MediaRef.from_bytes(b"II*\0", mime_type="image/tiff")), "image"),
    (ImageBlock(media=MediaRef.from_url("s3://bucket/a.png")), "image"),
    (ImageBlock(media=STORED), "image"),
    (DocumentBlock(media=MediaRef.from_bytes(b"\0")), "document"),
    (DocumentBlock(media=MediaRef.from_url("gs://bucket/a.pdf")), "document"),
    (DocumentBlock(media=STORED), "document"),
]


@pytest.mark.parametrize(("block", "named"), _UNSENDABLE)
def test_what_the_api_cannot_represent_is_left_out_with_a_warning(block: Block, named: str) -> None:
    context = context_of(asks("a"), says("b"), user("c", block))
    request = to_openai_responses(context)
    assert items_of(request)[2] == said(text("c"))
    assert len(request.warnings) == 1
    assert re.match(rf"messages\.2: {re.escape(named)} left out: .", request.warnings[0])
    with pytest.raises(ContentRefused) as refused:
        to_openai_responses(context, strict=True)
    assert (refused.value.provider, refused.value.losses) == ("openai", request.warnings)


def test_an_image_of_a_model_or_in_instructions_is_left_out() -> None:
    content = (TextBlock(text="b"), ImageBlock(media=PNG))
    request = request_for(DeveloperMessage(content=content), AssistantMessage(content=content))
    assert [spoken(item)[1] for item in items_of(request)] == [["b"], ["b"]]
    assert [warning.split(":")[0] for warning in request.warnings] == ["system.0 (developer)", "messages.0"]


# --- what is sent -------------------------------------------------------------------------------------------------


def test_a_request_may_be_changed_without_changing_the_next() -> None:
    context = _everything()
    before = json.dumps(to_openai_responses(context).body)
    for item in items_of(to_openai_responses(context)):
        item["status"] = "x"
        for part in (item.get("content"), item.get("summary"), item.get("output")):
            if isinstance(part, list):
                part.clear()
    assert json.dumps(to_openai_responses(context).body) == before


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_sends_the_body_as_it_is(stream: bool) -> None:
    import openai

    sent: list[bytes] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return httpx2.Response(500)

    tools = [ToolSpec("read", "Reads.", {"type": "object", "properties": {"ü": {"type": "number"}}})]
    body = to_openai_responses(
        _everything(), stream=stream, tools=tools, tool_choice=ToolChoice("auto"), max_tokens=16, store=False
    ).body
    require_legal(body)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(refuse)) as transport:
        client = openai.AsyncOpenAI(api_key="none", http_client=transport, max_retries=0)
        with pytest.raises(openai.InternalServerError):
            # The body is plain JSON; that it fits the SDK's types is checked above.
            await client.responses.create(**body)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownMemberType]
    assert json.loads(sent[0]) == body


def _everything() -> Context:
    return context_of(
        SystemMessage.text("be kind"),
        DeveloperMessage.text("be short"),
        user("look", ImageBlock(media=PNG), DocumentBlock(media=PDF)),
        answer(reasoning("rs_1"), "so", redacted("rs_2"), ToolCallBlock(id="a.b", name="read", arguments={"ü": 1.5})),
        ToolResultMessage(tool_call_id="a.b", content=(TextBlock(text="1"), ImageBlock(media=PNG))),
        calls("x").model_copy(update={"model": MODEL, "provider": "openai"}),
        asks("and?"),
    )
