"""Golden sessions: exports of agents' sessions by the version in `written.json`, with the projections and requests that
follow. A session is never changed; a new version gets a new directory.

    python -m tests.golden.record            write the views again, after a deliberate change
    python -m tests.golden.record --log      run the agents, and write their sessions and the views

Review the difference before you commit it: users will find the same in their stored sessions.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import cast

import anyio
from pydantic import JsonValue

from lanebus import AssistantMessage, Envelope, Lane, Session
from lanebus.bus.embedded.server import find_binary
from lanebus.bus.wire import decode
from lanebus.bus.wire.codec import VERSION
from lanebus.context import Context, evolve
from lanebus.handlers.agent.turn.loop_state import CUT
from lanebus.handlers.formats import entry_line, header_line
from lanebus.handlers.projections import SESSIONS, STATUS, TURNS, USAGE
from tests.support.agent.folding import fold
from tests.support.golden.logs import Line, pretty, requests
from tests.support.laws.await_scenarios import SCENARIOS, Scenario, work_off
from tests.support.laws.cancelling import Moment, cut
from tests.support.laws.history import History
from tests.support.log.stored import header
from tests.support.paths import GOLDEN
from tests.support.servers.real import RealServer, real_server

__all__ = ("FOLDERS", "HERE", "TOLD", "context_of", "envelopes", "is_cut", "places", "read_session", "record", "views")
HERE = GOLDEN / "sessions"
FOLDERS = sorted(path.parent for path in HERE.glob("*/*/session.jsonl"))
TOLD = {
    "tools": SCENARIOS["two tools"],
    "approval": SCENARIOS["a tool that asks"],
    "retry": SCENARIOS["a failure that passes"],
    "pause": SCENARIOS["paused"],
    "steer": SCENARIOS["steered"],
    "abort": SCENARIOS["aborted"],
    "cut": SCENARIOS["an answer"],
}
"""name of the session → scenario"""

_BEGAN = 1_700_000_000


def read_session(folder: Path) -> list[Line]:
    """Return the entries of a golden session as they were stored."""
    return [_line(json.loads(text)) for text in _texts(folder)[1:]]


def _texts(folder: Path) -> list[str]:
    return [text for text in (folder / "session.jsonl").read_text(encoding="utf-8").split("\n") if text]


def _line(entry: dict[str, JsonValue]) -> Line:
    time, message = entry["time"], entry["message"]
    assert isinstance(time, int | float)
    lane, position, body = (
        Lane(str(entry["lane"])),
        int(str(entry["position"])),
        json.dumps(message, ensure_ascii=False),
    )
    head = header(*(lane, body), version=VERSION, milliseconds=round(time * 1000), producer=str(entry["producer"]))
    return Line(lane.value, f"{position}-0", head, body)


def envelopes(lines: Sequence[Line], session: str) -> list[Envelope]:
    """Return the entries as a reader gets them."""
    return [
        decode(session, Lane(line.stream), (line.id.encode(), (b"h", line.header.encode(), b"m", line.body.encode())))
        for line in lines
    ]


def views(log: Sequence[Envelope]) -> Iterator[tuple[str, str]]:
    """Return file names with their content: each projection of the session, and the requests at some positions."""
    yield "usage.json", pretty(USAGE.dump(fold(USAGE, log)))
    yield "turns.json", pretty(TURNS.dump(fold(TURNS, log)))
    yield "sessions.json", pretty(SESSIONS.dump(fold(SESSIONS, log)))
    yield "status.json", pretty(STATUS.dump(fold(STATUS, log)))
    yield from requests([context_of(log[:at]) for at in places(log[-1].position)])


def places(last: int) -> list[int]:
    """Return the positions at which requests are recorded: after a third, after two thirds, and at the end."""
    return [last // 3, 2 * last // 3, last]


def context_of(log: Sequence[Envelope]) -> Context:
    """Return a model's context at the end of a log."""
    context = Context(log[0].session)
    for envelope in log:
        if envelope.lane is Lane.LLM:
            context = evolve(context, envelope)
    return context


# --- writing ------------------------------------------------------------------------------------------------------


async def _run(server: RealServer, name: str, scenario: Scenario) -> list[str]:
    """Let an agent work. Return the session's export, with made-up times and producers."""
    for at in range(1, 200):
        history = History(server.directory / f"history{at}")
        async with server.bus(f"n{at}") as bus:
            session = bus.session(f"golden-{name}")
            if name == "cut":
                await cut(partial(work_off, session, scenario, history), at=at, moment=Moment.LEVEL, is_deep=True)
            await work_off(session, scenario, history)
            if name != "cut" or any(is_cut(entry) for entry in [each async for each in session.read()]):
                return await _export(session)
    raise AssertionError("nothing was cut")


def is_cut(entry: Envelope) -> bool:
    """Return whether this is an answer that was cut while it was streamed."""
    return isinstance(entry.message, AssistantMessage) and CUT in (entry.message.metadata or {})


async def _export(session: Session) -> list[str]:
    head = (await session.head())._replace(created=float(_BEGAN))
    lines = [header_line(head, tuple(Lane))]
    async for envelope in session.read():
        line = cast("dict[str, JsonValue]", json.loads(entry_line(envelope)))
        message = line["message"]
        assert isinstance(message, dict)
        if "timestamp" in message:
            message["timestamp"] = (_BEGAN + envelope.position) * 1000
        line |= {"time": float(_BEGAN + envelope.position), "producer": "golden"}
        lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
    return lines


def _write_sessions(folder: Path) -> None:
    for name, scenario in TOLD.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        with real_server(find_binary()) as server:
            text = "\n".join(anyio.run(_run, server, name, scenario)) + "\n"
        (folder / name / "session.jsonl").write_text(text, encoding="utf-8")
    (folder / "written.json").write_text(pretty(json.dumps({"lanebus": version("lanebus"), "form": VERSION})))


def record(*, with_logs: bool) -> None:
    """Write the views of all golden sessions again; with `with_logs` first run the agents and write their sessions."""
    if with_logs:
        with suppress(FileExistsError):
            HERE.mkdir()
        _write_sessions(HERE / f"v{VERSION}")
    for folder in sorted({path.parent for path in HERE.glob("*/*/session.jsonl")}):
        for file, view in views(envelopes(read_session(folder), f"golden-{folder.name}")):
            (folder / file).write_text(view, encoding="utf-8")
