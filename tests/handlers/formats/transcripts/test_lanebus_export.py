"""An export imported into another session gives the same log, with all positions mapped to the same entries."""

import io
import json
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import get_args

import anyio
import pytest
from hypothesis import given

from lanebus import Bus, DecodeFailure, Envelope, ExtensionMessage, Lane, Session, UserMessage
from lanebus.bus.errors import ForgedEntry, UnknownVersion
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    AssistantMessage,
    Control,
    MessageEnded,
    TurnEnded,
    TurnId,
    TurnStarted,
    Usage,
    extension,
    parse_json,
)
from lanebus.bus.messages import message as context_entry
from lanebus.handlers.agent import Worker, demo_agent
from lanebus.handlers.context import READ_UP_TO, build_context
from lanebus.handlers.formats import entry_line, header_line, import_transcript
from lanebus.handlers.formats.importer import ListedTranscript, OwnLog
from lanebus.handlers.formats.lanebus_export import OWN, POSITIONS
from lanebus.messages import BranchSummary, Compaction, Label, LeafMove, Prune, Publishable
from tests.support.agent.agents import SECONDS
from tests.support.log.entries import folded
from tests.support.messages.lane_logs import lane_logs
from tests.support.transcripts.transcript_files import messages_of

TURN = TurnId(loop_id="a.main.1", turn_index=0)
TREE: tuple[Publishable, ...] = (
    UserMessage.text("one"),  # 1
    TurnStarted(turn_id=TURN, prompts=(1,)).as_extension(),  # 2
    AssistantMessage(content=(), metadata={READ_UP_TO: 1}, turn_id=TURN),  # 3
    MessageEnded(turn_id=TURN, position=3).as_extension(),  # 4
    TurnEnded(turn_id=TURN, stop_reason="stop", usage=Usage(), message=3).as_extension(),  # 5
    UserMessage.text("two"),  # 6
    LeafMove(to=3),  # 7
    BranchSummary(summary="left", branch=6),  # 8
    Compaction(summary="sum", first_kept=3),  # 9
    Label(target=6, label="here"),  # 10
    ExtensionMessage.of("note", {"position": 1}),  # 11
    Prune(pruned=(1, 9)),  # 12
    LeafMove(),  # 13
)
"""Every kind of message that contains positions, and one that only seems to."""


async def exported(session: Session, *lanes: Lane) -> list[str]:
    wanted = lanes or tuple(Lane)
    lines = [header_line(await session.head(), wanted)]
    return lines + [entry_line(envelope) async for envelope in session.read(lanes=wanted)]


def file_of(lines: Sequence[str]) -> io.BytesIO:
    return io.BytesIO("\n".join(lines).encode())


def without_origin(lines: Sequence[str]) -> list[object]:
    """The entries, but for who put them there and when."""
    return [
        {key: item for key, item in json.loads(line).items() if key not in {"time", "producer"}} for line in lines[1:]
    ]


async def test_an_export_put_into_an_empty_session_is_the_same_log(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        first, second = bus.session("first"), bus.session("second")
        await first.publish(*TREE)
        lines = await exported(first)
        report = await import_transcript(second, file_of(lines))
        assert (report.format, report.added, report.bad) == ("lanebus", len(TREE), ())
        assert without_origin(await exported(second)) == without_origin(lines)


async def test_positions_are_mapped_to_the_new_ones(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        first, second = bus.session("first"), bus.session("second")
        await first.publish(*TREE)
        await second.publish(UserMessage.text("before"), ExtensionMessage.of("x"))
        await import_transcript(second, file_of(await exported(first)))
        log = (await messages_of(second))[2:]
    turn_started, answer, message_ended, turn_ended, _, move, summary, compaction, label, note, prune, root = log[1:]
    assert isinstance(turn_started, ExtensionMessage)
    assert TurnStarted.read(turn_started.data).prompts == (3,)
    assert isinstance(answer, AssistantMessage)
    assert answer.metadata == {READ_UP_TO: 3}
    assert isinstance(message_ended, ExtensionMessage)
    assert MessageEnded.read(message_ended.data).position == 5
    assert isinstance(turn_ended, ExtensionMessage)
    assert TurnEnded.read(turn_ended.data).message == 5
    assert (move, root) == (LeafMove(to=5), LeafMove())
    assert isinstance(summary, BranchSummary)
    assert summary.branch == 8
    assert isinstance(compaction, Compaction)
    assert compaction.first_kept == 5
    assert isinstance(label, Label)
    assert label.target == 8
    assert note == ExtensionMessage.of("note", {"position": 1})
    assert prune == Prune(pruned=(3, 11))


async def asked(bus: Bus, session: Session) -> None:
    """A whole loop of an agent that calls a tool."""
    worker = Worker(bus, demo_agent(delay=0.0))
    async with anyio.create_task_group() as tasks, aclosing(session.follow(lanes={Lane.EXTENSION})) as entries:
        tasks.start_soon(worker.run)
        await session.publish(UserMessage.text("What is 17 × 23?"))
        with anyio.fail_after(SECONDS):
            async for envelope in entries:
                if isinstance(envelope.message, ExtensionMessage) and envelope.message.kind == AgentEnded.KIND:
                    break
        worker.stop()


def test_every_event_and_context_entry_that_names_positions_is_known() -> None:
    found_in = vars(extension).values()
    kinds = [each for each in found_in if isinstance(each, type) and issubclass(each, AgentEvent | Control)]
    found = {
        kind.KIND: tuple(
            field.serialization_alias or name
            for name, field in kind.model_fields.items()
            if _is_position(field.annotation) or any(map(_is_position, field.metadata))
        )
        for kind in kinds
        if kind not in {AgentEvent, Control}
    }
    assert {kind: names for kind, names in found.items() if names} == dict(POSITIONS)
    named = {
        (kind.__name__, name)
        for kind in get_args(get_args(context_entry.AnyContextEntry)[0])
        for name, field in kind.model_fields.items()
        if _is_position(field.annotation) or any(map(_is_position, field.metadata))
    }
    assert named == {
        ("LeafMove", "to"),
        ("Compaction", "first_kept"),
        ("BranchSummary", "branch"),
        ("Label", "target"),
        ("Prune", "pruned"),
    }


def _is_position(annotation: object) -> bool:
    return "ge=1" in repr(annotation) or any(map(_is_position, get_args(annotation)))


async def test_an_export_does_not_go_into_its_own_session(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        session = bus.session("first")
        await session.publish(*TREE)
        with pytest.raises(OwnLog, match="'first'"):
            await import_transcript(session, file_of(await exported(session)))
        assert (await session.head()).position == len(TREE)


async def test_one_lane_goes_by_itself(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        first, llm, extension = (bus.session(name) for name in ("first", "llm", "extension"))
        await first.publish(*TREE)
        await import_transcript(llm, file_of(await exported(first, Lane.LLM)))
        await import_transcript(extension, file_of(await exported(first, Lane.EXTENSION)))
        assert (await build_context(llm)).messages == (await build_context(first)).messages
        assert [message.lane for message in await messages_of(extension)] == [Lane.EXTENSION] * 4


async def test_an_unreadable_entry_keeps_its_bytes_and_what_names_it_goes_to_the_one_before(tmp_path: Path) -> None:
    unreadable = DecodeFailure(ForgedEntry("s:llm", "2-0", "not written by the bus"), b"\xff{")
    lines = [
        entry_line(Envelope("s", 1, Lane.LLM, UserMessage.text("a"), 1.5, "p")),
        entry_line(Envelope("s", 2, Lane.LLM, unreadable, 0.0, "")),
        entry_line(Envelope("s", 3, Lane.LLM, UserMessage.text("b"), 1.5, "p")),
        entry_line(Envelope("s", 4, Lane.LLM, LeafMove(to=2), 1.5, "p")),
        entry_line(Envelope("s", 5, Lane.LLM, Compaction(summary="s", first_kept=2), 1.5, "p")),
        entry_line(Envelope("s", 6, Lane.LLM, Label(target=2, label="x"), 1.5, "p")),
    ]
    async with Bus.open(data_dir=tmp_path) as bus:
        report = await import_transcript(bus.session("s"), file_of(lines))
        log = await messages_of(bus.session("s"))
    assert report.bad == ()
    kept = log[1]
    assert isinstance(kept, ExtensionMessage)
    assert (kept.kind, kept.data) == ("import.unreadable", json.loads(lines[1]))
    assert json.loads(lines[1])["raw"] == "/3s="
    assert log[3:5] == [LeafMove(to=1), Compaction(summary="s", first_kept=3)]
    assert isinstance(log[5], ExtensionMessage)
    assert log[5].kind == "import.label"


async def test_a_message_as_deep_as_may_be_is_exported_whole(tmp_path: Path) -> None:
    deep: list[object] = []
    for _ in range(62):
        deep = [deep]
    message = ExtensionMessage.of("deep", json.loads(json.dumps(deep)))
    async with Bus.open(data_dir=tmp_path) as bus:
        await bus.session("first").publish(message)
        report = await import_transcript(bus.session("second"), file_of(await exported(bus.session("first"))))
        assert (report.bad, await messages_of(bus.session("second"))) == ((), [message])


async def test_bad_lines_are_named(tmp_path: Path) -> None:
    good = entry_line(Envelope("s", 1, Lane.LLM, UserMessage.text("a"), 1.5, "p"))
    entry = json.loads(good)
    bad = [
        {**entry, "position": 0},
        {**entry, "position": 10**18},
        {**entry, "lane": "x"},
        {**entry, "lane": "extension"},
        {**entry, "message": {"role": "user", "content": 7}},
        {**entry, "message": None},
        {**entry, "raw": "%"},
        {"type": "lanebus.export", "version": 1},
    ]
    async with Bus.open(data_dir=tmp_path) as bus:
        report = await import_transcript(bus.session("s"), file_of([good, *map(json.dumps, bad)]))
    assert [(each.number, each.reason.split(":")[0]) for each in report.bad] == [
        (2, "position"),
        (3, "position"),
        (4, "lane"),
        (5, "unknown role 'user'"),
        (6, "message.content"),
        (7, "message"),
        (8, "raw"),
        (9, "type"),
    ]
    assert report.added == 1


async def test_a_header_with_a_number_that_is_too_large_is_read(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        await bus.session("first").publish(*TREE)
        header, *lines = await exported(bus.session("first"))
        for field in ("created", "first", "last"):
            huge = json.dumps({**json.loads(header), field: 10**400})
            report = await import_transcript(bus.session(f"into-{field}"), file_of([huge, *lines]))
            assert (report.added, report.bad) == (len(TREE), ())


async def test_an_export_of_a_later_version_is_refused_whole(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        with pytest.raises(UnknownVersion):
            await import_transcript(bus.session("s"), file_of(['{"type":"lanebus.export","version":2,"session":"x"}']))


async def test_an_agents_session_comes_back_equal(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        first, second = bus.session("first"), bus.session("second")
        await asked(bus, first)
        lines = await exported(first)
        await import_transcript(second, file_of(lines))
        assert len(lines) > 15
        assert without_origin(await exported(second)) == without_origin(lines)


@pytest.mark.full
@given(lane_logs())
async def test_any_log_shows_a_model_the_same_once_it_was_carried_elsewhere(entries: list[Envelope]) -> None:
    # Positions have gaps where the other lane would be, so each entry comes to stand at another one.
    carried = ListedTranscript([parse_json(entry_line(entry)) for entry in entries], OWN, session="s")
    assert carried.bad == ()
    assert (await build_context(carried)).messages == folded(entries).messages
    assert [entry.position for entry in carried.entries] == list(range(1, len(entries) + 1))


@pytest.mark.full
async def test_a_real_session_comes_back_equal(tmp_path: Path, seed_data: Path) -> None:
    async with Bus.open(data_dir=tmp_path) as bus:
        first, second = bus.session("first"), bus.session("second")
        await import_transcript(first, seed_data / "data" / "pi-session.jsonl")
        lines = await exported(first)
        report = await import_transcript(second, file_of(lines))
        assert (report.added, report.bad) == (1003, ())
        assert without_origin(await exported(second)) == without_origin(lines)
        assert (await import_transcript(second, file_of(lines))).added == 0
