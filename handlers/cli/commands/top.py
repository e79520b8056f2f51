"""`lanebus top`: show consumer groups, running sessions and waiting work."""

import shutil
from collections.abc import Container, Iterable, Sequence
from functools import partial

import anyio
import click

from lanebus.bus import AgentWork, ConsumerStatus, GroupStatus
from lanebus.bus.errors import Unavailable
from lanebus.bus.text import without_secrets
from lanebus.handlers.cli.access import open_bus, run
from lanebus.handlers.cli.arguments import complete_group, require_groups
from lanebus.handlers.cli.options import Settings, ViewCommand
from lanebus.handlers.cli.output import (
    Column,
    Line,
    Output,
    Screen,
    Tone,
    can_draw,
    count,
    cut,
    has_colours,
    moment,
    money,
    plain,
    put,
    table,
    tell,
)
from lanebus.handlers.cli.summary import STATES
from lanebus.handlers.serve import Overview, Pace, SessionStatus, Watcher, overview_json

PATIENCE_SECONDS = 3.0
"""seconds after which a reading is abandoned and an error is shown instead"""


@click.command("top", cls=ViewCommand)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_group,
    help="Show only this consumer group; may be repeated.",
)
@click.option("--once", is_flag=True, help="Print one reading, and end.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.2),
    default=1.0,
    metavar="SECONDS",
    help="Time between two readings; 0.2 or more.",
    show_default=True,
)
@click.pass_context
def command(ctx: click.Context, *, groups: tuple[str, ...], once: bool, every: float) -> None:
    """Show consumer groups, their workers and sessions, and waiting work, until Ctrl-C. Changes nothing.

    lag counts sessions that wait for a worker, pending counts sessions that a worker has, and retries counts sessions
    that wait for their next attempt. held counts the sessions that a worker held at its last heartbeat; the table shows
    "-" for a worker that is gone. A session is listed while a worker has it, or while it waits for a person. Numbers
    with ≈ are estimates from a sample. The load on the server stays small, however much is stored.

    As JSON, each line is one reading: time (seconds UTC), groups, sessions, sessions_left_out and pace, which is null
    in the first reading. If the server did not answer, the line has only an error.

    \b
    Example: lanebus top --group agents
    Example: lanebus top --once --json
    """
    output = Output.of(ctx)
    run(partial(_top, Settings.of(ctx), groups, _viewer(output, once=once), every=None if once else every))


async def _top(settings: Settings, groups: tuple[str, ...], view: "_View", *, every: float | None) -> None:
    async with open_bus(settings) as bus:
        await require_groups(bus, groups)
        watcher = Watcher(bus, groups)
        first = await watcher.look()
        with view:
            view.show(first)
            while every is not None:
                await anyio.sleep(every)
                try:
                    with anyio.fail_after(PATIENCE_SECONDS):
                        view.show(await watcher.look())
                except TimeoutError:
                    view.tell_trouble(f"the server did not answer within {PATIENCE_SECONDS:g} s")
                except Unavailable as error:
                    view.tell_trouble(without_secrets(str(error)))


class _View:
    """Prints one reading after the other, as JSON or as plain text."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._trouble = ""
        self._is_first = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, overview: Overview) -> None:
        """Print a reading."""
        if self._trouble:
            self._trouble = ""
            tell("the server answers again")
        if self._output.is_json:
            self._output.json(overview_json(overview), flush=True)
            return
        if not self._is_first:
            self._output.line("")
        self._is_first = False
        for line in draw(overview, fit=self._output.fit):
            put(line, colours=has_colours())
        self._output.line("", flush=True)

    def tell_trouble(self, trouble: str) -> None:
        """Report why there is no new reading. On stderr, the same text is not repeated."""
        if self._output.is_json:
            self._output.json({"error": trouble}, flush=True)
        if trouble != self._trouble:
            tell(f"{trouble}; trying again")
        self._trouble = trouble


class _LiveView(_View):
    """Draws each reading over the previous reading. At the end, the last reading is printed and stays on the
    terminal."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._screen = Screen(colours=has_colours())
        self._last: Overview | None = None

    def __enter__(self) -> None:
        self._screen.__enter__()

    def __exit__(self, *_: object) -> None:
        self._screen.__exit__(None, None, None)
        if self._last is not None:
            for line in self._lines(self._last):
                self._output.line(line.text)

    def show(self, overview: Overview) -> None:
        self._last, self._trouble = overview, ""
        self._draw()

    def tell_trouble(self, trouble: str) -> None:
        self._trouble = trouble
        self._draw()

    def _draw(self) -> None:
        if self._last is not None:
            self._screen.show(self._lines(self._last), shutil.get_terminal_size())

    def _lines(self, overview: Overview) -> list[Line]:
        columns, height = shutil.get_terminal_size()
        # Keep the last column free: clearing the rest of a line would erase a character in this column.
        return draw(overview, fit=columns - 1, height=height, trouble=self._trouble)


def _viewer(output: Output, *, once: bool) -> _View:
    return _LiveView(output) if can_draw() and not output.is_json and not once else _View(output)


FEWEST = 3
"""minimum number of lines of a table in a low window, including the titles"""

_GROUPS = (
    Column("group", is_flexible=True),
    Column("alive", is_number=True),
    Column("silent", is_number=True),
    Column("lag", is_number=True),
    Column("pending", is_number=True),
    Column("retries", is_number=True),
    Column("next", is_number=True),
    Column("dead", is_number=True),
)
_WORKERS = (
    Column("worker", is_flexible=True),
    Column("group", is_flexible=True),
    Column("last seen", is_number=True),
    Column("held", is_number=True),
    Column("pending", is_number=True),
    Column("agents", is_flexible=True),
)
_WITHOUT_WORKER = (
    Column("agent without worker", is_flexible=True),
    Column("lag", is_number=True),
    Column("retries", is_number=True),
    Column("waits", is_number=True),
)
_SESSIONS = (
    Column("session", is_flexible=True),
    Column("worker", is_flexible=True),
    Column("epoch", is_number=True),
    Column("lease", is_number=True),
    Column("position", is_number=True),
    Column("loop", is_flexible=True),
    Column("turn", is_number=True),
    Column("activity"),
)
_ACTIVITIES = {
    "idle": "",
    "model": "calls the model",
    "tools": "runs tools",
    "waiting": STATES["waiting"],
    "queued": STATES["queued"],
    "paused": STATES["paused"],
    "handoff": STATES["handoff"],
}


_NO_GROUP = Line("no worker has run here yet: start one with `lanebus worker MODULE:ATTRIBUTE`", "dim")


def draw(overview: Overview, *, fit: int | None = None, height: int | None = None, trouble: str = "") -> list[Line]:
    """Return the lines of an overview.

    Args:
        overview: what to show.
        fit: maximum number of columns of a line; None means unlimited.
        height: maximum number of lines; None means unlimited. Sessions are left out first, then workers.
        trouble: why the overview could not be updated; shown as the first line.
    """
    head = [_fitted(line, fit) for line in _head(overview, trouble)]
    groups = _table(_GROUPS, [(_group(each), _group_tone(each)) for each in overview.groups], fit)
    workers = sorted(
        ((each, group.name) for group in overview.groups for each in group.consumers),
        key=lambda pair: (pair[0].is_alive, -pair[0].held, pair[0].name),
    )
    worker_lines = _table(_WORKERS, [(_worker(*pair), "plain" if pair[0].is_alive else "bad") for pair in workers], fit)
    without = _table(_WITHOUT_WORKER, [(_without_worker(each), "bad") for each in overview.without_worker], fit)
    gone = {(each.name, group) for each, group in workers if not each.is_alive}
    sessions = _table(_SESSIONS, [(_session(each, gone), _session_tone(each)) for each in overview.sessions], fit)
    if not overview.groups:
        groups = [_fitted(_NO_GROUP, fit)]
    parts = [part for part in (groups, without, worker_lines, sessions) if part]
    if height is None:
        shown = [_shortened(part, len(part), 0) for part in parts[:-1]]
        shown += [_shortened(parts[-1], len(parts[-1]), overview.left_out if sessions else 0)]
    else:
        room = height - len(head) - len(parts)
        sizes = _shared([len(part) for part in parts], room)
        left_out = [0] * (len(parts) - 1) + [overview.left_out if sessions else 0]
        shown = [_shortened(*each) for each in zip(parts, sizes, left_out, strict=True)]
    lines = [*head, *(line for part in shown for line in (Line(""), *part))]
    return lines if height is None else lines[:height]


def _head(overview: Overview, trouble: str) -> Iterable[Line]:
    if trouble:
        yield Line(plain(trouble), "bad")
    yield Line(f"{moment(overview.time)}  {_pace(overview.pace)}")


def _fitted(line: Line, fit: int | None) -> Line:
    return line if fit is None else line._replace(text=cut(line.text, fit))


def _pace(pace: Pace | None) -> str:
    if pace is None:
        return "publishes -  turns -  tokens -  cost -"
    about = "≈" if pace.is_estimate else ""
    dollars = "unknown" if pace.dollars is None else f"{about}{money(pace.dollars)}/min"
    return (
        f"publishes {_rate(pace.publishes)}/s  turns {about}{_rate(pace.turns)}/s  "
        f"tokens {about}{count(round(pace.tokens))}/min  cost {dollars}"
    )


def _rate(number: float) -> str:
    return f"{number:.1f}" if number < 100 else count(round(number))


def _table(columns: Sequence[Column], rows: Sequence[tuple[Sequence[str], Tone]], fit: int | None) -> list[Line]:
    if not rows:
        return []
    title, *texts = table(columns, [cells for cells, _ in rows], fit)
    return [Line(title, "title"), *(Line(text, tone) for text, (_, tone) in zip(texts, rows, strict=True))]


def _group(group: GroupStatus) -> tuple[str, ...]:
    alive = sum(each.is_alive for each in group.consumers)
    next_retry = "" if group.next_retry is None else "now" if group.next_retry <= 0 else _span(group.next_retry)
    return (
        *(group.name + (" (away)" if group.is_away else ""), count(alive), count(len(group.consumers) - alive)),
        f"{count(group.lag)}{'+' if group.is_lag_more else ''}",
        *(count(group.pending), count(group.retries), next_retry, count(group.dead)),
    )


def _group_tone(group: GroupStatus) -> Tone:
    alive = sum(each.is_alive for each in group.consumers)
    if group.is_away or (not alive and (group.lag or group.pending or group.retries)):
        return "bad"
    return "warn" if group.dead or alive < len(group.consumers) else "plain"


def _without_worker(work: AgentWork) -> tuple[str, ...]:
    waits = "" if work.longest_wait is None else _span(work.longest_wait)
    return work.agent, count(work.lag), count(work.retries), waits


def _worker(worker: ConsumerStatus, group: str) -> tuple[str, ...]:
    seen = "long ago" if worker.seen is None else f"{_span(max(worker.seen, 0.0))} ago"
    held = count(worker.held) if worker.is_alive else "-"
    return worker.name, group, seen, held, count(worker.pending), ", ".join(worker.agents)


def _session(session: SessionStatus, gone: Container[tuple[str, str]]) -> tuple[str, ...]:
    left = session.seconds_left
    activity = _ACTIVITIES[session.doing]
    if session.worker is not None and session.owner is None and session.doing in {"idle", "model", "tools"}:
        activity = "assigned"  # no lease: the worker has not started the session yet, or has ended it
    return (
        *(session.session, _worker_of(session, gone), count(session.epoch)),
        "-" if left is None else "expired" if left <= 0 else _span(left),
        *(count(session.position), session.loop_id or "-"),
        *("-" if session.turn is None else count(session.turn), activity),
    )


def _worker_of(session: SessionStatus, gone: Container[tuple[str, str]]) -> str:
    """Return the name of the worker, marked if the worker is gone: then another worker claims the session soon."""
    is_gone = (session.worker or "", session.group or "") in gone
    return (session.worker or session.owner or "-") + (" (gone)" if is_gone else "")


def _session_tone(session: SessionStatus) -> Tone:
    if session.seconds_left is not None and session.seconds_left <= 0:
        return "bad"
    return "warn" if session.doing in {"waiting", "paused", "handoff"} else "plain"


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:.0f} h"


def _shared(wanted: Sequence[int], room: int) -> list[int]:
    """Share `room` lines among the parts. If the parts do not fit, shorten them from the last, each to at least
    `FEWEST`."""
    sizes = list(wanted)
    for at in range(len(sizes) - 1, -1, -1):
        over = sum(sizes) - room
        if over > 0:
            sizes[at] = max(sizes[at] - over, min(FEWEST, sizes[at]))
    return sizes


def _shortened(lines: Sequence[Line], size: int, left_out: int) -> list[Line]:
    """Return the first lines, and a line with the number of omitted items."""
    more = left_out + (len(lines) - size + 1 if size < len(lines) else 0)
    shown = list(lines[: size - 1] if size < len(lines) else lines)
    return [*shown, Line(f"and {count(more)} more", "dim")] if more else shown
