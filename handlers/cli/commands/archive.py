"""`lanebus archive`: copy entries of sessions to compressed files."""

from collections.abc import Sequence
from functools import partial

import click

from lanebus.bus.archive.archiver import Archived
from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError, SessionErased, is_of_session
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.errors import SessionEmpty
from lanebus.handlers.cli.exits import ExitCode
from lanebus.handlers.cli.next_step import next_step
from lanebus.handlers.cli.options import Settings, ViewCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import count, size
from lanebus.handlers.cli.usage import WrongUsage

__all__ = ("command",)

_COLUMNS = (
    Column("session", columns=16),
    Column("up to", is_number=True, columns=8),
    Column("entries", is_number=True, columns=8),
    Column("segments", is_number=True, columns=8),
    Column("size", is_number=True, columns=8),
)


@click.command("archive", cls=ViewCommand)
@click.argument("sessions", nargs=-1, type=SessionId(), metavar="[SESSION]…")
@click.option("--all", "is_all", is_flag=True, help="Archive every session.")
@click.option(
    "--before",
    type=click.IntRange(min=1),
    metavar="POSITION",
    help="Archive only entries before this position; default: all.",
)
@click.pass_context
def command(ctx: click.Context, sessions: tuple[str, ...], *, is_all: bool, before: int | None) -> int:
    """Copy entries that are not archived yet to gzip files in --archive. A file holds one entry per line, as JSON.

    The log does not change. After `lanebus trim`, commands with the same --archive read the trimmed entries from
    there. A repeated or interrupted archive continues after the last archived entry.

    With --all, a damaged session is left out, and the others are archived. The exit code is then 7.

    \b
    Example: lanebus archive support-42 --archive ./archive
    Example: lanebus archive --all --archive s3://bucket/lanebus
    """
    if is_all == bool(sessions):
        raise WrongUsage("SESSION and --all: one of them is needed", "give either SESSION or --all")
    if Settings.of(ctx).archive is None:
        raise WrongUsage("no archive is set", "name one with --archive or LANEBUS_ARCHIVE")
    return on_bus(ctx, partial(_archive, sessions=sessions, before=before, output=Output.of(ctx)))


async def _archive(bus: Bus, *, sessions: Sequence[str], before: int | None, output: Output) -> int:
    code = ExitCode.DONE
    for name in sessions or await _all(bus):
        session = bus.session(name)
        if sessions and not (await session.head()).position:
            raise SessionEmpty(name)
        try:
            _show(output, await session.archive(before=before))
        except BusError as error:
            if sessions or not is_of_session(error):
                raise
            if not isinstance(error, SessionErased):  # erased since the list was read
                tell(f"warning: not archived: {error.fault}; {next_step(error)}")
                code = ExitCode.FAULTS
    return code


async def _all(bus: Bus) -> list[str]:
    """Return every session, also those whose heads cannot be read: the user is told that these are not archived."""
    names = [head.session for head in await bus.sessions()]
    return [*names, *sorted({*await bus.log.sessions()}.difference(names))]


def _show(output: Output, archived: Archived) -> None:
    if output.is_json:
        output.json(
            {
                "session": archived.session,
                "position": archived.position,
                "entries": archived.entries,
                "segments": archived.segments,
                "size_bytes": archived.size_bytes,
                "orphans": archived.orphans,
            },
            flush=True,
        )
        return
    numbers = (archived.position, archived.entries, len(archived.segments))
    output.row(_COLUMNS, (archived.session, *map(count, numbers), size(archived.size_bytes)), flush=True)
    if archived.orphans:
        unused = count(len(archived.orphans))
        tell(
            f"{archived.session}: another process archived it at the same time; {unused} files written here are unused"
        )
