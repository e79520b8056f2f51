"""The recorded sessions as ACP's session updates: each is valid, and together they are what the log has."""

from collections import Counter
from collections.abc import Iterable

import pytest
from acp.schema import SessionNotification

from lanebus import AssistantMessage, Envelope, TextBlock, ToolCallBlock, ToolResultMessage
from lanebus.handlers.protocols.acp.editor_session import CUT_OFF, RECORDED, AcpEncoder, Update
from lanebus.handlers.protocols.run import RunFold
from lanebus.handlers.protocols.run_events import (
    AnswerSettled,
    CallBegun,
    CallSettled,
    CallStarted,
    ResultAdded,
    RunRested,
    TextAdded,
    ThoughtAdded,
)
from tests.support.golden.deltas import with_deltas
from tests.support.golden.sessions import FOLDERS, envelopes, read_session

SESSIONS = {folder.name: envelopes(read_session(folder), f"golden-{folder.name}") for folder in FOLDERS}


def encoded(entries: Iterable[Envelope]) -> list[Update]:
    fold, encoder = RunFold(), AcpEncoder()
    return [update for entry in entries for event in fold.add(entry) for update in encoder.add(event, {})]


def text(updates: Iterable[Update], message_id: str) -> str:
    """Return the text of an answer as an editor shows it."""
    contents = [
        update["content"]
        for update in updates
        if update["sessionUpdate"] == "agent_message_chunk" and update["messageId"] == message_id
    ]
    return "".join(str(each["text"]) for each in contents if isinstance(each, dict))


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("size", [None, 1, 7, 10_000])
def test_each_update_is_valid_and_no_text_or_call_is_repeated(name: str, size: int | None) -> None:
    entries = SESSIONS[name] if size is None else [*with_deltas(SESSIONS[name], size)]
    updates = encoded(entries)
    for update in updates:
        read = SessionNotification.model_validate({"sessionId": "s1", "update": update})
        assert read.model_dump(mode="json", by_alias=True, exclude_none=True)["update"] == update
    fold = RunFold()
    for event in [event for entry in entries for event in fold.add(entry)]:
        if isinstance(event, AnswerSettled) and event.message is not None and event.outcome != "superseded":
            assert text(updates, event.message_id) == event.message.text_content()
    begun = Counter(update["toolCallId"] for update in updates if update["sessionUpdate"] == "tool_call")
    ended = Counter(update["toolCallId"] for update in updates if update.get("status") in {"completed", "failed"})
    assert {*begun.values(), *ended.values()} <= {1}
    assert ended.keys() <= begun.keys()


def test_a_text_that_the_log_does_not_have_is_followed_by_a_note() -> None:
    replaced = AnswerSettled("a1", None, 0, "superseded", is_replaced=True)
    for thought, note in ((True, CUT_OFF), (False, "")):  # nothing was shown: no note
        encoder = AcpEncoder()
        if thought:
            encoder.add(ThoughtAdded("a1", "a1.thought0", "Hm."), {})
        encoder.add(CallBegun("a1", "a1.call0", "add"), {})
        updates = encoder.add(replaced, {})
        assert [update.get("status") for update in updates if "toolCallId" in update] == ["failed"]
        assert text(updates, "a1") == note


def test_an_answer_that_was_recorded_otherwise_is_told_again_as_it_is() -> None:
    encoder = AcpEncoder()
    shown = encoder.add(TextAdded("a1", "my key is 123"), {})
    message = AssistantMessage(content=(TextBlock(text="my key is ***"),))
    shown += encoder.add(AnswerSettled("a1", message, 4, "complete", is_replaced=True), {})
    assert text(shown, "a1") == f"my key is 123{RECORDED}my key is ***"


def test_calls_that_are_left_when_the_agent_rests_have_failed() -> None:
    encoder = AcpEncoder()
    encoder.add(CallBegun("a1", "a1.call0", "add"), {})
    assert encoder.add(RunRested("waiting", 4), {}) == []
    (update,) = encoder.add(RunRested("aborted", 4), {})
    assert (update["toolCallId"], update["status"]) == ("a1.call0", "failed")
    assert encoder.add(RunRested("aborted", 5), {}) == []


def test_a_call_that_was_started_and_left_no_result_has_an_unknown_outcome() -> None:
    encoder = AcpEncoder()
    for call in ("a1.call0", "a1.call1", "a1.call2"):
        encoder.add(CallBegun("a1", call, "pay"), {})
        encoder.add(CallSettled("a1", call, ToolCallBlock(id="c", name="pay")), {})
    for call in ("a1.call0", "a1.call1"):
        encoder.add(CallStarted(call), {})
    encoder.add(ResultAdded("a1.call1", "r1", ToolResultMessage.of("c", "paid")), {})
    told = {str(update["toolCallId"]): str(update["content"]) for update in encoder.add(RunRested("failed", 4), {})}
    assert told.keys() == {"a1.call0", "a1.call2"}
    assert "Unknown outcome: the call was started" in told["a1.call0"]
    assert "The call was not run." in told["a1.call2"]
