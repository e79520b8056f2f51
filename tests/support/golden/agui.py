"""Golden streams of AG-UI: what clients got for the recorded sessions, for machines without Node.

    python -m tests.golden.record            write the streams again, after a deliberate change

Review the difference before you commit it: every client of users will get the same.
"""

from collections.abc import Iterable

from lanebus import Envelope
from lanebus.handlers.protocols import AguiRun, AguiView, RunInput
from tests.support.golden.deltas import with_deltas
from tests.support.golden.sessions import FOLDERS, envelopes, read_session
from tests.support.paths import GOLDEN

__all__ = ("HERE", "STREAMS", "record", "stream_of")
HERE = GOLDEN / "agui"
LONG = 400
"""characters of a live delta of a long answer"""

Place = tuple[str, int, int]
"""name of a session, the last position that is stored when the run is requested, and how many deltas follow it"""

STREAMS: dict[str, Place] = {
    "tools": ("tools", 1, 0),
    "retry": ("retry", 1, 0),
    "steer": ("steer", 1, 0),
    "takeover": ("cut", 1, 0),
    "cancelled": ("abort", 1, 0),
    "paused": ("pause", 1, 0),
    "resumed": ("pause", 15, 0),
    "interrupt": ("approval", 1, 0),
    "approved": ("approval", 12, 0),
    "reload": ("approval", 19, 1),
    "reload in a call": ("tools", 5, 2),
    "over": ("tools", 20, 0),
}
"""streams by name"""


def stream_of(place: Place, size: int | None = None) -> str:
    """Return the stream of a run.

    Args:
        place: where the run is requested.
        size: characters of a live delta; None is small, but larger for long answers.
    """
    name, stored, shown = place
    folder = next(each for each in FOLDERS if each.name == name)
    size = size or (LONG if name in {"cut", "abort"} else 4)
    entries = [*with_deltas(envelopes(read_session(folder), f"golden-{name}"), size)]
    asked = RunInput(
        thread_id=f"golden-{name}", run_id="run", is_current=True, prompts=(), answers=(), known=(), tools=()
    )
    run = AguiRun(asked, lambda: AguiView(messages=100, size=100_000), counted_after=stored)
    frames = [run.started]
    past = [entry for entry in entries if (entry.position, entry.delta) <= (stored, shown)]
    frames += [run.add(entry) for entry in past]
    frames.append(run.caught_up(stored))
    for index, entry in enumerate(entries[len(past) :], len(past)):
        if run.is_done:
            break
        frames += [run.add(entry), _corrected(run, entries[: index + 1])]
    return b"".join(frames).decode()


def _corrected(run: AguiRun, entries: Iterable[Envelope]) -> bytes:
    correction = run.correction()
    if correction is None:
        return b""
    for entry in entries:
        if not entry.delta:
            correction.add(entry)
    return correction.caught_up()


def record() -> None:
    """Write all streams."""
    HERE.mkdir(exist_ok=True)
    for name, place in STREAMS.items():
        (HERE / f"{name}.sse").write_text(stream_of(place))
