"""Seed 001's events are read as entries and written from the log."""

import pytest
from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    ExtensionMessage,
    LlmMessage,
    MessageError,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.bus import messages as our
from lanebus.bus.wire import DecodeFailure, Envelope
from lanebus.codecs import EventReader, EventWriter
from lanebus.errors import DecodeError, UnknownKind
from lanebus.messages import BranchSummary, LeafMove, TurnId
from tests.support.agent.folding import log_of
from tests.support.messages.events_001 import (
    LOOP,
    MOMENT,
    USAGE,
    Json,
    Through,
    agent_end,
    agent_start,
    answer,
    message_end,
    prompt,
    through,
    turn_end,
    turn_start,
)

FIRST = TurnId(loop_id=LOOP, turn_index=0)
TURN: Json = {"loopId": LOOP, "turnIndex": 0}
CALL: Json = {"loop_id": LOOP, "tool_call_id": "c", "tool_name": "grep"}
CALLING: Json = {
    **answer(""),
    "content": [{"type": "toolCall", "id": "c", "name": "grep", "arguments": {"for": "x"}}],
    "stopReason": "toolUse",
}
RESULT: Json = {
    "role": "toolResult",
    "toolCallId": "c",
    "toolName": "grep",
    "content": [{"type": "text", "text": "found"}],
    "isError": False,
    "timestamp": 3,
}
OUTCOME: Json = {"content": [{"type": "text", "text": "found"}], "details": {"hits": 1}}
WHOLE: list[JsonValue] = [
    agent_start(),
    turn_start(),
    {"type": "MessageStart", "loop_id": LOOP, "message": prompt("Hi")},
    message_end(prompt("Hi")),
    {"type": "MessageStart", "loop_id": LOOP, "message": answer("")},
    {"type": "MessageUpdate", "loop_id": LOOP, "message": answer("He"), "delta": {"Text": {"delta": "He"}}},
    message_end(CALLING),
    {"type": "ToolExecutionStart", **CALL, "args": {"for": "x"}},
    {"type": "ProgressMessage", **CALL, "text": "half"},
    {"type": "ToolExecutionUpdate", **CALL, "partial_result": {"content": [], "details": None}},
    {"type": "ToolExecutionEnd", **CALL, "result": OUTCOME, "is_error": False, "child_loop_id": "t.m.1"},
    message_end(RESULT),
    message_end({"role": "extension", "kind": "note", "data": 1}),
    turn_end({**CALLING, "turnId": TURN}, RESULT),
    agent_end(
        {**prompt("Hi"), "turnId": TURN}, {**CALLING, "turnId": TURN}, {**RESULT, "turnId": TURN}
    ),
]  # fmt: skip


def events(found: Through) -> list[our.AgentEvent]:
    told = [our.parse_event(each.message) for each in found.log if isinstance(each.message, ExtensionMessage)]
    return [event for event in told if event is not None]


def messages(found: Through) -> list[LlmMessage]:
    return [each.message for each in found.log if isinstance(each.message, LlmMessage)]


def test_a_whole_loop_comes_back_as_it_was_and_its_extension_lane_has_no_content() -> None:
    assert through(WHOLE).written == WHOLE
    said = "".join(each.message.to_json() for each in through(WHOLE).log if isinstance(each.message, ExtensionMessage))
    for word in ("Hi", "found", "for", "hits"):
        assert f'"{word}"' not in said


def test_details_beside_a_tool_result_are_in_the_log_and_in_no_message_event() -> None:
    found = through(WHOLE)
    (result,) = (message for message in messages(found) if isinstance(message, ToolResultMessage))
    assert result.metadata == {"origin": {"codec": "001", "result": {"details": {"hits": 1}}}}
    later = EventWriter()  # which has the log alone
    told = [value for each in found.log for value in later.write(each).values]
    assert message_end(RESULT) in told
    ended = our.ToolEnded(turn_id=FIRST, tool_call_id="c", tool_name="grep", is_error=False).as_extension()
    (again,) = later.write(Envelope("s", 99, our.Lane.EXTENSION, ended, 0.0, "test")).values
    assert again == {"type": "ToolExecutionEnd", **CALL, "result": OUTCOME, "is_error": False, "child_loop_id": None}


def test_each_message_is_appended_once_stamped_and_named_by_its_position() -> None:
    found = through(WHOLE)
    assert [type(message) for message in messages(found)] == [UserMessage, AssistantMessage, ToolResultMessage]
    assert [message.turn_id for message in messages(found)] == [FIRST] * 3
    places = {type(each.message): each.position for each in found.log}
    ended = [event for event in events(found) if isinstance(event, our.MessageEnded)]
    assert [event.position for event in ended[:3]] == [places[type(message)] for message in messages(found)]
    (turn,) = (event for event in events(found) if isinstance(event, our.TurnEnded))
    assert (turn.message, turn.tool_results) == (places[AssistantMessage], (places[ToolResultMessage],))
    assert [each.message.delta for each in found.live if isinstance(each.message, our.Delta)] == ["He"]


def test_a_preview_ends_with_the_message_of_its_id() -> None:
    found = through(WHOLE)
    started = [event.message_id for event in events(found) if isinstance(event, our.MessageStarted)]
    assert [message.id for message in messages(found)] == [*started, None]
    assert [each.message.message_id for each in found.live if isinstance(each.message, our.Delta)] == started[1:]


def test_a_message_that_only_the_loop_end_contains_is_appended_before_it_as_often_as_it_is_there() -> None:
    said: list[JsonValue] = [agent_start(), agent_end(prompt("Hi"), prompt("Hi"), answer("Yes"))]
    found = through(said)
    assert [type(message) for message in messages(found)] == [UserMessage, UserMessage, AssistantMessage]
    (ended,) = (event for event in events(found) if isinstance(event, our.AgentEnded))
    assert ended.stop_reason == "stop"
    found = through([message_end(prompt("Hi")), agent_end(prompt("Hi"), prompt("Hi"))])
    assert [type(message) for message in messages(found)] == [UserMessage, UserMessage]


def test_the_same_text_in_two_turns_is_two_messages() -> None:
    said: list[JsonValue] = []
    for index in range(2):
        said += [turn_start(index), message_end(answer("ok")), turn_end(answer("ok"))]
    found = through(said)
    assert [message.turn_id and message.turn_id.turn_index for message in messages(found)] == [0, 1]
    ends = [event.message for event in events(found) if isinstance(event, our.TurnEnded)]
    assert ends == [each.position for each in found.log if isinstance(each.message, LlmMessage)]


def test_a_turn_in_an_unusual_place_of_an_event_is_written_back_there() -> None:
    said: list[JsonValue] = [message_end({**prompt("Hi"), "turnId": TURN}), turn_end(answer("Yes"))]
    assert through(said).written == said


@pytest.mark.parametrize(
    ("kind", "ours", "tag"),
    [
        ("Initial", "initial", None),
        ("Default", "default", None),
        ("Compaction", "compaction", None),
        ({"Rerun": {"tag": "r"}}, "rerun", "r"),
        ({"Branch": {"tag": ""}}, "branch", ""),
    ],
)
def test_a_loop_continues_another_one(kind: JsonValue, ours: str, tag: str | None) -> None:
    found = through([agent_start(kind=kind)])
    (event,) = events(found)
    assert isinstance(event, our.AgentStarted)
    assert (event.continuation, event.continuation_tag) == (ours, tag)
    assert found.written == [agent_start(kind=kind)]


@pytest.mark.parametrize(
    ("told", "written"),
    [
        ("2026-01-01T00:00:00.25Z", "2026-01-01T00:00:00.250Z"),
        ("2026-01-01T02:00:00+02:00", MOMENT),
        ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123Z"),
        ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
    ],
)
def test_a_moment_is_kept_to_the_millisecond(told: str, written: str) -> None:
    assert through([{**turn_start(), "timestamp": told}]).written == [{**turn_start(), "timestamp": written}]


# --- what moves in the tree ---------------------------------------------------------------------------------------


def revert(**fields: JsonValue) -> Json:
    said: Json = {
        "type": "RevertApplied",
        "loop_id": LOOP,
        "category": "failure",
        "target": 1,
        "abandoned_node_ids": [2],
        "summary": "it was wrong",
        "applied": True,
        "reason": None,
        "timestamp": MOMENT,
    }
    return {**said, **fields}


NODES: list[JsonValue] = [message_end({**prompt(f"n{node}"), "nodeId": node}) for node in (1, 2)]


def test_a_revert_moves_the_leaf_and_adds_its_summary_unless_it_was_refused() -> None:
    found = through([*NODES, revert()])
    assert [each.message for each in found.log[4:6]] == [
        LeafMove(to=1),
        BranchSummary(summary="it was wrong", branch=3),
    ]
    (event,) = (event for event in events(found) if isinstance(event, our.RevertApplied))
    assert (event.target, event.summary) == (1, 6)
    assert found.written == [*NODES, revert()]
    refused = revert(applied=False, target=None, abandoned_node_ids=[], reason="no such node")
    found = through([*NODES, refused])
    assert not any(isinstance(each.message, LeafMove | BranchSummary) for each in found.log)
    assert found.written[-1] == refused


def test_pruned_messages_that_are_known_get_their_positions() -> None:
    pruned: Json = {
        "type": "PrunApplied",
        "loop_id": LOOP,
        "tokens_removed": 9,
        "messages_removed": 2,
        "memo": "old",
        "pruned_timestamps": [1, 77],
        "timestamp": MOMENT,
    }
    found = through([message_end(prompt("Hi")), pruned])
    (event,) = (event for event in events(found) if isinstance(event, our.PruneApplied))
    assert (event.pruned, event.pruned_timestamps) == ((1,), (1, 77))
    assert found.written[-1] == pruned


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([], ""),
        ({}, "type"),
        ({**agent_start(), "agent_id": 7}, "agent_id"),
        ({**agent_start(), "timestamp": "yesterday"}, "timestamp"),
        ({**agent_start(), "timestamp": "2026-01-01T00:00:00"}, "timestamp"),
        ({**agent_start(), "timestamp": 1}, "timestamp"),
        (agent_start(kind="Later"), "continuation_kind"),
        (agent_start(kind="Rerun"), "continuation_kind"),
        (agent_start(kind={"Rerun": {}}), "continuation_kind.Rerun.tag"),
        (agent_start(kind={"Rerun": {"tag": "a"}, "Branch": {"tag": "b"}}), "continuation_kind"),
        ({**agent_end(), "messages": [{"role": "user"}]}, "messages.0.content"),
        ({**agent_end(), "usage": {"input": 1}}, "usage.output"),
        (turn_start(trigger="Boredom"), "triggered_by"),
        (turn_start(index=-1), "turn_index"),
        (turn_start(index=2**32), "turn_index"),
        ({**turn_end(answer("x")), "tool_results": [{"role": "toolResult"}]}, "tool_results.0.content"),
        (message_end({"role": "user", "content": [{"type": "text"}], "timestamp": 1}), "message.content.0.text"),
        ({"type": "MessageUpdate", "loop_id": LOOP, "message": answer("x"), "delta": {}}, "delta"),
        ({"type": "MessageUpdate", "loop_id": LOOP, "message": answer("x"), "delta": {"Smell": {}}}, "delta"),
        ({"type": "ToolExecutionStart", **CALL}, "args"),
        ({"type": "ToolExecutionEnd", **CALL, "result": {}, "is_error": False}, "result.content"),
        ({"type": "ParallelLoopStart", "session_id": "s", "loop_ids": ["a", 1], "timestamp": MOMENT}, "loop_ids.1"),
        (revert(category="boredom"), "category"),
        (revert(abandoned_node_ids=[1, "n2"]), "abandoned_node_ids.1"),
    ],
)
def test_a_malformed_event_is_refused_with_the_path_to_its_fault(value: JsonValue, path: str) -> None:
    reader = EventReader()
    with pytest.raises(DecodeError) as caught:
        reader.read(value)
    assert caught.value.path == path
    assert reader.seen.entries == {}  # and nothing of it is taken in


def test_an_unknown_event_is_refused_and_a_turn_request_is_ignored() -> None:
    with pytest.raises(UnknownKind):
        EventReader().read({"type": "AgentSneezed"})
    assert EventReader().read({"type": "TurnRequest", "loop_id": LOOP, "payload": {}}) == ()
    with pytest.raises(MessageError):
        EventReader().read(message_end({"role": "robot"}))


# --- our own log --------------------------------------------------------------------------------------------------


def test_our_log_is_written_as_events_in_the_order_of_001() -> None:
    usage = Usage(input=10, output=5, total_tokens=15)
    call = ToolCallBlock(id="c", name="grep", arguments={"for": "x"})
    said = AssistantMessage(content=(call,), stop_reason="toolUse", model="m", provider="p", usage=usage, timestamp=2)
    entries = log_of(
        UserMessage(timestamp=1),
        our.AgentStarted(loop_id=LOOP, agent="a").as_extension(),
        our.TurnStarted(turn_id=FIRST, prompts=(1,)).as_extension(),
        our.MessageStarted(turn_id=FIRST, message_id="m1").as_extension(),
        said.model_copy(update={"id": "m1", "turn_id": FIRST}),
        our.MessageEnded(turn_id=FIRST, message_id="m1", position=5).as_extension(),
        our.ToolStarted(turn_id=FIRST, tool_call_id="c", tool_name="grep").as_extension(),
        ToolResultMessage(tool_call_id="c", turn_id=FIRST, timestamp=3, structured={"hits": 1}),
        our.ToolEnded(turn_id=FIRST, tool_call_id="c", tool_name="grep", is_error=False, position=8).as_extension(),
        our.TurnEnded(turn_id=FIRST, stop_reason="toolUse", usage=usage, message=5, tool_results=(8,)).as_extension(),
        our.AgentEnded(loop_id=LOOP, stop_reason="stop", turns=1, usage=usage).as_extension(),
    )
    writer = EventWriter()
    told: list[Json] = []
    for entry in entries:
        for value in writer.write(entry).values:
            assert isinstance(value, dict)
            told.append(value)
    assert [event["type"] for event in told] == [
        *("AgentStart", "TurnStart", "MessageStart", "MessageEnd", "MessageStart", "MessageEnd"),
        *("ToolExecutionStart", "ToolExecutionEnd", "MessageStart", "MessageEnd", "TurnEnd", "AgentEnd"),
    ]
    assert told[6]["args"] == {"for": "x"}
    assert told[7]["result"] == {"content": [], "details": {"hits": 1}}
    assert [message["role"] for message in objects(told[-1]["messages"])] == ["user", "assistant", "toolResult"]
    assert told[-1]["usage"] == USAGE


def objects(value: JsonValue) -> list[Json]:
    assert isinstance(value, list)
    return [item for item in value if isinstance(item, dict)]


def test_live_deltas_are_written_with_the_message_so_far() -> None:
    writer, told = EventWriter(), list[JsonValue]()
    for number, (kind, text) in enumerate((("thinking", "hm"), ("text", "He"), ("text", "llo"), ("cut", "lost")), 1):
        delta = our.Delta.model_validate({"kind": kind, "message_id": "m", "turn_id": FIRST, "delta": text})
        told.extend(writer.write(Envelope("s", 1, our.Lane.LLM, delta, 0.0, "test", number)).values)
    last = told[-1]
    assert len(told) == 3
    assert isinstance(last, dict)
    assert last["delta"] == {"Text": {"delta": "llo"}}
    assert isinstance(last["message"], dict)
    assert last["message"]["content"] == [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hello"}]


def test_events_that_name_unknown_entries_are_left_out() -> None:
    cut = our.TurnEnded(turn_id=FIRST, stop_reason="aborted", usage=Usage())
    for message in (
        cut.as_extension(),
        our.MessageEnded(turn_id=FIRST, position=99).as_extension(),
        ExtensionMessage.of("agent.ended", {"none": 1}),
        ExtensionMessage.of("agent.sneezed"),
        ExtensionMessage.of("note"),
        UserMessage.text("x"),
    ):
        assert EventWriter().write(Envelope("s", 1, our.Lane(message.lane), message, 0.0, "test")).values == ()
    unreadable = DecodeFailure(DecodeError("", "broken"), b"{")
    assert EventWriter().write(Envelope("s", 1, our.Lane.LLM, unreadable, 0.0, "test")).values == ()
