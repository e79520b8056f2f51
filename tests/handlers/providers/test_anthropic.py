"""Requests to Anthropic's API and answers of it, where they are unlike those of other providers."""

import json
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.agent import ToolSpec
from lanebus.bus import messages as our
from lanebus.providers import AnthropicAnswer, ContentRefused, ProviderRequest, from_anthropic, to_anthropic
from tests.support.log.entries import asks, calls, context_of, results, says
from tests.support.providers.forms import FORMS
from tests.support.providers.samples import SAMPLES, anthropic_block

Wire = dict[str, JsonValue]
Turns = list[tuple[str, list[Wire]]]
FORM, SAMPLE = FORMS["anthropic"], SAMPLES["anthropic"]
PNG = our.MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234")
PDF = our.MediaRef.from_bytes(b"%PDF-1.7 x")
IMAGE: Wire = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG.data}}
SIGNED = our.ThinkingBlock(text="hm", signature="sig")
REDACTED = our.RedactedThinkingBlock(data="xx")


def turns_of(request: ProviderRequest) -> Turns:
    messages = cast("list[Wire]", request.body["messages"])
    return [(cast("str", message["role"]), cast("list[Wire]", message["content"])) for message in messages]


def turns(*messages: our.Publishable) -> Turns:
    return turns_of(FORM.request(*messages))


def text(said: str) -> Wire:
    return {"type": "text", "text": said}


def answered(*content: our.Block, **fields: JsonValue) -> Wire:
    """The wire result of a call that was answered so."""
    given = our.ToolResultMessage.model_validate({"tool_call_id": "x", "content": content, **fields})
    _, (told,) = turns(asks("a"), calls("x"), given)[2]
    return {key: value for key, value in told.items() if key not in {"type", "tool_use_id"}}


# --- requests -----------------------------------------------------------------------------------------------------


def test_a_body_holds_model_limit_system_and_messages_and_what_was_asked_for() -> None:
    said, user = our.SystemMessage.text("be kind"), [{"role": "user", "content": [text("hi")]}]
    plain = {"model": FORM.model, "max_tokens": 4096, "system": [text("be kind")], "messages": user}
    assert FORM.request(said, asks("hi")) == ProviderRequest(cast("Wire", plain))
    tool = ToolSpec("add", "Adds.", {"type": "object"})
    asked = {"max_tokens": 7, "tools": [{"name": "add", "description": "Adds.", "input_schema": tool.schema}]}
    body = FORM.request(said, asks("hi"), max_tokens=7, tools=[tool], stream=True).body
    assert body == {**plain, **asked, "stream": True}


def test_instructions_of_both_roles_are_lifted_in_order() -> None:
    instructions = (our.DeveloperMessage.of("1", " "), our.SystemMessage.of("2", "3"))
    request = FORM.request(asks("a"), instructions[0], asks("b"), instructions[1])
    assert request.body["system"] == [text("1"), text("2"), text("3")]
    assert turns_of(request) == [("user", [text("a"), text("b")])]


_TURNS: dict[str, tuple[list[our.Publishable], Turns]] = {
    "adjacent messages of one role are one turn": (
        [asks("a"), asks("b"), says("c"), says("d")],
        [("user", [text("a"), text("b")]), ("assistant", [text("c"), text("d")])],
    ),
    "an empty message is left out, and its neighbours are joined": (
        [asks("a"), says("", " "), asks("b")],
        [("user", [text("a"), text("b")])],
    ),
    "white space at the end of the last answer is cut": (
        [asks("a "), says("b \n")],
        [("user", [text("a ")]), ("assistant", [text("b")])],
    ),
    "and elsewhere kept": (
        [asks("a"), says("b \n"), asks("c")],
        [("user", [text("a")]), ("assistant", [text("b \n")]), ("user", [text("c")])],
    ),
    "thinking goes back verbatim to the model that wrote it": (
        [asks("a"), says(REDACTED, SIGNED, "b", SIGNED, "c")],
        [
            ("user", [text("a")]),
            (
                "assistant",
                [
                    {"type": "redacted_thinking", "data": "xx"},
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    text("b"),
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    text("c"),
                ],
            ),
        ],
    ),
    "thinking without a signature is never sent as thinking": (
        [asks("a"), says(our.ThinkingBlock(text="hm"), "b")],
        [("user", [text("a")]), ("assistant", [text("b")])],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), _TURNS.values(), ids=_TURNS)
def test_messages_are_sent_as_turns(messages: list[our.Publishable], expected: Turns) -> None:
    assert turns(*messages) == expected


def test_a_result_holds_its_content_or_else_its_json_and_whether_it_failed() -> None:
    one, image = our.TextBlock(text="1"), our.ImageBlock(media=PNG)
    assert answered(one) == {"content": "1"}
    assert answered(one, image, our.TextBlock(text="2")) == {"content": [text("1"), IMAGE, text("2")]}
    assert answered(our.ToolResultBlock(tool_call_id="x", content=(one,))) == {"content": "1"}
    assert answered(structured={"ü": [1]}) == {"content": '{"ü": [1]}'}
    assert answered(one, structured={"a": 1}) == {"content": "1"}
    assert answered() == {}
    assert answered(one, status="failed") == {"content": "1", "is_error": True}
    for empty in (our.TextBlock(text=" "), image):
        assert answered(empty, is_error=True) == {"content": "(no output)", "is_error": True}


def test_a_failed_result_is_sent_as_text_alone_with_a_warning_for_the_rest() -> None:
    notes = our.DocumentBlock(media=our.MediaRef.from_bytes(b"notes", mime_type="text/plain"))
    content = (our.TextBlock(text="1"), our.ImageBlock(media=PNG), our.DocumentBlock(media=PDF), notes)
    failed = our.ToolResultMessage(tool_call_id="x", content=content, is_error=True)
    request = FORM.request(asks("a"), calls("x"), failed)
    assert turns_of(request)[2][1][0]["content"] == [text("1"), text("notes")]
    reason = "left out: the result of a failed call holds text alone"
    assert request.warnings == (f"messages.2: image {reason}", f"messages.2: document {reason}")
    with pytest.raises(ContentRefused, match="image left out: the result of a failed call"):
        FORM.request(asks("a"), calls("x"), failed, strict=True)


def test_a_longer_history_gives_the_calls_of_a_shorter_one_the_same_ids() -> None:
    history = [message for name in ("a.b", "a_b", "a_b", "", "") for message in (calls(name), results(name, "1"))]
    assert turns(asks("a"), *history, calls("a.b"))[: len(history)] == turns(asks("a"), *history)[: len(history)]


def test_thinking_that_ends_a_message_is_left_out_with_a_warning() -> None:
    request = FORM.request(asks("a"), says("b", SIGNED), asks("c"), says(SIGNED), asks("d"))
    assert [blocks for _, blocks in turns_of(request)] == [[text("a")], [text("b")], [text("c"), text("d")]]
    assert [warning.split(":")[0] for warning in request.warnings] == ["messages.1", "messages.3"]


_FILE, _WHOLE = {"type": "file", "file_id": "file_1"}, {"type": "text", "media_type": "text/plain", "data": "whole"}
_PNG_AT, _PDF_AT = "https://example.com/a.png", "https://example.com/a.pdf"


@pytest.mark.parametrize(
    ("block", "source"),
    [
        (our.ImageBlock(media=PNG), IMAGE["source"]),
        (our.ImageBlock(media=our.MediaRef(kind="data", data=PNG.data, mime_type="image/jpeg")), IMAGE["source"]),
        (our.ImageBlock(media=our.MediaRef.from_url(_PNG_AT, mime_type="image/png")), {"type": "url", "url": _PNG_AT}),
        (our.ImageBlock(media=our.MediaRef(kind="file_id", file_id="file_1")), _FILE),
        (our.DocumentBlock(media=PDF), {"type": "base64", "media_type": "application/pdf", "data": PDF.data}),
        (
            our.DocumentBlock(media=our.MediaRef.from_url(_PDF_AT, mime_type="application/pdf")),
            {"type": "url", "url": _PDF_AT},
        ),
        (our.DocumentBlock(media=our.MediaRef(kind="file_id", file_id="file_1")), _FILE),
        (our.DocumentBlock(media=our.MediaRef.from_bytes(b"whole", mime_type="text/markdown")), _WHOLE),
        (our.DocumentBlock(media=our.MediaRef(kind="sha256", sha256="0" * 64), text="whole", excerpt="part"), _WHOLE),
        (our.DocumentBlock(media=our.MediaRef.from_bytes(b"\0", mime_type="x/docx"), excerpt="whole"), _WHOLE),
    ],
)
def test_images_and_documents_have_the_source_that_fits(block: our.Block, source: Wire) -> None:
    request = FORM.request(our.UserMessage.of(block))
    assert turns_of(request)[0][1] == [{"type": block.type, "source": source}]
    assert not request.warnings


def test_a_document_is_called_by_its_filename() -> None:
    block = our.DocumentBlock(media=our.MediaRef.from_bytes(b"%PDF-1.7 x", filename="a.pdf"))
    assert turns(our.UserMessage.of(block))[0][1][0]["title"] == "a.pdf"


def test_cache_marks_are_set_only_on_demand_and_never_on_thinking() -> None:
    said = (our.SystemMessage.of("1", "2"), asks("a"), calls("x", "y"), results("x", "1"), results("y", "2"))
    tools = [ToolSpec("f", "", {"type": "object"}), ToolSpec("g", "", {"type": "object"})]
    plain, marked = (FORM.request(*said, tools=tools, cache=cache).body for cache in (False, True))
    assert "cache_control" not in json.dumps(plain)
    places = [str(block) for block in _blocks(marked) if "cache_control" in block]
    assert ["'2'" in places[0], "'g'" in places[1], "'x'" in places[2]] == [True] * 3 == [True for _ in places]
    for block in _blocks(marked):
        block.pop("cache_control", None)
    assert marked == plain
    thought = FORM.request(asks("a"), says("b", SIGNED, "c"), asks("d"), cache=True).body
    assert [block["text"] for block in _blocks(thought) if "cache_control" in block] == ["c"]
    FORM.request(asks("a"), cache=True)


def _blocks(body: Wire) -> list[Wire]:
    """All that may be marked, in the order in which a request is read."""
    system, tools = cast("list[Wire]", body.get("system", [])), cast("list[Wire]", body.get("tools", []))
    return [*system, *tools, *(block for _, blocks in turns_of(ProviderRequest(body)) for block in blocks)]


# --- answers ------------------------------------------------------------------------------------------------------


def test_an_answer_goes_back_to_its_model_unchanged_and_to_another_without_the_providers_own_tools() -> None:
    read = from_anthropic(SAMPLE.whole, model=SAMPLE.model)
    content = cast("list[Wire]", SAMPLE.whole["content"])
    same = [{key: item for key, item in block.items() if key != "citations"} for block in content]
    assert turns(asks("a"), read, results("toolu_1", "1"))[1] == ("assistant", same)
    request = to_anthropic(context_of(asks("a"), read), model="claude-opus-4-5")
    assert "srvtoolu_1" not in json.dumps(request.body)
    unknown = "messages.1: unknown left out: assistants cannot send it"
    citations = "messages.1: annotations of a text left out: no request has a field for it"
    assert request.warnings[:-1] == (unknown, unknown, citations)
    assert request.warnings[-1].startswith("messages.1: thinking left out: ")


def test_a_citation_with_invalid_numbers_has_no_page() -> None:
    cited: Wire = {"type": "text", "text": "a", "citations": [{"url": "u", "start_page_number": True}]}
    [block] = from_anthropic({**SAMPLE.whole, "content": [cited]}).content
    assert block == our.TextBlock(text="a", annotations=(our.AnnotationRef(url="u"),))


def test_an_error_in_the_stream_makes_a_failed_message_with_the_content_so_far() -> None:
    answer = AnthropicAnswer()
    for event in SAMPLE.stream[:4]:
        answer.take(event)
    said = answer.message("cut").content
    answer.take({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    message = answer.message()
    assert (message.stop_reason, message.error_message, message.content) == ("error", "Overloaded", said)
    assert (answer.error_code, answer.is_complete) == ("overloaded_error", True)


def test_a_delta_of_an_unknown_type_changes_nothing() -> None:
    answer = AnthropicAnswer()
    for event in SAMPLE.stream[:4]:
        answer.take(event)
    before = answer.message("cut").content
    assert answer.take(anthropic_block("delta", delta={"type": "of_next_month_delta", "text": "x"})) == []
    assert answer.message("cut").content == before


def test_input_at_the_start_of_a_call_is_kept_if_its_deltas_are_empty() -> None:
    answer = AnthropicAnswer()
    answer.take(anthropic_block("start", content_block={"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}))
    answer.take(anthropic_block("delta", delta={"type": "input_json_delta", "partial_json": ""}))
    answer.take(anthropic_block("stop"))
    assert answer.message().content == (our.ToolCallBlock(id="t", name="f", arguments={"a": 1}),)
