"""`lanebus tail`: a session's entries, and what comes."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator, Collection, Generator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import NamedTuple

import anyio
import click

from lanebus.bus.errors import SessionErased
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import ALL_LANES, Session
from lanebus.bus.wire.envelope import START, Cursor, DecodeFailure, Envelope
from lanebus.bus.wire.notice import Notice
from lanebus.handlers.cli.access import open_bus
from lanebus.handlers.cli.errors import SessionEmpty
from lanebus.handlers.cli.options import Settings, ViewCommand
from lanebus.handlers.cli.run import run
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.summary import summarize
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import moment
from lanebus.handlers.json_text import compact, spliced

__all__ = ("command", "entry_json")

_COLUMNS = (
    Column("position", is_number=True, columns=6),
    Column("lane", columns=3),
    Column("time", columns=19),
    Column("who", columns=12),
    Column("what", is_flexible=True),
)


@click.command("tail", cls=ViewCommand)
@click.argument("session")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--lane", type=click.Choice([lane.value for lane in Lane]), help="Only this lane.")
@click.option("--after", metavar="CURSOR", help="Begin behind this cursor of a JSON line, or position.")
@click.option(
    "--kind", "kinds", multiple=True, help="Only this role or kind, such as user, or agent.* for all that begin so."
)
@click.option("--until-closed", is_flag=True, help="End once the session is closed and shown; follows as -f does.")
@click.option("--live", is_flag=True, help="Also each piece of a message while it is spoken; follows as -f does.")
@click.option("-n", "--lines", "last", type=click.IntRange(min=0), metavar="N", help="Only the last N entries.")
@click.pass_context
def command(
    ctx: click.Context,
    session: str,
    *,
    follow: bool,
    lane: str | None,
    kinds: tuple[str, ...],
    until_closed: bool,
    after: str | None,
    live: bool,
    last: int | None,
) -> None:
    """Show a session's entries in the order of their positions, and with -f what comes.

    As JSON each line is an envelope: session, position, cursor (for --after), lane, time (seconds UTC), producer,
    message. An entry that cannot be read has no message and an error; a live piece has its number under "delta".
    That the session was closed is said on stderr.

    \b
    Example: lanebus tail support-42 -f --lane extension
    """
    follows = follow or live or until_closed
    asked = _Asked(
        ALL_LANES if lane is None else frozenset({Lane(lane)}),
        kinds or None,
        START if after is None else Cursor.parse(after),
        last,
    )
    show = _Show(Output.of(ctx), flush=follows)
    run(partial(_tail, Settings.of(ctx), session, asked, show, follow=follows, live=live, until_closed=until_closed))


class _Asked(NamedTuple):
    """Which of the entries are to be shown."""

    lanes: Collection[Lane]
    kinds: Collection[str] | None
    after: Cursor
    last: int | None


async def _tail(
    settings: Settings,
    session_id: str,
    asked: _Asked,
    show: "_Show",
    *,
    follow: bool,
    live: bool,
    until_closed: bool,
) -> None:
    lanes, kinds, after, last = asked
    async with open_bus(settings) as bus:
        session = bus.session(session_id)
        head = await session.head()
        if head.is_erased:
            raise SessionErased(session_id)
        end = head.position
        if not end:
            if not follow:
                raise SessionEmpty(session_id)
            tell(f"session {session_id!r} has no entries yet; waiting for the first")
        if last is not None:
            for envelope in await _last(session, asked, end, last):
                show(envelope)
            after = max(after, head.cursor)
        if follow:
            with _until_reader_gone():
                items = session.subscribe(lanes=lanes, kinds=kinds, after=after, live=live)
                await _show_until(session_id, items, show, until_closed=until_closed)
        elif last is None:
            async with aclosing(session.read(lanes=lanes, kinds=kinds, after=after)) as envelopes:
                async for envelope in envelopes:
                    show(envelope)


async def _show_until(
    session_id: str, items: AsyncGenerator[Envelope | Notice, None], show: "_Show", *, until_closed: bool
) -> None:
    async with aclosing(items):
        async for item in items:
            if isinstance(item, Envelope):
                show(item)
            elif item.kind in {"closed", "reopened"}:
                tell(f"session {session_id!r} was {item.kind}")
                if until_closed and item.kind == "closed":
                    return


async def _last(session: Session, asked: _Asked, end: int, count: int) -> list[Envelope]:
    """The last entries of those asked for. How far back they begin is not known where others are left out."""
    span, (lanes, kinds, after, _) = count, asked
    while count and after.position < end:
        start = max(after, Cursor(max(end - span, 0)))
        found = [envelope async for envelope in session.read(lanes=lanes, kinds=kinds, after=start, until=end)]
        if len(found) >= count or start == after:
            return found[-count:]
        span *= 4
    return []


class _Show:
    """Prints an envelope."""

    def __init__(self, output: Output, *, flush: bool) -> None:
        self._output, self._flush = output, flush

    def __call__(self, envelope: Envelope) -> None:
        if self._output.is_json:
            self._output.json_text(entry_json(envelope), flush=self._flush)
            return
        who, what = summarize(envelope)
        place = f"{envelope.position}-{envelope.delta}" if envelope.delta else str(envelope.position)
        row = (place, envelope.lane.value[:3], moment(envelope.time), who, what)
        self._output.row(_COLUMNS, row, flush=self._flush)


def entry_json(envelope: Envelope) -> str:
    """An envelope as a line of JSON; the message in its native form, as it is in the log."""
    place = {"session": envelope.session, "position": envelope.position, "cursor": str(envelope.cursor)}
    delta = {"delta": envelope.delta} if envelope.delta else {}
    origin = {"lane": envelope.lane.value, "time": envelope.time, "producer": envelope.producer}
    message = envelope.message
    if isinstance(message, DecodeFailure):
        error = {"type": type(message.error).__name__, "reason": str(message.error)}
        return compact({**place, **delta, **origin, "message": None, "error": error})
    return spliced({**place, **delta, **origin}, "message", message.to_json())


@contextmanager
def _until_reader_gone() -> Generator[None]:
    """Ends the block once nobody reads our output any more: without an entry to write, nothing else would tell.

    Raises:
        BrokenPipeError: nobody does.
    """
    pipe = _output_pipe()
    if pipe is None:
        yield
        return
    is_gone = False
    with anyio.CancelScope() as scope:

        def end() -> None:
            nonlocal is_gone
            is_gone = True
            scope.cancel()

        loop = asyncio.get_running_loop()
        # The writing end of a pipe never becomes readable; the loop wakes for it when the other end is closed.
        loop.add_reader(pipe, end)
        try:
            yield
        finally:
            loop.remove_reader(pipe)
    if is_gone:
        raise BrokenPipeError


def _output_pipe() -> int | None:
    """The descriptor of stdout, where that is a pipe that can be watched."""
    if sys.platform == "win32":
        return None
    try:
        output = sys.stdout.fileno()
        return output if stat.S_ISFIFO(os.fstat(output).st_mode) else None
    except (OSError, ValueError):  # stdout is none of the system's files
        return None
