"""Requests to the Responses API and answers of it, where they are unlike those of other providers."""

import json
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.agent import Piece, ToolSpec
from lanebus.bus import messages as our
from lanebus.providers import OpenAIResponsesAnswer, ProviderRequest, from_openai_responses
from tests.support.log.entries import asks, calls, results, says
from tests.support.providers.forms import FORMS
from tests.support.providers.replay import folded, spoken, through_sdk, untimed
from tests.support.providers.samples import CALLED, HIDDEN, REASONED, SAID, SAMPLES, Responses

Wire = dict[str, JsonValue]
FORM, SAMPLE = FORMS["openai_responses"], SAMPLES["openai_responses"]
PNG = our.MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234")
PDF = our.MediaRef.from_bytes(b"%PDF-1.7 x", filename="a.pdf")
IMAGE: Wire = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG.data}", "detail": "auto"}
FILE: Wire = {"type": "input_file", "file_data": f"data:application/pdf;base64,{PDF.data}", "filename": "a.pdf"}


def items_of(request: ProviderRequest) -> list[Wire]:
    return cast("list[Wire]", request.body["input"])


def items(*messages: our.Publishable) -> list[Wire]:
    return items_of(FORM.request(*messages))


def text(words: str) -> Wire:
    return {"type": "input_text", "text": words}


def said(*parts: Wire, role: str = "user") -> Wire:
    return {"type": "message", "role": role, "content": [*parts]}


def output(call: str, value: JsonValue) -> Wire:
    return {"type": "function_call_output", "call_id": call, "output": value}


def told(item: Wire) -> tuple[JsonValue, list[JsonValue]]:
    """An item's type, and the texts of an answer or who is called."""
    if item["type"] == "message":
        return item["type"], [part["text"] for part in cast("list[Wire]", item["content"])]
    return item["type"], [item.get("call_id") or item.get("id")]


def answered(*content: our.Block, **fields: JsonValue) -> JsonValue:
    """The output of a call that was answered so."""
    given = our.ToolResultMessage.model_validate({"tool_call_id": "x", "content": content, **fields})
    return items(asks("a"), calls("x"), given)[2]["output"]


# --- requests -----------------------------------------------------------------------------------------------------


def test_a_body_holds_model_instructions_and_input_and_what_was_asked_for() -> None:
    messages = (our.SystemMessage.text("be kind"), asks("hi"))
    plain: Wire = {"model": FORM.model, "instructions": "be kind", "input": [said(text("hi"))]}
    assert FORM.request(*messages) == ProviderRequest(plain)
    tool = ToolSpec("fs.read", "Reads.", {"type": "object"})
    request = FORM.request(*messages, max_tokens=16, tools=[tool], stream=True, store=False)
    function = {"name": "fs_read", "description": "Reads.", "parameters": {"type": "object"}, "strict": False}
    asked = {"max_output_tokens": 16, "tools": [{"type": "function", **function}], "store": False, "stream": True}
    assert request.body == {**plain, **asked}
    assert request.tool_names == {"fs_read": "fs.read"}


def test_empty_text_is_left_out_white_space_is_kept_and_a_placeholder_stands_for_nothing() -> None:
    assert items(our.UserMessage.of(), our.UserMessage.of("", " "), says("")) == [said(text(" "))]
    assert items(our.SystemMessage.text("be kind"), our.UserMessage.of(), says("")) == [said(text("..."))]


def test_instructions_keep_their_order_and_their_roles_or_are_all_the_systems_on_demand() -> None:
    instructions = (
        asks("a"),
        our.SystemMessage.of("1", "2"),
        our.SystemMessage.text("3"),
        our.DeveloperMessage.of("4", "5"),
        our.SystemMessage.text("6"),
        our.DeveloperMessage.text(""),
    )
    request, merged = FORM.request(*instructions), FORM.request(*instructions, merge_developer=True)
    assert request.body["instructions"] == "12\n\n3"
    developer, system = said(text("4"), text("5"), role="developer"), said(text("6"), role="system")
    assert items_of(request) == [developer, system, said(text("a"))]
    assert merged.body["instructions"] == "12\n\n3\n\n45\n\n6"
    assert items_of(merged) == [said(text("a"))]


def test_an_answers_texts_are_one_message_until_it_calls() -> None:
    call = our.ToolCallBlock(id="x", name="read", arguments={"ü": 1})
    found = items(asks("a"), says("b", "", "c", call, "d"), results("x", "1"))
    texts: list[JsonValue] = [{"type": "output_text", "text": word, "annotations": []} for word in "bc"]
    head: Wire = {"type": "message", "id": "msg_1_0", "role": "assistant", "status": "completed"}
    called = {"type": "function_call", "call_id": "x", "name": "read", "arguments": '{"ü": 1}'}
    assert found[:3] == [said(text("a")), {**head, "content": texts}, called]
    assert (told(found[3]), found[4]) == (("message", ["d"]), output("x", "1"))


def test_a_result_is_a_string_if_it_is_one_text_and_an_array_if_it_is_more() -> None:
    one, image = our.TextBlock(text="1"), our.ImageBlock(media=PNG)
    assert answered(one) == "1"
    assert answered() == ""
    assert answered(structured={"ü": [1]}) == '{"ü": [1]}'
    assert answered(one, one) == [text("1"), text("1")]
    assert answered(image, our.DocumentBlock(media=PDF)) == [IMAGE, FILE]
    assert answered(image, one, is_error=True) == [IMAGE, text("[TOOL ERROR] 1")]
    assert answered(image, is_error=True) == [text("[TOOL ERROR] "), IMAGE]
    assert answered(status="failed") == "[TOOL ERROR] (no output)"


# --- thinking -----------------------------------------------------------------------------------------------------


def reasoning(item_id: str) -> our.ThinkingBlock:
    signature = json.dumps({"id": item_id, "encrypted_content": "x"})
    return our.ThinkingBlock(text="so\n\nhm", details=("so", "hm"), signature=signature)


def redacted(item_id: str) -> our.RedactedThinkingBlock:
    return our.RedactedThinkingBlock(data=json.dumps({"id": item_id, "encrypted_content": "y"}))


def test_its_own_thinking_goes_back_to_the_model_as_it_was_once_and_also_as_a_whole_item() -> None:
    call = our.ToolCallBlock(id="x", name="read")
    found = items(asks("a"), FORM.says(reasoning("rs_1"), redacted("rs_2"), "b", reasoning("rs_3"), call))
    assert [told(item)[1] for item in found[1:6]] == [["rs_1"], ["rs_2"], ["b"], ["rs_3"], ["x"]]
    summary = [{"type": "summary_text", "text": "so"}, {"type": "summary_text", "text": "hm"}]
    assert found[1] == {"type": "reasoning", "id": "rs_1", "encrypted_content": "x", "summary": summary}
    assert found[2] == {"type": "reasoning", "id": "rs_2", "encrypted_content": "y", "summary": []}
    twice = items(asks("a"), FORM.says(reasoning("rs_1"), "b"), FORM.says(reasoning("rs_1"), "c"))
    assert [told(item)[0] for item in twice] == ["message", "reasoning", "message", "message"]
    item = {"type": "reasoning", "id": "rs_1", "summary": summary[:1], "status": None}
    whole = items(asks("a"), FORM.says(our.ThinkingBlock(text="so", signature=json.dumps(item)), "b"))
    assert whole[1] == {"type": "reasoning", "id": "rs_1", "summary": summary[:1]}


@pytest.mark.parametrize(
    "other",
    [
        FORM.says(reasoning("rs_1"), redacted("rs_2"), "b", model="gpt-5"),
        FORM.says(reasoning("rs_1"), redacted("rs_2"), "b", provider="azure"),
        FORM.says(our.ThinkingBlock(text="so\n\nhm", signature="x"), our.RedactedThinkingBlock(data="xx"), "b"),
        *(
            FORM.says(our.ThinkingBlock(text="so\n\nhm", signature=signature), "b")
            for signature in (
                None,
                '{"id": "rs_1", "encrypted_content": 1}',
                '{"id": "rs_1", "status": "new"}',
                '{"encrypted_content": "x"}',
                '{"id": "rs_1", "summary": [1]}',
            )
        ),
    ],
)
def test_other_thinking_is_left_out_with_a_warning_or_sent_as_text(other: our.AssistantMessage) -> None:
    dropped = FORM.request(asks("a"), other, strict=True)
    as_text = FORM.request(asks("a"), other, foreign_thinking="text")
    assert [told(item) for item in items_of(dropped)[1:]] == [("message", ["b"])]
    assert [warning.split(":")[0] for warning in dropped.warnings] == ["messages.1"]
    assert [told(item) for item in items_of(as_text)[1:]] == [("message", ["[Reasoning] so\n\nhm", "b"])]
    assert "rs_" not in json.dumps(as_text.body)


def test_thinking_is_left_out_with_a_warning_if_it_ends_a_message_or_what_followed_it_is_left_out() -> None:
    request = FORM.request(asks("a"), FORM.says("b", reasoning("rs_1")), FORM.says(redacted("rs_2")), asks("c"))
    assert [told(item)[1] for item in items_of(request)] == [["a"], ["b"], ["c"]]
    assert [warning.split(":")[0] for warning in request.warnings] == ["messages.1", "messages.2"]
    searched = our.UnknownBlock(raw={"type": "web_search_call", "id": "ws_1", "status": "completed"})
    request = FORM.request(asks("a"), FORM.says(reasoning("rs_1"), redacted("rs_2"), searched, reasoning("rs_3"), "b"))
    assert [told(item)[1] for item in items_of(request)] == [["a"], ["rs_3"], ["b"]]
    left_out = "messages.1: thinking left out: what followed it is left out"
    assert request.warnings == ("messages.1: unknown left out: assistants cannot send it", left_out, left_out)


def test_the_phase_of_a_text_goes_back_to_the_model_that_said_it_and_to_no_other() -> None:
    phases = (("a", "commentary"), ("b", "commentary"), ("c", "final_answer"), ("d", "new"))
    blocks = [our.TextBlock(text=word, signature=json.dumps({"phase": phase})) for word, phase in phases]
    found = items(asks("a"), FORM.says(*blocks, "e"))
    assert [(item.get("phase"), told(item)[1]) for item in found[1:]] == [
        ("commentary", ["a", "b"]),
        ("final_answer", ["c"]),
        (None, ["d", "e"]),
    ]
    assert "phase" not in json.dumps(items(asks("a"), FORM.says(*blocks, "e", model="gpt-5")))


def test_thinking_that_the_provider_did_not_store_does_not_go_back() -> None:
    only_a_name = FORM.says(our.ThinkingBlock(text="hm", signature='{"id": "rs_1"}'), "b")
    requests = (FORM.request(asks("a"), only_a_name), FORM.request(asks("a"), only_a_name, store=False))
    assert ["rs_1" in json.dumps(request.body) for request in requests] == [True, False]


# --- media --------------------------------------------------------------------------------------------------------

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PNG_AT, DOCX_AT = "https://example.com/a.png", "https://example.com/a.docx"
FILE_ID = our.MediaRef(kind="file_id", file_id="file-1")


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (our.ImageBlock(media=PNG), IMAGE),
        (
            our.ImageBlock(media=our.MediaRef.from_url(PNG_AT), detail="high"),
            {"type": "input_image", "image_url": PNG_AT, "detail": "high"},
        ),
        (our.ImageBlock(media=FILE_ID), {"type": "input_image", "file_id": "file-1", "detail": "auto"}),
        (our.DocumentBlock(media=PDF), FILE),
        (
            our.DocumentBlock(media=our.MediaRef(kind="data", data="Pz8/", mime_type=DOCX), text="whole"),
            {"type": "input_file", "file_data": f"data:{DOCX};base64,Pz8/", "filename": "document"},
        ),
        (our.DocumentBlock(media=our.MediaRef.from_url(DOCX_AT)), {"type": "input_file", "file_url": DOCX_AT}),
        (our.DocumentBlock(media=FILE_ID), {"type": "input_file", "file_id": "file-1"}),
        (our.DocumentBlock(media=our.MediaRef.from_bytes(b"whole", mime_type="text/csv")), text("whole")),
        (our.DocumentBlock(media=our.MediaRef.from_bytes(b"\0"), excerpt="part"), text("part")),
    ],
)
def test_media_have_the_part_that_fits(block: our.Block, part: Wire) -> None:
    request = FORM.request(our.UserMessage.of(block))
    assert items_of(request) == [said(part)]
    assert not request.warnings


# --- answers ------------------------------------------------------------------------------------------------------


def test_the_pieces_of_a_stream_name_their_blocks_and_its_thinking_is_never_ahead_of_what_was_said() -> None:
    from openai.types.responses import Response

    Response.model_validate(SAMPLE.whole)
    answer = OpenAIResponsesAnswer("gpt-5.2", None, SAMPLE.names)
    pieces = [piece for piece in folded(answer, SAMPLE.stream) if isinstance(piece, Piece)]
    assert [*spoken(pieces).values()] == ["First.\n\nThen.", "Let me see.", '{"path": "a"}', '{"a": 1']
    assert [piece.tool_name for piece in pieces if piece.tool_name] == ["fs.read", "add"]
    for end in range(len(SAMPLE.stream)):
        cut = OpenAIResponsesAnswer()
        folded(cut, SAMPLE.stream[:end])
        assert not cut.is_complete
        assert all("First.\n\nThen.".startswith(block.text) for block in cut.message("cut").thinking())


async def test_a_stream_whose_last_event_has_no_items_is_the_same_message() -> None:
    answer = OpenAIResponsesAnswer("gpt-5.2", None, SAMPLE.names)
    ended = Responses.ended({**SAMPLE.whole, "output": []})
    folded(answer, await through_sdk("openai_responses", [*SAMPLE.stream[:-1], ended]))
    whole = from_openai_responses(SAMPLE.whole, model="gpt-5.2", names=SAMPLE.names)
    assert untimed(answer.message()) == untimed(whole)


def test_the_pieces_of_a_refusal_are_text() -> None:
    answer = OpenAIResponsesAnswer()
    pieces = [Responses.event("refusal.delta", 0, content_index=0, delta=delta) for delta in ("I will ", "not.")]
    found = folded(answer, [Responses.event("output_item.added", 0, item=Responses.message("msg_1")), *pieces])
    assert spoken(found) == {0: "I will not."}


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ({"type": "error", "code": "x", "message": "overloaded", "param": None}, "overloaded"),
        (Responses.ended(Responses.response(status="failed", error={"code": "x", "message": "boom"})), "boom"),
        (Responses.ended(Responses.response(status="failed", error=None)), "the provider failed and did not say why"),
    ],
)
def test_a_failure_in_the_stream_makes_a_failed_message(last: Wire, error: str) -> None:
    answer = OpenAIResponsesAnswer()
    folded(answer, [*SAMPLE.stream[:17], last])
    found = answer.message()
    assert answer.is_complete
    assert (found.stop_reason, found.error_message, found.text_content()) == ("error", error, "Let me")


def test_a_failed_response_keeps_only_complete_calls() -> None:
    cut = Responses.call("fc_2", "call_2", "add", "{", "incomplete")
    failed = Responses.response(CALLED, cut, status="failed", error={"code": "x", "message": "boom"})
    assert [block.id for block in from_openai_responses(failed).tool_calls()] == ["call_1"]


def test_readable_reasoning_is_thinking() -> None:
    open_one = Responses.reasoning("rs_1", content=[{"type": "reasoning_text", "text": "hm"}])
    (block,) = from_openai_responses(Responses.response(open_one, SAID)).thinking()
    assert (block.text, block.details) == ("hm", None)
    growing = [
        Responses.event("output_item.added", 0, item=Responses.reasoning("rs_1")),
        Responses.event("reasoning_text.delta", 0, content_index=0, delta="hm"),
    ]
    assert spoken(folded(OpenAIResponsesAnswer(), growing)) == {0: "hm"}


@pytest.mark.parametrize(
    "item",
    [
        REASONED,
        HIDDEN,
        Responses.reasoning("rs_3"),
        Responses.reasoning("rs_4", "a", status="completed"),
        Responses.reasoning("rs_5", content=[{"type": "reasoning_text", "text": "hm"}], encrypted_content="x"),
        Responses.reasoning("rs_6", "a", "", "b\n\nc", content=[{"type": "reasoning_text", "text": "hm"}]),
    ],
)
def test_a_reasoning_item_comes_back_as_it_was(item: Wire) -> None:
    read = from_openai_responses(Responses.response(item, SAID), model=FORM.model)
    assert item in items(asks("a"), read)


def test_what_was_read_can_be_sent_again() -> None:
    whole = Responses.response(REASONED, SAID, HIDDEN, CALLED)
    answer = from_openai_responses(whole, model=FORM.model, names=SAMPLE.names)
    _, first, spoken_item, second, called, _ = items(asks("a"), answer)
    assert (first, second, told(spoken_item)[1]) == (REASONED, HIDDEN, ["Let me see."])
    assert called == {name: value for name, value in CALLED.items() if name not in {"id", "status"}}


async def test_the_phase_of_a_message_goes_back_with_it() -> None:
    commentary = {**Responses.message("msg_1", Responses.text("Let me see.")), "phase": "commentary"}
    final = {**Responses.message("msg_2", Responses.text("Done.")), "phase": "final_answer"}
    read = from_openai_responses(Responses.response(commentary, final), model="gpt-5.2")
    events = [Responses.event("output_item.done", at, item=item) for at, item in enumerate((commentary, final))]
    answer = OpenAIResponsesAnswer("gpt-5.2")
    folded(answer, await through_sdk("openai_responses", [*events, Responses.ended(Responses.response())]))
    assert answer.message().content == read.content
    sent = items(asks("a"), read)[1:]
    assert [item.get("phase") for item in sent] == ["commentary", "final_answer"]
    assert "signature" not in json.dumps(sent)


def test_unknown_items_and_parts_are_kept_whole_and_sources_of_all_kinds_are_annotations() -> None:
    search: Wire = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    part: Wire = {"type": "output_hologram", "data": "x"}
    file: Wire = {"type": "file_citation", "file_id": "file-1", "filename": "a.pdf", "index": 3}
    cited = Responses.text("a", file, Responses.citation)
    found = from_openai_responses(Responses.response(search, Responses.message("msg_1", part, cited)))
    refs = (
        our.AnnotationRef(file_id="file-1", title="a.pdf", index=3),
        our.AnnotationRef(url="https://example.com", title="E"),
    )
    assert found.content == (
        our.UnknownBlock(raw=search),
        our.UnknownBlock(raw=part),
        our.TextBlock(text="a", annotations=refs),
    )
