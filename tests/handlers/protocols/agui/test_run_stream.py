"""Every run that begins anywhere in a recorded session is legal, whatever was shown live before."""

import pytest
from ag_ui_validate import create_validator

from lanebus import Delta, Envelope, Lane, UserMessage
from lanebus.handlers.protocols import AguiRun, AguiView, RunInput
from lanebus.handlers.protocols.run_events import TextAdded, UserSpoke
from lanebus.messages import AssistantMessage, TextBlock, ToolCallBlock
from tests.support.golden.agui import stream_of
from tests.support.golden.deltas import with_deltas
from tests.support.golden.sessions import FOLDERS, envelopes, read_session
from tests.support.node.agui import dig, read_events, types_of

SESSIONS = {folder.name: envelopes(read_session(folder), f"golden-{folder.name}") for folder in FOLDERS}
ASKED = RunInput("s1", "r1", True, (), (), (), ())


def faults(stream: str) -> list[str]:
    """Return the errors and warnings of the validator, apart from a missing end."""
    validator = create_validator()
    for event in read_events(stream):
        validator.feed(event)
    validator.finalize()
    return [f"{each.rule} {each.message}" for each in validator.report().diagnostics if each.severity != "info"]


@pytest.mark.parametrize("size", [1, 50])
@pytest.mark.parametrize("name", SESSIONS)
def test_a_run_may_begin_at_any_entry_and_in_any_answer(name: str, size: int) -> None:
    size = size if name not in {"cut", "abort"} else 400
    lines = SESSIONS[name]
    deltas = [each for each in with_deltas(lines, size) if each.delta]
    for stored in range(1, len(lines) + 1):
        for shown in range(sum(each.position == stored for each in deltas) + 1):
            stream = stream_of((name, stored, shown), size)
            if "RUN_FINISHED" in stream or "RUN_ERROR" in stream:
                assert faults(stream) == [], (stored, shown, stream)


def entry(position: int, message: object, delta: int = 0) -> Envelope:
    assert isinstance(message, UserMessage | AssistantMessage | Delta)
    return Envelope("s1", position, Lane.LLM, message, 1.0, "p", delta)


def begun(run: AguiRun, *past: Envelope) -> str:
    return (run.started + b"".join(map(run.add, past)) + run.caught_up(past[-1].position)).decode()


def new_run(asked: RunInput = ASKED) -> AguiRun:
    return AguiRun(asked, lambda: AguiView(messages=100, size=10_000), counted_after=0)


def test_a_call_that_is_cut_ends_with_json_and_is_taken_back() -> None:
    run = new_run()
    user = entry(1, UserMessage.text("hi"))
    stream = begun(run, user)
    start = Delta(kind="toolCall", message_id="m", delta='{"path": "/tm', tool_name="rm")
    stream += run.add(entry(1, start, 1)).decode()
    stream += run.add(entry(1, Delta(kind="cut", message_id="m", delta="gone"), 2)).decode()
    events = read_events(stream)
    assert types_of(events)[-3:] == ["TOOL_CALL_ARGS", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    assert events[-2]["delta"] == '"}'
    correction = run.correction()
    assert correction is not None
    correction.add(user)
    (snapshot,) = read_events(correction.caught_up().decode())
    assert (dig(snapshot, "messages", 0, "role"), str(snapshot).count("'role'")) == ("user", 1)
    assert run.correction() is None


def test_an_answer_that_the_log_has_otherwise_is_replaced() -> None:
    run = new_run()
    past = entry(1, UserMessage.text("hi"))
    begun(run, past)
    run.add(entry(1, Delta(kind="text", message_id="m", delta="secret"), 1))
    settled = entry(2, AssistantMessage(content=(TextBlock(text="[redacted]"),), id="m"))
    run.add(settled)
    assert not run.is_done, "the end waits for the correction"
    correction = run.correction()
    assert correction is not None
    correction.add(past)
    correction.add(settled)
    events = read_events(correction.caught_up().decode())
    assert types_of(events) == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert "[redacted]" in str(events[0])
    assert "secret" not in str(events[0])
    assert run.is_done


def test_snapshots_of_several_blocks_have_one_cursor_and_are_all_read() -> None:
    run = new_run()
    past = entry(1, UserMessage.text("hi"))
    blocks = [
        entry(1, Delta(kind="thinking", message_id="m", delta="Hm", block=0, is_snapshot=True)),
        entry(1, Delta(kind="text", message_id="m", delta="So", block=1, is_snapshot=True)),
    ]
    stream = begun(run, past, *blocks)
    (snapshot,) = [event for event in read_events(stream) if event["type"] == "MESSAGES_SNAPSHOT"]
    messages = snapshot["messages"]
    assert isinstance(messages, list)
    assert [dig(each, "content") for each in messages] == ["hi", "Hm", "So"]


def test_an_entry_that_is_repeated_gives_the_same_frames() -> None:
    run = new_run()
    begun(run, entry(1, UserMessage.text("hi")))
    again = entry(2, UserMessage.text("and?"))
    assert run.add(again) == run.add(again) != b""


def test_a_client_that_shows_the_messages_in_another_order_is_emptied_first() -> None:
    past = [entry(1, UserMessage.text("a")), entry(2, UserMessage.text("b"))]
    for known, snapshots in ((("lanebus-1",), 1), (("lanebus-1", "lanebus-2"), 1), (("lanebus-2",), 2), ((), 1)):
        asked = RunInput("s1", "r1", True, (), (), known, ())
        types = types_of(read_events(begun(new_run(asked), *past)))
        assert types.count("MESSAGES_SNAPSHOT") == snapshots


def test_a_view_drops_its_oldest_messages_at_its_bounds() -> None:
    view = AguiView(messages=2, size=1_000)
    for number in range(4):
        view.add(UserSpoke(f"m{number}", UserMessage.text("x"), number))
    assert view.ids == ["m2", "m3"]
    small = AguiView(messages=100, size=10)
    small.add(UserSpoke("m1", UserMessage.text("x" * 50), 1))
    assert small.ids == ["m1"], "the newest message may be longer"
    small.add(UserSpoke("m2", UserMessage.text("x" * 50), 1))
    small.add(TextAdded("m1", "late"))
    assert small.ids == ["m2"]


def test_a_call_that_has_no_arguments_is_an_empty_object() -> None:
    run = new_run()
    stream = begun(run, entry(1, UserMessage.text("hi")))
    stream += run.add(entry(1, Delta(kind="toolCall", message_id="m", tool_name="now"), 1)).decode()
    call = ToolCallBlock(id="c", name="now")
    settled = entry(2, AssistantMessage(content=(call,), id="m", stop_reason="toolUse"))
    events = read_events(stream + run.add(settled).decode())
    assert [each["delta"] for each in events if each["type"] == "TOOL_CALL_ARGS"] == ["{}"]
