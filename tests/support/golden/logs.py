"""Golden logs: the entries that each version of the format wrote, with the projections and requests that follow.

A log is a file of JSON lines. Each is one stored entry: its stream, its id and its two fields. Next to it are the
projections and, for some positions, each provider's request. A log of an earlier version is never changed; a new
version of the format gets a new directory.

    python -m tests.golden.record            write the views again, after a deliberate change
    python -m tests.golden.record --log      write the logs of the present version, and the views

Review the difference before you commit it: users will find the same in their stored sessions.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lanebus import Delta, Envelope, Lane
from lanebus.bus.wire import decode, decode_delta, encode
from lanebus.bus.wire.codec import VERSION
from lanebus.context import Context, evolve
from lanebus.handlers.projections import SESSIONS, TURNS, USAGE
from lanebus.messages import Publishable
from lanebus.providers import to_anthropic, to_gemini, to_openai_chat, to_openai_responses
from tests.support.agent.folding import fold
from tests.support.golden.control_material import CONTROLLED
from tests.support.golden.material import DELTAS, SAID, STEERED
from tests.support.log.stored import header
from tests.support.paths import GOLDEN

__all__ = (
    "FOLDERS",
    "MATERIAL",
    "Line",
    "deltas",
    "envelopes",
    "lines_of",
    "places",
    "pretty",
    "read_lines",
    "record",
    "requests",
    "views",
)
HERE = GOLDEN
FOLDERS = sorted(path for path in HERE.glob("v*") if path.is_dir())
FORMS = (to_anthropic, to_openai_chat, to_openai_responses, to_gemini)
MATERIAL: Mapping[Path, tuple[Sequence[Publishable], Sequence[Delta]]] = {
    HERE / f"v{VERSION}": ([*SAID, *STEERED], DELTAS),
    HERE / f"v{VERSION}_control": (CONTROLLED, ()),
}
"""directory → the messages and deltas that the present version writes into it"""

_BEGAN = 1_700_000_000_000


class Line(NamedTuple):
    """One stored entry: its stream, id and fields."""

    stream: str
    """a lane, or "live" """
    id: str
    header: str
    body: str


def lines_of(messages: Sequence[Publishable], deltas: Sequence[Delta] = ()) -> list[Line]:
    """Return the entries as this version of the package writes them."""
    lines: list[Line] = []
    for position, message in enumerate(messages, 1):
        body, time = encode(message), _BEGAN + position * 1000
        head = header(message.lane, body, version=VERSION, milliseconds=time, producer="golden", token="0_g")
        lines.append(Line(message.lane.value, f"{position}-0", head, body.decode()))
    for number, delta in enumerate(deltas, 1):
        lines.append(Line("live", f"8-{number}", f"{VERSION} {_BEGAN + 8000} golden", encode(delta).decode()))
    return lines


def read_lines(folder: Path) -> list[Line]:
    """Read a golden log."""
    return [Line(*json.loads(line)) for line in (folder / "log.jsonl").read_text(encoding="utf-8").split("\n") if line]


def envelopes(lines: Sequence[Line], session: str = "golden") -> list[Envelope]:
    """Return the entries of both lanes as a reader gets them."""
    return [
        decode(session, Lane(line.stream), (line.id.encode(), (b"h", line.header.encode(), b"m", line.body.encode())))
        for line in lines
        if line.stream != "live"
    ]


def deltas(lines: Sequence[Line], session: str = "golden") -> list[Envelope]:
    """Return the live deltas as a reader gets them."""
    return [
        decode_delta(session, (line.id.encode(), (b"h", line.header.encode(), b"m", line.body.encode())))
        for line in lines
        if line.stream == "live"
    ]


def requests(contexts: Sequence[Context]) -> Iterator[tuple[str, str]]:
    """Return file names with each provider's request for each context."""
    for form in FORMS:
        sent = [(context.position, form(context, model="golden")) for context in contexts]
        found = [{"at": at, "body": request.body, "warnings": request.warnings} for at, request in sent]
        yield f"{form.__name__}.json", pretty(json.dumps(found))


def views(log: Sequence[Envelope]) -> Iterator[tuple[str, str]]:
    """Return file names with their content: each projection of the log, and the requests at every tenth position."""
    yield "usage.json", pretty(USAGE.dump(fold(USAGE, log)))
    yield "turns.json", pretty(TURNS.dump(fold(TURNS, log)))
    yield "sessions.json", pretty(SESSIONS.dump(fold(SESSIONS, log)))
    yield from requests([_context(log[:at]) for at in places(log[-1].position)])


def places(last: int) -> list[int]:
    """Return the positions at which requests are recorded."""
    return [*range(10, last, 10), last]


def _context(log: Sequence[Envelope]) -> Context:
    context = Context("golden")
    for envelope in log:
        if envelope.lane is Lane.LLM:
            context = evolve(context, envelope)
    return context


def pretty(data: bytes | str) -> str:
    """Return JSON as the files contain it, one value a line."""
    return json.dumps(json.loads(data), ensure_ascii=False, indent=1) + "\n"


def record(*, with_logs: bool) -> None:
    """Write the views of all golden logs again; with `with_logs` also the logs of the present version."""
    for folder, (said, pieces) in MATERIAL.items() if with_logs else ():
        folder.mkdir(exist_ok=True)
        log = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines_of(said, pieces))
        (folder / "log.jsonl").write_text(log, encoding="utf-8")
    for folder in sorted({*FOLDERS, *MATERIAL}):
        for name, text in views(envelopes(read_lines(folder))):
            (folder / name).write_text(text, encoding="utf-8")
