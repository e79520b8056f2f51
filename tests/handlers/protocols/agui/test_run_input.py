"""The request of a run: what is new in it, which answers it has, and JSON for the arguments of a call that was cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import ToolCallBlock
from lanebus.bus.errors import DecodeError, InvalidSessionId
from lanebus.bus.messages import Approve, Deny, Resume
from lanebus.handlers.protocols import ContentRules, MediaAddresses, read_answer, read_run_input
from lanebus.handlers.protocols.agui.encoder import interrupts_of, json_end
from lanebus.handlers.protocols.run_events import RunRested, WaitingCall
from lanebus.messages import DocumentBlock, ImageBlock, TurnId
from tests.support.node.agui import dig

IDS: dict[str, JsonValue] = {"threadId": "t1", "runId": "r1"}


def said(id: str, content: JsonValue = "hi", role: str = "user") -> JsonValue:
    return {"id": id, "role": role, "content": content}


def test_only_messages_after_the_last_answer_are_new_and_keep_their_keys_in_every_run() -> None:
    known = [said("m1"), said("a1", "hello", "assistant"), said("m2"), said("r", "…", "reasoning"), said("m3")]
    asked, again = (read_run_input({**IDS, "runId": run, "messages": known}) for run in ("r1", "r2"))
    assert [each.message.id for each in asked.prompts] == ["m2", "m3"]
    assert asked.known == ("m1", "a1", "m2", "r", "m3")
    assert [each.key for each in asked.prompts] == [each.key for each in again.prompts]
    assert asked.prompts[0].key != asked.prompts[1].key
    assert read_run_input({**IDS, "messages": [said("lanebus-7")]}).prompts == ()  # an id that the server made


def test_parts_become_blocks() -> None:
    source: JsonValue = {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"}
    link: JsonValue = {"type": "url", "value": "https://example.com/a.pdf", "mimeType": "application/pdf"}
    content: JsonValue = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": source},
        {"type": "document", "source": link},
    ]
    rules = ContentRules(MediaAddresses(["https://example.com"]))
    (prompt,) = read_run_input({**IDS, "messages": [said("m1", content)]}, rules).prompts
    text, image, document = prompt.message.content
    assert prompt.message.text_content() == "look"
    assert isinstance(image, ImageBlock)
    assert (image.media.data, image.media.mime_type) == ("iVBORw0KGgo=", "image/png")
    assert isinstance(document, DocumentBlock)
    assert document.media.url == "https://example.com/a.pdf"
    assert text.type == "text"


def media(url: str) -> JsonValue:
    return said("m1", [{"type": "image", "source": {"type": "url", "value": url}}])


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], ""),
        ({"threadId": "t1", "messages": []}, "runId"),
        ({**IDS, "messages": [said("a#1")]}, "messages.id"),
        ({**IDS, "messages": [said("m" * 300)]}, "messages.id"),
        ({**IDS, "messages": [said("m1", " ")]}, "messages.content"),
        ({**IDS, "messages": [said("m1", 5)]}, "messages.content"),
        ({**IDS, "messages": [said("m1", [{"type": "image"}])]}, "messages.content.source"),
        ({**IDS, "messages": [media("/etc/x")]}, "messages.content.source"),
        ({**IDS, "messages": [media("gs://b/x.png")]}, "messages.content.source.value"),
        ({**IDS, "messages": [], "resume": [{"interruptId": "x", "status": "maybe"}]}, "resume.0.status"),
    ],
    ids=range(10),
)
def test_a_wrong_request_names_the_path_of_its_fault(body: JsonValue, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_run_input(body)
    assert caught.value.path.startswith(path)
    with pytest.raises(InvalidSessionId):
        read_run_input({**IDS, "threadId": "a b", "messages": []})


CALL = ToolCallBlock(id="call/1#2", name="rm", arguments={"path": "/"})
TURN = TurnId(loop_id="t1.main.3", turn_index=2)
WAITING = RunRested("waiting", 9, waiting=(WaitingCall("t1.main.3#2.1.call0", TURN, CALL, "approval"),))


def interrupt_id(rested: RunRested) -> str:
    found = dig(interrupts_of(rested), 0, "id")
    assert isinstance(found, str)
    return found


def test_an_answer_names_the_call_that_the_person_saw_and_a_pause_ends_only_if_it_is_resolved() -> None:
    about = interrupt_id(WAITING)
    approved = read_answer(about, "resolved", {"approved": True}, "ann")
    assert approved == Approve(turn_id=TURN, tool_call_id=CALL.id, call_hash=CALL.call_hash, by="ann")
    denied = Deny(turn_id=TURN, tool_call_id=CALL.id, reason="no", by="ann")
    assert read_answer(about, "resolved", {"approved": False, "reason": "no"}, "ann") == denied
    assert read_answer(about, "cancelled", None, "ann") == denied.model_copy(update={"reason": None})
    about = interrupt_id(RunRested("paused", 4, "paused"))
    assert read_answer(about, "resolved", None, "ann") == Resume(by="ann")
    assert read_answer(about, "cancelled", None, "ann") is None


def test_an_answer_that_is_not_clear_and_an_id_of_no_interrupt_are_refused() -> None:
    unclear: tuple[JsonValue, ...] = (None, {}, "yes", {"approved": "true"}, {"approved": 1})
    for payload in unclear:
        with pytest.raises(DecodeError):
            read_answer(interrupt_id(WAITING), "resolved", payload, "ann")
    for about in (
        *("", "t1.main.3#2", "t1.main.3#2/c1/abc", "x/y/" + "0" * 64, "#2/c1/" + "0" * 64, "#1/" * 300_000),
        f"t1.main.3#{'9' * 5_000}/c1/{'0' * 64}",
    ):
        with pytest.raises(DecodeError):
            read_answer(about, "cancelled", None, "ann")


def test_the_id_of_a_call_may_hold_what_separates_the_parts_of_an_interrupt() -> None:
    for call in ("", "/", "a#1/b", "#2/", "a/" + "0" * 64):
        found = read_answer(f"t1.main.3#2/{call}/{'0' * 64}", "cancelled", None, "ann")
        assert found == Deny(turn_id=TurnId(loop_id="t1.main.3", turn_index=2), tool_call_id=call, by="ann")


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.full
@given(VALUES, st.floats(0, 1), st.booleans(), st.sampled_from([None, 1]))
def test_any_beginning_of_json_has_an_end(value: JsonValue, part: float, ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    start = text[: round(part * len(text))]
    end = json_end(start)
    assert end is not None
    if start.strip():
        json.loads(start + end)


def test_whole_json_needs_no_end_and_what_is_no_json_has_none() -> None:
    assert json_end('{"a": [1, "}"]}') == ""
    assert [json_end(text) for text in ("{]", "{'a'", "nope", '{"a": 1}}')] == [None] * 4
