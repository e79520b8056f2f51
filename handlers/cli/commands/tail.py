"""`lanebus tail`: show the entries of a session, and follow new ones."""

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

from lanebus.bus import ALL_LANES, Session
from lanebus.bus.errors import SessionErased
from lanebus.bus.messages import Lane
from lanebus.bus.wire import START, Cursor, DecodeFailure, Envelope, Notice
from lanebus.handlers.cli.access import open_bus, run
from lanebus.handlers.cli.arguments import SessionId
from lanebus.handlers.cli.errors import BeyondEnd, SessionEmpty
from lanebus.handlers.cli.options import Settings, ViewCommand
from lanebus.handlers.cli.output import Output, tell
from lanebus.handlers.cli.summary import TurnFold, summarize
from lanebus.handlers.cli.text import Column, moment
from lanebus.handlers.serve import compact, spliced

_COLUMNS = (
    Column("position", is_number=True, columns=6),
    Column("lane", columns=3),
    Column("time", columns=19),
    Column("kind", columns=12),
    Column("text", is_flexible=True),
)


@click.command("tail", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.option("--follow", "-f", is_flag=True, help="Follow new entries until Ctrl-C.")
@click.option("--lane", type=click.Choice([lane.value for lane in Lane]), help="Show only this lane; default: both.")
@click.option("--after", metavar="CURSOR", help="Start after this position, or after this cursor of a JSON line.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Show only this role or kind, such as user, or agent.* for a prefix; may be repeated.",
)
@click.option("--until-closed", is_flag=True, help="Follow, and stop after the last entry of a closed session.")
@click.option("--live", is_flag=True, help="Follow, and show live deltas of messages while models write them.")
@click.option("--all", "is_unfolded", is_flag=True, help="In a table, show each event, and what frameworks store.")
@click.option("-n", "--lines", "last", type=click.IntRange(min=0), metavar="N", help="Show only the last N entries.")
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
    is_unfolded: bool,
    last: int | None,
) -> None:
    """Show the entries of a session in order of position. With -f, follow new entries.

    A table has one row for all events of a turn, and a call that waits for a person stands with the command that
    approves it. --all, --lane and --kind show each event. What a framework stores, of a kind store.…, is shown with
    --all or --kind 'store.*'. `lanebus show` prints the conversation.

    As JSON, each line is an envelope: session, position, cursor (for --after), lane, time (seconds UTC), producer and
    message. An unreadable entry has the message null and an error. A live delta has its number in "delta". Only an
    imported entry has "is_imported", which is true. A notice on stderr says when the session is closed or reopened.

    \b
    Example: lanebus tail support-42 -f --lane extension
    """
    follows = follow or live or until_closed
    query = _Query(
        ALL_LANES if lane is None else frozenset({Lane(lane)}),
        kinds or None,
        START if after is None else Cursor.parse(after),
        last,
    )
    is_folded = not (is_unfolded or lane or kinds)
    show = _Show(Output.of(ctx), TurnFold(session) if is_folded else None, flush=follows)
    run(partial(_tail, Settings.of(ctx), session, query, show, follow=follows, live=live, until_closed=until_closed))


class _Query(NamedTuple):
    """The selection of entries to show."""

    lanes: Collection[Lane]
    kinds: Collection[str] | None
    after: Cursor
    last: int | None


async def _tail(
    settings: Settings,
    session_id: str,
    query: _Query,
    show: "_Show",
    *,
    follow: bool,
    live: bool,
    until_closed: bool,
) -> None:
    lanes, kinds, after, last = query
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
        if not after.incarnation and after.position > end > 0:  # a position that a person typed
            raise BeyondEnd(session_id, after.position, end)
        if last is not None:
            for envelope in await _last(session, query, end, last):
                show(envelope)
            after = head.cursor if head.position > after.position else after
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


async def _last(session: Session, query: _Query, end: int, count: int) -> list[Envelope]:
    """Return the last `count` entries that match. As filters skip entries, the range is widened until it has enough."""
    span, (lanes, kinds, after, _) = count, query
    while count and after.position < end:
        start = max(after, Cursor(max(end - span, 0)))
        entries = [envelope async for envelope in session.read(lanes=lanes, kinds=kinds, after=start, until=end)]
        if len(entries) >= count or start == after:
            return entries[-count:]
        span *= 4
    return []


class _Show:
    """Prints envelopes as rows or as JSON."""

    def __init__(self, output: Output, fold: TurnFold | None, *, flush: bool) -> None:
        self._output, self._fold, self._flush = output, fold, flush

    def __call__(self, envelope: Envelope) -> None:
        if self._output.is_json:
            self._output.json_text(entry_json(envelope), flush=self._flush)
            return
        position = f"{envelope.position}-{envelope.delta}" if envelope.delta else str(envelope.position)
        rows = None if self._fold is None else self._fold.rows(envelope)
        for kind, text in [summarize(envelope)] if rows is None else rows:
            row = (position, envelope.lane.value[:3], moment(envelope.time), kind, text)
            # A command that is cut cannot be copied.
            self._output.row(_COLUMNS, row, flush=self._flush, is_whole=kind == "waits" and rows is not None)


def entry_json(envelope: Envelope) -> str:
    """Encode an envelope as one line of JSON, with the message in its native form as in the log."""
    place = {"session": envelope.session, "position": envelope.position, "cursor": str(envelope.cursor)}
    delta = {"delta": envelope.delta} if envelope.delta else {}
    imported = {"is_imported": True} if envelope.is_imported else {}
    origin = {"lane": envelope.lane.value, "time": envelope.time, "producer": envelope.producer, **imported}
    message = envelope.message
    if isinstance(message, DecodeFailure):
        error = {"type": type(message.error).__name__, "reason": str(message.error)}
        return compact({**place, **delta, **origin, "message": None, "error": error})
    return spliced({**place, **delta, **origin}, "message", message.to_json())


@contextmanager
def _until_reader_gone() -> Generator[None]:
    """End the block when the reader of stdout closes the pipe. Without new entries, no write would notice a closed
    pipe.

    Raises:
        BrokenPipeError: the reader is gone.
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
        # The writing end of a pipe never becomes readable, but the loop reports it as readable once the other end is
        # closed.
        loop.add_reader(pipe, end)
        try:
            yield
        finally:
            loop.remove_reader(pipe)
    if is_gone:
        raise BrokenPipeError


def _output_pipe() -> int | None:
    """Return the file descriptor of stdout if it is a pipe that the event loop can watch."""
    if sys.platform == "win32":
        return None
    try:
        output = sys.stdout.fileno()
        return output if stat.S_ISFIFO(os.fstat(output).st_mode) else None
    except (OSError, ValueError):  # stdout has no file descriptor
        return None
