"""`lanebus export`: write a session to a file that `lanebus import` reads."""

from collections.abc import Callable, Collection, Generator
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import cast

import click

from lanebus.bus.errors import CursorTrimmed, EntriesMissing, ParentErased
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.session.reading import ALL_LANES
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.handlers.cli.access import open_session
from lanebus.handlers.cli.errors import FileUnwritten
from lanebus.handlers.cli.options import BusCommand, Settings
from lanebus.handlers.cli.run import run
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.text import count
from lanebus.handlers.transcripts.atomic import atomic_file
from lanebus.handlers.transcripts.lanebus_export import entry_line, header_line
from lanebus.handlers.transcripts.lanebus_export.inline_media import with_media

__all__ = ("command",)


@click.command("export", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File to write; default: stdout. The file appears once it is complete.",
)
@click.option("--lane", type=click.Choice([lane.value for lane in Lane]), help="Export only this lane; default: both.")
@click.option("--no-media", is_flag=True, help="Write references instead of the media that are in the media store.")
@click.pass_context
def command(ctx: click.Context, session: str, *, file: Path | None, lane: str | None, no_media: bool) -> None:
    """Write a session as JSON, one object per line: a header, then each entry with position, lane, time, producer and
    message. `lanebus import` reads the file into a session of any bus.

    An unreadable entry is written with its error and its bytes. Stored media are written inside their messages.
    Trimmed entries are written if --archive holds them.

    \b
    Example: lanebus export support-42 -o support-42.jsonl
    """
    lanes = ALL_LANES if lane is None else frozenset({Lane(lane)})
    with _writing(file, Output.of(ctx)) as write:
        entries = run(partial(_export, Settings.of(ctx), session, lanes, write, with_stored=not no_media))
    if file is not None:
        tell(f"{session}: {count(entries)} entries written to {file}")


async def _export(
    settings: Settings, session_id: str, lanes: Collection[Lane], write: Callable[[str], None], *, with_stored: bool
) -> int:
    entries = 0
    async with open_session(settings, session_id) as session:
        head = await session.head()
        first = await _first(session, head)
        write(header_line(head, lanes, first))
        # The header names the last position, so entries published from now on are not exported.
        reading = session.read(lanes=lanes, after=Cursor(first - 1), until=head.position)
        async with aclosing(reading) as envelopes:
            async for envelope in envelopes:
                write(entry_line(await _with_media(envelope, session) if with_stored else envelope))
                entries += 1
    return entries


async def _first(session: Session, head: SessionHead) -> int:
    """Return the position of the first entry that can be read from the log, the archive or a fork's parent.

    A notice tells which entries before it are gone, and why.
    """
    first = 1
    while first <= head.position:
        try:
            async with aclosing(session.read(after=Cursor(first - 1), until=head.position)) as envelopes:
                await anext(envelopes, None)
        except CursorTrimmed as gap:
            match gap:
                case EntriesMissing():
                    why = "are missing, no trim removed them,"
                case ParentErased(parent=parent):
                    why = f"went with the session {parent!r}, which was erased,"
                case _:
                    why = "were trimmed"
            tell(f"{session.id}: entries {first} to {gap.first_kept - 1} {why} and are not exported")
            first = gap.first_kept
        else:
            break
    return first


async def _with_media(envelope: Envelope, session: Session) -> Envelope:
    if not isinstance(envelope.message, LlmMessage):
        return envelope
    message, missing = await with_media(envelope.message, session.media)
    for digest in missing:
        tell(
            f"warning: entry {envelope.position}: media {digest} are missing from the store, or too large for one line"
        )
    return envelope._replace(message=message)


@contextmanager
def _writing(file: Path | None, output: Output) -> Generator[Callable[[str], None]]:
    """Yield a function that writes one line to the file, or to stdout.

    Raises:
        FileUnwritten: the file could not be written. An earlier file of this name is unchanged.
    """
    if file is None:
        yield output.json_text
        return
    try:
        with atomic_file(file) as lines:
            yield lambda line: cast("None", lines.write(line.encode() + b"\n"))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileUnwritten(file, error.strerror or str(error)) from error
