"""Each kind of line in seed 000's session files, and what it becomes."""

import io
import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from lanebus import Bus
from lanebus.bus import messages as our
from lanebus.bus.errors import DecodeError
from lanebus.context import build_context
from lanebus.handlers.formats import UnknownFormat, Unplaced, import_transcript
from lanebus.handlers.formats.coding_agent.transcript import CODING_AGENT_FORMAT
from lanebus.handlers.formats.importer import ListedTranscript
from lanebus.handlers.formats.transcript import TranscriptEntry
from tests.support.log.entries import texts

Object = dict[str, JsonValue]
TIME = 1765241609.825
MILLISECONDS = 1_765_241_609_825
HEADER: Object = {"type": "session", "version": 3, "id": "x", "timestamp": TIME, "cwd": "/home", "parent_session": None}


def line(kind: str, entry_id: str = "b", parent: str | None = "a", **fields: JsonValue) -> Object:
    return {"type": kind, "id": entry_id, "parent_id": parent, "timestamp": TIME, **fields}


def said(role: str, *contents: JsonValue, entry_id: str = "b", parent: str | None = "a", **fields: JsonValue) -> Object:
    message: Object = {"role": role, "contents": [*contents], "id": f"m-{entry_id}", "timestamp": TIME, **fields}
    return line("message", entry_id, parent, message=message)


def text(content: str) -> Object:
    return {"type": "text", "content": content}


def result(call: str, content: str) -> Object:
    return {"type": "tool_result", "id": call, "content": content, "is_error": False, "metadata": {}}


def placed(value: JsonValue, position: int | None) -> our.Publishable:
    message = CODING_AGENT_FORMAT.read(value).message
    assert isinstance(message, Unplaced)
    return message.place(position)


def read(value: JsonValue) -> TranscriptEntry:
    return CODING_AGENT_FORMAT.read(value)


def test_a_message_keeps_its_own_id_and_its_entrys_and_a_tools_metadata() -> None:
    entry = read({**said("user", text("hi")), "meta": {"reply_to": "9"}})
    assert entry.message == our.UserMessage(
        content=(our.TextBlock(text="hi"),),
        id="m-b",
        timestamp=MILLISECONDS,
        metadata={"entry": {"id": "b", "timestamp": TIME, "meta": {"reply_to": "9"}}},
    )
    assert (entry.id, entry.parent, entry.is_in_tree, entry.also) == ("b", "a", True, ())
    full: Object = {**result("c", "x"), "terminate": False, "metadata": {"entry": 5}}
    message = read(said("tool", full)).message
    assert isinstance(message, our.ToolResultMessage)
    assert message.metadata == {"entry": 5, "entry_": {"id": "b", "timestamp": TIME}}


def test_a_batch_of_results_is_one_entry_and_several_messages() -> None:
    entry = read(said("tool", result("1", "a"), result("2", "b")))
    first, *rest = entry.message, *entry.also
    assert isinstance(first, our.ToolResultMessage)
    assert [getattr(message, "tool_call_id", None) for message in (first, *rest)] == ["1", "2"]
    assert len({getattr(message, "batch_id", None) for message in (first, *rest)}) == 1


def test_the_entries_that_steer_the_context_are_ours_with_their_exact_times() -> None:
    change = read({**line("model_change", provider_id="p", model_id="m"), "timestamp": 1.0000005}).message
    assert change == our.ModelChange(provider="p", model="m", id="b", timestamp=1000, metadata={"timestamp": 1.0000005})
    assert read(line("model_change", provider_id="p", model_id="m")).message == our.ModelChange(
        provider="p", model="m", id="b", timestamp=MILLISECONDS
    )
    assert read(line("thinking_level_change", thinking_level="high")).message == our.ThinkingLevelChange(
        level="high", id="b", timestamp=MILLISECONDS
    )
    compaction = line("compaction", summary="s", first_kept_entry_id="a", tokens_before=7, from_hook=True)
    assert placed(compaction, 3) == our.Compaction(
        summary="s", first_kept=3, tokens_before=7, id="b", timestamp=MILLISECONDS, metadata={"from_hook": True}
    )
    kept_nowhere = placed(compaction, None)
    assert isinstance(kept_nowhere, our.Compaction)
    assert kept_nowhere.metadata == {"from_hook": True, "first_kept_entry_id": "a"}
    assert placed(line("branch_summary", summary="s", from_id="a"), 4) == our.BranchSummary(
        summary="s", branch=4, id="b", timestamp=MILLISECONDS, metadata={"from_id": "a"}
    )
    label = line("label", target_id="a", label="here")
    assert placed(label, 2) == our.Label(target=2, label="here", id="b", timestamp=MILLISECONDS)
    assert placed(label, None) == our.ExtensionMessage.of("import.label", label)
    leaf = line("leaf", target_id="a")
    assert placed(leaf, 2) == our.LeafMove(to=2, id="b", timestamp=MILLISECONDS)
    assert placed(leaf, 0) == our.LeafMove(to=None, id="b", timestamp=MILLISECONDS)
    assert placed(leaf, None) == our.ExtensionMessage.of("import.leaf", leaf)


def test_a_custom_message_is_an_extension_and_never_reaches_a_model() -> None:
    value = line("custom_message", custom_type="note", content=[text("x")], display=True, details={"a": 1})
    message = read(value).message
    assert isinstance(message, our.ExtensionMessage)
    assert message.kind == "custom"
    assert isinstance(message.data, dict)
    assert message.data["customType"] == "note"
    assert message.data["contents"] == [{"type": "text", "text": "x"}]
    assert message.data["details"] == {"a": 1}


@pytest.mark.parametrize("kind", ["custom", "session_info", "channel", "from the future"])
def test_what_is_no_message_is_kept_whole_in_the_extension_lane(kind: str) -> None:
    value = line(kind, name="n", data=[None])
    assert read(value).message == our.ExtensionMessage.of(f"import.{kind}", value)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([], ""),
        ({}, "type"),
        (line("message"), "message"),
        (line("message", message=[]), "message"),
        (line("message", message={}), "message.role"),
        (said("user", {"type": "text", "content": 5}), "message.contents.0.content"),
        (line("custom_message", custom_type="note", content=["x"]), "content.0"),
        (line("compaction", first_kept_entry_id="a"), "summary"),
        (line("compaction", summary="s", first_kept_entry_id=5), "first_kept_entry_id"),
        (line("compaction", summary="s", first_kept_entry_id="a", tokens_before="7"), "tokensBefore"),
        (line("model_change", model_id="m"), "provider"),
        (line("label", target_id=None), "target_id"),
        (line("leaf", target_id=5), "target_id"),
        ({**line("leaf", target_id=None), "timestamp": "yesterday"}, "timestamp"),
        ({**line("leaf", target_id=None), "timestamp": 1e300}, "timestamp"),
        ({**line("session_info"), "parent_id": 7}, "parent_id"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_with_the_place_of_the_fault(value: JsonValue, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read(value)
    assert caught.value.path == path


def file_of(*lines: Object | bytes) -> io.BytesIO:
    return io.BytesIO(b"\n".join(part if isinstance(part, bytes) else json.dumps(part).encode() for part in lines))


async def test_a_session_goes_in_as_the_tree_that_it_is(tmp_path: Path) -> None:
    lines = (
        HEADER,  # 1
        said("user", text("q"), entry_id="a", parent=None),  # 2
        said("assistant", {"type": "tool_call", "id": "1", "name": "x"}, {"type": "tool_call", "id": "2", "name": "y"}),
        said("tool", result("1", "r1"), result("2", "r2"), entry_id="c", parent="b"),  # 4, 5
        said("assistant", text("done"), entry_id="d", parent="c"),  # 6
        line("leaf", "e", "d", target_id="a"),  # 7
        said("user", text("again"), entry_id="f", parent="a"),  # 8
        line("compaction", "g", "c", summary="S", first_kept_entry_id="c", tokens_before=1),  # 9 moves, 10
        b"not json",
        line("leaf", "h", "g", target_id="f"),  # 11
    )
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s")
        report = await import_transcript(session, file_of(*lines))
        assert (report.format, [bad.number for bad in report.bad]) == ("000", [9])
        assert (await import_transcript(session, file_of(*lines))).added == 0
        log = [envelope.message async for envelope in session.read()]
        moves = {at: message.to for at, message in enumerate(log, 1) if isinstance(message, our.LeafMove)}
        assert moves == {7: 2, 9: 5, 11: 8}
        (compaction,) = (message for message in log if isinstance(message, our.Compaction))
        assert compaction.first_kept == 4  # the first of the batch
        assert texts(await build_context(session)) == ["u:q", "u:again"]
        assert texts(await build_context(session, leaf=6)) == ["u:q", "a:<1><2>", "t:r1", "t:r2", "a:done"]
        # Of the kept results the calls were cut off, so that no provider would take them.
        assert [text[:2] for text in texts(await build_context(session, leaf=10))] == ["u:"]


async def test_a_file_without_a_header_is_no_session_of_the_seed(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s")
        with pytest.raises(UnknownFormat):
            await import_transcript(session, file_of(b"not json", said("user", text("x"), parent=None)))
        assert (await session.head()).position == 0


def test_a_memory_log_and_an_import_hold_the_same() -> None:
    transcript = ListedTranscript([HEADER, said("assistant", text("x"), parent=None)], CODING_AGENT_FORMAT)
    header, answer = transcript.entries
    assert isinstance(header.message, our.ExtensionMessage)
    assert isinstance(answer.message, our.AssistantMessage)
    assert (answer.position, answer.time) == (2, TIME)
