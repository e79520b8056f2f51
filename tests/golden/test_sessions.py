"""What agents did in an older version is read as it was, and gives the same views and the same requests."""

import json
from pathlib import Path
from typing import TypeVar

import pytest

from lanebus import AssistantMessage, DecodeFailure, Envelope, ExtensionMessage, Lane
from lanebus.bus.messages import AgentEnded, ControlAnswered, ToolWaiting, parse_event
from lanebus.bus.wire import Keys
from lanebus.bus.wire.codec import VERSION
from lanebus.context import build_context
from lanebus.handlers.agent.turn.loop_state import AGAIN
from lanebus.handlers.formats import import_transcript
from lanebus.handlers.projections import SESSIONS, STATUS, TURNS, USAGE
from lanebus.projections import project
from tests.support.golden.logs import pretty, requests
from tests.support.golden.sessions import (
    FOLDERS,
    HERE,
    TOLD,
    context_of,
    envelopes,
    is_cut,
    places,
    read_session,
    views,
)
from tests.support.servers.real import RealServer

__all__ = ()

E = TypeVar("E")

PRESENT = HERE / f"v{VERSION}"


def _name(folder: Path) -> str:
    return f"golden-{folder.name}"


def _id(folder: Path) -> str:
    return f"{folder.parent.name} {folder.name}"


@pytest.mark.parametrize("folder", FOLDERS, ids=_id)
async def test_a_golden_session_gives_the_same_projections_and_requests(valkey: RealServer, folder: Path) -> None:
    lines, keys, name = read_session(folder), Keys(), _name(folder)
    with valkey.talk() as say:
        for line in lines:
            say("XADD", keys.lane(name, Lane(line.stream)), line.id, "h", line.header, "m", line.body)
        say("HSET", keys.head(name), "position", str(len(lines)))
    async with valkey.bus() as bus:
        session = bus.session(name)
        read = [envelope async for envelope in session.read()]
        assert read == envelopes(lines, name)
        found = {
            "usage.json": pretty(USAGE.dump((await project(session, USAGE)).state)),
            "turns.json": pretty(TURNS.dump((await project(session, TURNS)).state)),
            "sessions.json": pretty(SESSIONS.dump((await project(session, SESSIONS)).state)),
            "status.json": pretty(STATUS.dump((await project(session, STATUS)).state)),
        }
        found |= requests([await build_context(session, at=at) for at in places(len(lines))])
    assert found == dict(views(read))
    for file, text in found.items():
        assert text == (folder / file).read_text(encoding="utf-8"), file


@pytest.mark.parametrize("folder", FOLDERS, ids=_id)
async def test_a_golden_session_is_imported_as_the_same_conversation(valkey: RealServer, folder: Path) -> None:
    log = envelopes(read_session(folder), _name(folder))
    assert not any(isinstance(entry.message, DecodeFailure) for entry in log)
    async with valkey.bus() as bus:
        elsewhere = bus.session("elsewhere")
        report = await import_transcript(elsewhere, folder / "session.jsonl")
        assert (report.format, report.added, report.bad) == ("lanebus", len(log), ())
        asked = dict(requests([await build_context(elsewhere)]))
    assert asked == dict(requests([context_of(log)]))


@pytest.mark.parametrize("version", sorted({folder.parent for folder in FOLDERS}), ids=lambda version: version.name)
def test_golden_sessions_say_which_version_wrote_them(version: Path) -> None:
    written = json.loads((version / "written.json").read_text())
    assert version.name == f"v{written['form']}"
    assert written["lanebus"]


def test_there_is_a_golden_session_of_each_kind_in_the_present_form() -> None:
    logs = {name: envelopes(read_session(PRESENT / name), f"golden-{name}") for name in TOLD}
    assert {name for name, log in logs.items() if any(is_cut(entry) for entry in log)} == {"cut"}
    assert [name for name, log in logs.items() if any(_is_again(entry) for entry in log)] == ["retry"]
    ends = {name: [event.stop_reason for event in _events(log, AgentEnded)] for name, log in logs.items()}
    assert ends["abort"] == ["aborted"]
    assert ends["pause"] == ["paused", "stop"]
    assert all(found == ["stop"] for name, found in ends.items() if name not in {"abort", "pause"})
    answered = {name: len(_events(log, ControlAnswered)) for name, log in logs.items()}
    assert answered == {"tools": 0, "approval": 1, "retry": 0, "pause": 2, "steer": 1, "abort": 1, "cut": 0}
    assert len(_events(logs["approval"], ToolWaiting)) == 1


def _is_again(entry: Envelope) -> bool:
    return isinstance(entry.message, AssistantMessage) and AGAIN in (entry.message.metadata or {})


def _events(log: list[Envelope], kind: type[E]) -> list[E]:
    found = [parse_event(entry.message) for entry in log if isinstance(entry.message, ExtensionMessage)]
    return [event for event in found if isinstance(event, kind)]
