"""A context becomes a request that Anthropic's API accepts, with everything that it can represent."""

import json
import re
import time
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
    BranchSummary,
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
from lanebus.handlers.providers.anthropic import CALL_ID
from lanebus.handlers.providers.request import WireIds
from lanebus.providers import ContentRefused, NoModel, ProviderRequest, to_anthropic
from tests.support.log.entries import asks, calls, context_of, results, says
from tests.support.providers.anthropic_rules import require_legal

MODEL = "claude-sonnet-5-5"
PNG = MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234")
PDF = MediaRef.from_bytes(b"%PDF-1.7 x")
AUDIO = AudioBlock(media=MediaRef.from_bytes(b"ID3\x03"))
Wire = dict[str, JsonValue]


def request_for(*messages: Publishable) -> ProviderRequest:
    request = to_anthropic(context_of(*messages), model=MODEL)
    require_legal(request.body)
    return request


def turns(*messages: Publishable) -> list[tuple[str, list[Wire]]]:
    return turns_of(request_for(*messages))


def turns_of(request: ProviderRequest) -> list[tuple[str, list[Wire]]]:
    messages = cast("list[Wire]", request.body["messages"])
    return [(cast("str", message["role"]), cast("list[Wire]", message["content"])) for message in messages]


def user(*content: Block | str) -> UserMessage:
    return UserMessage(content=tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content))


def text(said: str) -> Wire:
    return {"type": "text", "text": said}


def answered(*content: Block, **fields: JsonValue) -> Wire:
    """The wire result of a call that was answered so."""
    given = ToolResultMessage.model_validate({"tool_call_id": "x", "content": content, **fields})
    _, (result,) = turns(asks("a"), calls("x"), given)[2]
    assert result.pop("type") == "tool_result"
    assert result.pop("tool_use_id") == "x"
    return result


# --- the body -----------------------------------------------------------------------------------------------------


def test_a_body_holds_model_limit_system_and_messages_and_nothing_else() -> None:
    system = SystemMessage(content=(TextBlock(text="be kind"),))
    assert request_for(system, asks("hi")) == ProviderRequest(
        {
            "model": MODEL,
            "max_tokens": 4096,
            "system": [text("be kind")],
            "messages": [{"role": "user", "content": [text("hi")]}],
        }
    )


def test_tools_and_stream_are_passed_on() -> None:
    tool = ToolSpec("add", "Adds.", {"type": "object"})
    request = to_anthropic(context_of(asks("hi")), model=MODEL, max_tokens=7, tools=[tool], stream=True)
    require_legal(request.body)
    wire = [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}]
    assert (request.body["tools"], request.body["stream"], request.body["max_tokens"]) == (wire, True, 7)


def test_without_a_model_the_context_names_it() -> None:
    context = context_of(ModelChange(provider="anthropic", model="claude-opus-4-5"), asks("hi"))
    assert to_anthropic(context).body["model"] == "claude-opus-4-5"


def test_a_session_that_names_no_model_has_no_request() -> None:
    with pytest.raises(NoModel):
        to_anthropic(context_of(asks("hi")))


def test_instructions_of_both_roles_are_lifted_in_order() -> None:
    request = request_for(
        asks("a"),
        DeveloperMessage(content=(TextBlock(text="1"), TextBlock(text=" "))),
        asks("b"),
        SystemMessage(content=(TextBlock(text="2"), TextBlock(text="3"))),
    )
    assert request.body["system"] == [text("1"), text("2"), text("3")]
    assert turns_of(request) == [("user", [text("a"), text("b")])]


def test_summaries_reach_the_wire() -> None:
    _, blocks = turns(asks("a"), Compaction(summary="S1"), BranchSummary(summary="S2"))[0]
    assert ["S1" in str(blocks[0]), "S2" in str(blocks[1])] == [True, True]


# --- turns --------------------------------------------------------------------------------------------------------


def test_adjacent_messages_of_one_role_become_one_turn() -> None:
    assert turns(asks("a"), asks("b"), says("c"), says("d")) == [
        ("user", [text("a"), text("b")]),
        ("assistant", [text("c"), text("d")]),
    ]


def test_a_request_begins_with_the_user_also_where_the_context_does_not() -> None:
    assert turns(says("hi")) == [("user", [text("...")]), ("assistant", [text("hi")])]
    assert turns() == [("user", [text("...")])]


def test_no_placeholder_stands_where_the_user_speaks_first() -> None:
    assert turns(asks("a")) == [("user", [text("a")])]


def test_an_empty_message_is_left_out_and_its_neighbours_are_joined() -> None:
    assert turns(asks("a"), says("", " "), asks("b")) == [("user", [text("a"), text("b")])]


def test_white_space_at_the_end_of_a_last_answer_is_cut_and_elsewhere_kept() -> None:
    assert turns(asks("a "), says("b \n")) == [("user", [text("a ")]), ("assistant", [text("b")])]
    assert turns(asks("a"), says("b \n"), asks("c"))[1] == ("assistant", [text("b \n")])


def test_results_come_first_in_the_turn_after_their_calls() -> None:
    shape = turns(asks("a"), calls("x", "y"), asks("and?"), results("y", "2"), results("x", "1"), asks("now"))
    assert [role for role, _ in shape] == ["user", "assistant", "user"]
    assert shape[2][1] == [
        {"type": "tool_result", "tool_use_id": "x", "content": "1"},
        {"type": "tool_result", "tool_use_id": "y", "content": "2"},
        text("and?"),
        text("now"),
    ]


# --- calls and results --------------------------------------------------------------------------------------------


def test_a_call_without_a_result_is_answered_by_an_error() -> None:
    assert turns(asks("a"), calls("x"))[2] == (
        "user",
        [{"type": "tool_result", "tool_use_id": "x", "content": "No result provided", "is_error": True}],
    )


def test_a_result_of_one_text_is_a_string() -> None:
    assert answered(TextBlock(text="1")) == {"content": "1"}


def test_a_result_of_several_texts_and_images_keeps_them_all() -> None:
    image: Wire = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG.data}}
    assert answered(TextBlock(text="1"), ImageBlock(media=PNG), TextBlock(text="2")) == {
        "content": [text("1"), image, text("2")]
    }


def test_a_result_inside_a_result_gives_its_content() -> None:
    assert answered(ToolResultBlock(tool_call_id="x", content=(TextBlock(text="1"),))) == {"content": "1"}


def test_json_stands_for_a_result_without_content_and_only_there() -> None:
    assert answered(structured={"ü": [1]}) == {"content": '{"ü": [1]}'}
    assert answered(TextBlock(text="one"), structured={"a": 1}) == {"content": "one"}


def test_an_empty_result_has_no_content_unless_it_is_an_error() -> None:
    assert answered() == {}
    assert answered(TextBlock(text=" "), is_error=True) == {"content": "(no output)", "is_error": True}


def test_a_result_is_an_error_if_its_status_says_so() -> None:
    assert answered(TextBlock(text="1"), status="failed") == {"content": "1", "is_error": True}


def test_a_failed_result_is_sent_as_text_alone_with_a_warning_for_the_rest() -> None:
    notes = DocumentBlock(media=MediaRef.from_bytes(b"notes", mime_type="text/plain"))
    content = (TextBlock(text="1"), ImageBlock(media=PNG), DocumentBlock(media=PDF), notes)
    failed = ToolResultMessage(tool_call_id="x", content=content, is_error=True)
    request = request_for(asks("a"), calls("x"), failed)
    assert turns_of(request)[2][1][0]["content"] == [text("1"), text("notes")]
    reason = "left out: the result of a failed call holds text alone"
    assert request.warnings == (f"messages.2: image {reason}", f"messages.2: document {reason}")
    with pytest.raises(ContentRefused, match="image left out: the result of a failed call"):
        to_anthropic(context_of(asks("a"), calls("x"), failed), model=MODEL, strict=True)


def test_a_failed_result_of_an_image_alone_says_that_there_is_no_text() -> None:
    assert answered(ImageBlock(media=PNG), is_error=True) == {"content": "(no output)", "is_error": True}


def test_illegal_ids_are_made_legal_and_stay_apart_at_calls_and_results() -> None:
    ids = ["a.b", "a:b", "a_b", "", "x" * 65, "x" * 66, "ok"]
    _, assistant, (_, given) = turns(asks("a"), calls(*ids), *(results(call, call) for call in reversed(ids)))
    called = [block["id"] for block in assistant[1]]
    assert len(set(map(str, called))) == len(ids)
    assert (called[2], called[6]) == ("a_b", "ok")
    assert [block["tool_use_id"] for block in given] == called
    assert [block.get("content") for block in given] == [*ids[:3], None, *ids[4:]]


def test_an_id_used_again_in_a_later_message_is_another_on_the_wire() -> None:
    shape = turns(asks("a"), calls("x"), results("x", "1"), calls("x"), results("x", "2"))
    first, second = shape[1][1][0]["id"], shape[3][1][0]["id"]
    assert first != second
    assert (shape[4][1][0]["tool_use_id"], shape[4][1][0]["content"]) == (second, "2")


def test_a_longer_history_gives_the_calls_of_a_shorter_one_the_same_ids() -> None:
    shorter, longer, names = WireIds(CALL_ID), WireIds(CALL_ID), ["a.b", "a_b", "a_b", "", ""]
    assert [shorter.take(name) for name in names] == [longer.take(name) for name in [*names, "a.b"]][: len(names)]


def test_an_id_that_every_answer_uses_again_takes_no_longer_each_time() -> None:
    ids, begin = WireIds(CALL_ID), time.perf_counter()
    assert len({ids.take("call-0") for _ in range(10_000)}) == 10_000
    assert time.perf_counter() - begin < 2  # half a minute where each begins its search anew


@pytest.mark.parametrize(
    ("call", "sent", "warned"),
    [
        (ToolCallBlock(id="x", name="t", arguments={"a": 1}), {"a": 1}, False),
        (ToolCallBlock(id="x", name="t", arguments=None), {}, False),
        (ToolCallBlock(id="x", name="t", arguments=[1]), {"value": [1]}, True),
        (ToolCallBlock(id="x", name="t", arguments="a"), {"value": "a"}, True),
        (ToolCallBlock(id="x", name="t", arguments_raw='{"a":'), {"value": '{"a":'}, True),
        (ToolCallBlock(id="x", name="t", arguments={"a": 1}, arguments_raw='{"a":1}'), {"a": 1}, False),
    ],
)
def test_arguments_are_sent_as_an_object(call: ToolCallBlock, sent: Wire, warned: bool) -> None:
    request = request_for(asks("a"), says(call))
    assert turns_of(request)[1][1][0]["input"] == sent
    assert any("arguments" in warning for warning in request.warnings) is warned


def test_an_illegal_tool_name_is_made_legal_with_a_warning() -> None:
    request = request_for(asks("a"), says(ToolCallBlock(id="x", name="fs.read")))
    assert turns_of(request)[1][1][0]["name"] == "fs_read"
    assert request.warnings == ("messages.1: tool name 'fs.read' sent as 'fs_read'",)


# --- thinking -----------------------------------------------------------------------------------------------------

SIGNED = ThinkingBlock(text="hm", signature="sig")
REDACTED = RedactedThinkingBlock(data="xx")


def test_thinking_goes_back_verbatim_to_the_model_that_wrote_it() -> None:
    assert turns(asks("a"), says(REDACTED, SIGNED, "b", SIGNED, "c"))[1][1] == [
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        text("b"),
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        text("c"),
    ]


@pytest.mark.parametrize(
    "other",
    [
        says(SIGNED, REDACTED, "b", model="claude-opus-4-5"),
        AssistantMessage(content=(SIGNED, REDACTED, TextBlock(text="b")), provider="bedrock", model=MODEL),
        AssistantMessage(content=(SIGNED, REDACTED, TextBlock(text="b"))),
    ],
)
def test_thinking_of_another_model_or_provider_is_left_out_or_sent_as_text(other: AssistantMessage) -> None:
    context = context_of(asks("a"), other)
    dropped = to_anthropic(context, model=MODEL)
    told = to_anthropic(context, model=MODEL, foreign_thinking="text")
    assert turns_of(dropped)[1][1] == [text("b")]
    assert turns_of(told)[1][1] == [text("[Reasoning] hm"), text("b")]
    assert "sig" not in json.dumps(told.body)


def test_thinking_without_a_signature_is_never_sent_as_thinking() -> None:
    context = context_of(asks("a"), says(ThinkingBlock(text="hm"), "b"))
    assert turns_of(to_anthropic(context))[1][1] == [text("b")]
    assert turns_of(to_anthropic(context, foreign_thinking="text"))[1][1] == [text("[Reasoning] hm"), text("b")]


def test_thinking_that_ends_a_message_is_left_out_with_a_warning() -> None:
    request = request_for(asks("a"), says("b", SIGNED), asks("c"), says(SIGNED), asks("d"))
    assert turns_of(request) == [
        ("user", [text("a")]),
        ("assistant", [text("b")]),
        ("user", [text("c"), text("d")]),
    ]
    assert [warning.split(":")[0] for warning in request.warnings] == ["messages.1", "messages.3"]


# --- media --------------------------------------------------------------------------------------------------------

_DOCUMENT_TEXT: Wire = {"type": "text", "media_type": "text/plain", "data": "whole"}


@pytest.mark.parametrize(
    ("block", "source"),
    [
        (ImageBlock(media=PNG), {"type": "base64", "media_type": "image/png", "data": PNG.data}),
        (
            ImageBlock(media=MediaRef(kind="data", data=PNG.data, mime_type="image/jpeg")),
            {"type": "base64", "media_type": "image/png", "data": PNG.data},
        ),
        (
            ImageBlock(media=MediaRef.from_url("https://example.com/a.png", mime_type="image/png")),
            {"type": "url", "url": "https://example.com/a.png"},
        ),
        (ImageBlock(media=MediaRef(kind="file_id", file_id="file_1")), {"type": "file", "file_id": "file_1"}),
        (DocumentBlock(media=PDF), {"type": "base64", "media_type": "application/pdf", "data": PDF.data}),
        (
            DocumentBlock(media=MediaRef.from_url("https://example.com/a.pdf", mime_type="application/pdf")),
            {"type": "url", "url": "https://example.com/a.pdf"},
        ),
        (DocumentBlock(media=MediaRef(kind="file_id", file_id="file_1")), {"type": "file", "file_id": "file_1"}),
        (DocumentBlock(media=MediaRef.from_bytes(b"whole", mime_type="text/markdown")), _DOCUMENT_TEXT),
        (DocumentBlock(media=MediaRef(kind="sha256", sha256="0" * 64), text="whole", excerpt="part"), _DOCUMENT_TEXT),
        (DocumentBlock(media=MediaRef.from_bytes(b"\0", mime_type="x/docx"), excerpt="whole"), _DOCUMENT_TEXT),
    ],
)
def test_images_and_documents_have_the_source_that_fits(block: Block, source: Wire) -> None:
    request = request_for(user(block))
    assert turns_of(request)[0][1] == [{"type": block.type, "source": source}]
    assert not request.warnings


def test_a_document_is_called_by_its_filename() -> None:
    block = DocumentBlock(media=MediaRef.from_bytes(b"%PDF-1.7 x", filename="a.pdf"))
    assert turns(user(block))[0][1][0]["title"] == "a.pdf"


_UNSENDABLE: list[tuple[Block, str]] = [
    (AUDIO, "audio"),
    (VideoBlock(media=MediaRef.from_url("https://example.com/a.mp4")), "video"),
    (DataBlock(mime_type="x/y"), "data"),
    (AnnotationBlock(), "annotation"),
    (ErrorBlock(message="boom"), "error 'boom'"),
    (UnknownBlock(raw={"type": "new"}), "unknown"),
    (UnknownBlock(raw={"type": "server_tool_use"}), "unknown"),
    (SIGNED, "thinking"),
    (ToolCallBlock(id="x", name="t"), "toolCall"),
    (ImageBlock(media=MediaRef.from_bytes(b"II*\0", mime_type="image/tiff")), "image"),
    (ImageBlock(media=MediaRef.from_url("s3://bucket/a.png")), "image"),
    (ImageBlock(media=MediaRef(kind="sha256", sha256="0" * 64)), "image"),
    (DocumentBlock(media=MediaRef.from_bytes(b"\0", mime_type="x/docx")), "document"),
    (DocumentBlock(media=MediaRef.from_bytes(b"\xff", mime_type="text/plain")), "document"),
    (DocumentBlock(media=MediaRef.from_url("https://example.com/a.docx", mime_type="x/docx")), "document"),
]


@pytest.mark.parametrize(("block", "named"), _UNSENDABLE)
def test_what_the_api_cannot_represent_is_left_out_with_a_warning(block: Block, named: str) -> None:
    request = request_for(asks("a"), says("b"), user("c", block))
    assert turns_of(request)[2] == ("user", [text("c")])
    assert len(request.warnings) == 1
    assert re.match(rf"messages\.2: {re.escape(named)} left out: .", request.warnings[0])


@pytest.mark.parametrize("where", [user("a", AUDIO), says("a", ImageBlock(media=PNG)), SystemMessage(content=(AUDIO,))])
def test_strict_mode_refuses_what_the_api_cannot_represent(where: LlmMessage) -> None:
    with pytest.raises(ContentRefused) as refused:
        to_anthropic(context_of(where), model=MODEL, strict=True)
    assert refused.value.provider == "anthropic"
    assert len(refused.value.losses) == 1


def test_strict_mode_accepts_what_the_api_can_represent() -> None:
    context = context_of(user("a", ImageBlock(media=PNG)), says(ThinkingBlock(text="hm"), "b"))
    assert to_anthropic(context, model=MODEL, strict=True) == to_anthropic(context, model=MODEL)


def test_an_image_that_a_model_made_is_left_out_with_a_warning() -> None:
    request = request_for(asks("a"), says("b", ImageBlock(media=PNG)))
    assert turns_of(request)[1] == ("assistant", [text("b")])
    assert request.warnings == ("messages.1: image left out: assistants cannot send it",)


# --- what is sent -------------------------------------------------------------------------------------------------


def test_cache_marks_are_set_only_on_demand() -> None:
    system = SystemMessage(content=(TextBlock(text="1"), TextBlock(text="2")))
    said = (system, asks("a"), calls("x", "y"), results("x", "1"), results("y", "2"))
    tools = [ToolSpec("f", "", {"type": "object"}), ToolSpec("g", "", {"type": "object"})]
    plain = to_anthropic(context_of(*said), tools=tools).body
    marked = to_anthropic(context_of(*said), tools=tools, cache=True).body
    require_legal(marked)
    assert "cache_control" not in json.dumps(plain)
    places = [str(block) for block in _blocks(marked) if "cache_control" in block]
    assert len(places) == 3
    assert ["'2'" in places[0], "'g'" in places[1], "'x'" in places[2]] == [True] * 3
    for block in _blocks(marked):
        block.pop("cache_control", None)
    assert marked == plain


def test_no_mark_is_set_on_thinking() -> None:
    context = context_of(asks("a"), says("b", SIGNED, "c"), asks("d"))
    body = to_anthropic(context, cache=True).body
    require_legal(body)
    assert [block["text"] for block in _blocks(body) if "cache_control" in block] == ["c"]
    require_legal(to_anthropic(context_of(asks("a")), model=MODEL, cache=True).body)


def _blocks(body: Wire) -> list[Wire]:
    """All that may be marked, in the order in which a request is read."""
    system, tools = cast("list[Wire]", body.get("system", [])), cast("list[Wire]", body.get("tools", []))
    return [*system, *tools, *(block for _, blocks in turns_of(ProviderRequest(body)) for block in blocks)]


def test_a_message_and_a_tool_are_not_changed_through_the_request_that_was_made_of_them() -> None:
    call = ToolCallBlock(id="x", name="f", arguments={"a": {"b": [1]}})
    searched = UnknownBlock(raw={"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}})
    context, tool = context_of(asks("a"), says(searched, call)), ToolSpec("f", "", {"type": "object", "required": []})
    before = to_anthropic(context, tools=[tool]).body
    spoiled = to_anthropic(context, tools=[tool]).body
    for block in _blocks(spoiled):
        for key in ("input", "input_schema"):
            if isinstance(inner := block.get(key), dict):
                inner["spoiled"] = True
    assert spoiled != before
    assert to_anthropic(context, tools=[tool]).body == before


def test_a_request_may_be_changed_without_changing_the_next() -> None:
    context = context_of(asks("a"), calls("x"), results("x", "1"))
    body = to_anthropic(context).body
    for _, blocks in turns_of(ProviderRequest(body)):
        for block in blocks:
            block["cache_control"] = {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(to_anthropic(context).body)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_sends_the_body_as_it_is(stream: bool) -> None:
    import anthropic

    sent: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return httpx2.Response(500)

    context = _everything()
    body = to_anthropic(context, stream=stream).body
    require_legal(body)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as transport:
        client = anthropic.AsyncAnthropic(api_key="none", http_client=transport, max_retries=0)
        with pytest.raises(anthropic.InternalServerError):
            # The body is plain JSON; that it fits the SDK's types is checked above.
            await client.messages.create(**body)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    assert json.loads(sent[0]) == body


def _everything() -> Context:
    return context_of(
        SystemMessage(content=(TextBlock(text="be kind"),)),
        user("look", ImageBlock(media=PNG), DocumentBlock(media=PDF)),
        says(SIGNED, "so", ToolCallBlock(id="a.b", name="read", arguments={"ü": 1.5}), model=MODEL),
        ToolResultMessage(tool_call_id="a.b", content=(TextBlock(text="1"), ImageBlock(media=PNG))),
        calls("x"),
        asks("and?"),
    )
