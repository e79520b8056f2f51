"""What an older version has written is read as it was: a form that changes without its upcaster fails here."""

import json
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from lanebus import Delta, ExtensionMessage, Lane
from lanebus.bus import messages
from lanebus.bus.wire import DecodeFailure, Envelope, Keys, encode
from lanebus.context import build_context
from lanebus.messages import AgentEvent, ContextEntry, Control, parse_event
from lanebus.projections import SESSIONS, TURNS, USAGE, project
from tests.support.golden.logs import (
    FOLDERS,
    MATERIAL,
    deltas,
    envelopes,
    lines_of,
    places,
    pretty,
    read_lines,
    requests,
)
from tests.support.servers.real import RealServer

__all__ = ()


NAMED = [getattr(messages, name) for name in messages.__all__]
MODELS: list[type[BaseModel]] = [each for each in NAMED if isinstance(each, type) and issubclass(each, BaseModel)]
"""all models of messages"""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
async def test_a_golden_log_gives_the_same_projections_and_requests(valkey: RealServer, folder: Path) -> None:
    lines, keys = read_lines(folder), Keys()
    last = max(int(line.id.partition("-")[0]) for line in lines)
    with valkey.talk() as say:
        for line in lines:
            name = keys.live("golden") if line.stream == "live" else keys.lane("golden", Lane(line.stream))
            say("XADD", name, line.id, "h", line.header, "m", line.body)
        say("HSET", keys.head("golden"), "position", str(last))
    async with valkey.bus() as bus:
        session = bus.session("golden")
        read = [envelope async for envelope in session.read()]
        assert read == envelopes(lines)
        found = {
            "usage.json": pretty(USAGE.dump((await project(session, USAGE)).state)),
            "turns.json": pretty(TURNS.dump((await project(session, TURNS)).state)),
            "sessions.json": pretty(SESSIONS.dump((await project(session, SESSIONS)).state)),
        }
        found |= requests([await build_context(session, at=at) for at in places(last)])
    for name, text in found.items():
        assert text == (folder / name).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_entry_of_a_golden_log_is_read(folder: Path) -> None:
    lines = read_lines(folder)
    found = [*envelopes(lines), *deltas(lines)]
    assert len(found) == len(lines)
    assert [envelope for envelope in found if isinstance(envelope.message, DecodeFailure)] == []


@pytest.mark.parametrize("folder", MATERIAL, ids=lambda folder: folder.name)
def test_the_newest_golden_logs_are_what_is_written_today(folder: Path) -> None:
    assert read_lines(folder) == lines_of(*MATERIAL[folder])


def test_the_newest_golden_logs_have_every_kind_of_message() -> None:
    logs = [read_lines(folder) for folder in MATERIAL]
    found = _kinds([envelope for lines in logs for envelope in [*envelopes(lines), *deltas(lines)]])
    wanted = {f"role {role}" for model in MODELS if model is not Delta for role in _literals(model, "role")}
    wanted |= {f"block {name}" for model in MODELS for name in _literals(model, "type")}
    wanted |= {
        f"kind {name}" for model in MODELS if issubclass(model, ContextEntry) for name in _literals(model, "kind")
    }
    wanted |= {f"event {model.KIND}" for model in MODELS if issubclass(model, AgentEvent) and model is not AgentEvent}
    wanted |= {f"command {model.KIND}" for model in MODELS if issubclass(model, Control) and model is not Control}
    wanted |= {f"delta {name}" for name in _literals(Delta, "kind")}
    assert wanted - found == set()


def _literals(model: type[BaseModel], field: str) -> tuple[str, ...]:
    """What a field of this model may hold, where it is a choice of texts."""
    if field not in model.model_fields:
        return ()
    return tuple(each for each in get_args(model.model_fields[field].annotation) if isinstance(each, str))


def _kinds(found: list[Envelope]) -> set[str]:
    kinds: set[str] = set()
    for envelope in found:
        said = envelope.message
        assert not isinstance(said, DecodeFailure)
        if isinstance(said, Delta):
            kinds.add(f"delta {said.kind}")
            continue
        if isinstance(said, ExtensionMessage) and (event := parse_event(said)) is not None:
            kinds.add(f"event {event.KIND}")
        if isinstance(said, ExtensionMessage) and said.is_control:
            kinds.add(f"command {said.kind}")
        body = json.loads(encode(said))
        kinds |= {f"role {body['role']}", f"kind {body.get('kind')}"}
        blocks = body.get("content", [])
        kinds |= {f"block {block['type']}" for block in blocks}
        kinds |= {f"block {inner['type']}" for block in blocks for inner in block.get("content", [])}
    return kinds
