"""`lanebus import` and `lanebus export`: read a transcript file into a session, and write a session to a file."""

import sys
from collections.abc import Callable, Collection, Generator
from contextlib import aclosing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self, cast

import click

from lanebus.bus import ALL_LANES, Session, SessionHead
from lanebus.bus.errors import CursorTrimmed, EntriesMissing, InvalidSessionId, MessageError, ParentErased
from lanebus.bus.messages import Lane, LlmMessage, parse_json
from lanebus.bus.wire import Cursor, Envelope, check_session_id
from lanebus.handlers.cli.access import open_bus, open_session, run
from lanebus.handlers.cli.arguments import SessionId, complete_agent
from lanebus.handlers.cli.errors import FileUnread, FileUnwritten
from lanebus.handlers.cli.exits import ExitCode, WrongUsage
from lanebus.handlers.cli.options import BusCommand, Settings, ViewCommand
from lanebus.handlers.cli.output import Output, tell
from lanebus.handlers.cli.text import count
from lanebus.handlers.formats import (
    ImportProgress,
    ImportReport,
    atomic_file,
    entry_line,
    header_line,
    import_transcript,
    read_lines,
    with_media,
)

_LINES_WITH_HEADER = 100
"""number of first lines that are searched for a header, because damaged lines may precede the header"""


@click.command("import", cls=ViewCommand)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--session",
    type=SessionId(),
    metavar="ID",
    help="Target session; default: the id in the transcript, else the name of the file.",
)
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agent,
    help="Agent that a new session belongs to; default: the default agent.",
)
@click.pass_context
def import_command(ctx: click.Context, file: Path, session: str | None, agent: str | None) -> int:
    """Read a transcript FILE into a session; "-" is stdin. The format is detected. It may be a session file of pi, of
    Claude Code or in the coding-agent format, or a file of `lanebus export`. It may also be one JSON document: a
    conversation for OpenAI's Chat Completions.

    A repeated or interrupted import adds only what is missing. Without --session, a session that has other entries is
    refused: the file must not choose whose context it changes. Unreadable lines are listed on stderr with number and
    reason; the other lines are imported, and the exit code is 7. A line whose parent is not in the file is imported and
    listed too, because its context is a guess: after a bad line, and in a file of Claude Code, it follows the previous
    line; otherwise it begins a branch. If a file of `lanebus export` is incomplete, what it has is imported, the
    positions that it lacks are listed, and the exit code is 7. After a file that was cut, import the whole one.

    \b
    Example: lanebus import session.jsonl --session pi
    """
    name = session if session is not None else _session_for(file)
    report = run(partial(_import, Settings.of(ctx), file, name, agent, is_named=session is not None))
    for bad in report.bad:
        tell(f"{report.unit} {bad.number}: {bad.reason}")
    for line in report.missing_parents:
        tell(f"line {line.number}: its parent {line.parent!r} is missing, so its context is a guess")
    for gap in report.missing_entries:
        entries = f"entry {gap.first}" if gap.first == gap.last else f"entries {gap.first} to {gap.last}"
        tell(f"{entries} of the exported session: not in the file, although its header says so")
    _show_import(Output.of(ctx), name, report)
    if next_step := _next_step(report):
        tell(f"hint: {next_step}")
    return ExitCode.FAULTS if report.bad or report.missing_entries else ExitCode.DONE


async def _import(
    settings: Settings, file: Path, session_id: str, agent: str | None, *, is_named: bool
) -> ImportReport:
    try:
        async with open_bus(settings) as bus:
            with ProgressBar() as bar:
                source = sys.stdin.buffer if str(file) == "-" else file
                session = bus.session(session_id, agent=agent)
                return await import_transcript(session, source, beside_others=is_named, on_progress=bar.show)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise FileUnread(file, error.strerror or str(error)) from error


def _show_import(output: Output, session: str, report: ImportReport) -> None:
    plural = "" if len(report.bad) == 1 else "s"
    bad = f", {count(len(report.bad))} bad {report.unit}{plural}" if report.bad else ""
    lacked = sum(gap.last - gap.first + 1 for gap in report.missing_entries)
    missing = f", {count(lacked)} missing in the file" if lacked else ""
    there = f"{count(report.already_there)} already there"
    guessed = f", {count(len(report.missing_parents))} without their parent" if report.missing_parents else ""
    output.answer(
        {
            "session": session,
            "format": report.format,
            "lines": report.lines,
            "added": report.added,
            "already_there": report.already_there,
            "bad": [{report.unit: each.number, "reason": each.reason} for each in report.bad],
            "missing_parents": [{"line": each.number, "parent": each.parent} for each in report.missing_parents],
            "missing_entries": [{"first": gap.first, "last": gap.last} for gap in report.missing_entries],
            "first": report.first,
            "last": report.last,
        },
        f"{session}: {count(report.added)} entries added, {there}{bad}{guessed}{missing}"
        f" ({report.format} transcript of {count(report.lines)} lines)",
    )


def _next_step(report: ImportReport) -> str:
    """Return how to get what the file lacks; "" if it lacks nothing, or if this is not known."""
    if report.is_cut and len(report.missing_entries) <= 1:
        return "import the whole file into the same session, which adds what is missing"
    if report.missing_entries:
        return "import the whole file into a new session: in this one, what is missing would come last"
    return ""


def _session_for(file: Path) -> str:
    """Return the session id from the transcript's header, else from its file name.

    Raises:
        WrongUsage: neither contains a session id, or the transcript comes from stdin.
    """
    if str(file) == "-":
        raise WrongUsage("a transcript from stdin has no file name", "give a session id with --session")
    for candidate in (_id_in_header(file), file.stem):
        try:
            return check_session_id(candidate)
        except InvalidSessionId:
            continue
    raise WrongUsage(f"{file.name!r} contains no session id", "give one with --session")


def _id_in_header(file: Path) -> str:
    """Return the session id in the transcript's header; "" if no header with an id is found."""
    try:
        with file.open("rb") as lines:
            for line in islice(read_lines(lines), _LINES_WITH_HEADER):
                try:
                    value = parse_json(line.data or b"")
                except MessageError:
                    continue
                match value:
                    case (
                        {"type": "session" | "session_header", "id": str(found)}
                        | {"type": "lanebus.export", "session": str(found)}
                        | {"sessionId": str(found)}
                    ):
                        return found
                    case _:
                        pass
    except OSError as error:
        raise FileUnread(file, error.strerror or str(error)) from error
    return ""


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
def export_command(ctx: click.Context, session: str, *, file: Path | None, lane: str | None, no_media: bool) -> None:
    """Write a session as JSON, one object per line: a header, then each entry with position, lane, time, producer and
    message. `lanebus import` reads the file into a session of any bus.

    An unreadable entry is written with its error and its bytes. Stored media are written inside their messages.
    Trimmed entries are written if --archive holds them.

    \b
    Example: lanebus export support-42 -o support-42.jsonl
    """
    lanes = ALL_LANES if lane is None else frozenset({Lane(lane)})
    with _line_writer(file, Output.of(ctx)) as write:
        entries = run(partial(_export, Settings.of(ctx), session, lanes, write, with_stored=not no_media))
    if file is not None:
        tell(f"{session}: {count(entries)} entries written to {file}")


async def _export(
    settings: Settings, session_id: str, lanes: Collection[Lane], write: Callable[[str], None], *, with_stored: bool
) -> int:
    entries = 0
    async with open_session(settings, session_id) as session:
        head = await session.head()
        first = await _first_readable(session, head)
        write(header_line(head, lanes, first))
        # The header names the last position, so entries published from now on are not exported.
        reading = session.read(lanes=lanes, after=Cursor(first - 1), until=head.position)
        async with aclosing(reading) as envelopes:
            async for envelope in envelopes:
                write(entry_line(await _with_media(envelope, session) if with_stored else envelope))
                entries += 1
    return entries


async def _first_readable(session: Session, head: SessionHead) -> int:
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
def _line_writer(file: Path | None, output: Output) -> Generator[Callable[[str], None]]:
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


_CELLS = 30
_PAUSE = 0.05  # least seconds between two drawings
_CLEAR_LINE = "\r\x1b[2K"


class ProgressBar:
    """Draws a progress line on stderr during the block, then removes it. Draws nothing if stderr is no terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._last = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()

    def show(self, progress: ImportProgress) -> None:
        """Draw the progress, unless it was drawn less than `_PAUSE` seconds ago."""
        if not self._is_shown or monotonic() - self._last < _PAUSE:
            return
        self._last = monotonic()
        sys.stderr.write(_CLEAR_LINE + _bar(progress))
        sys.stderr.flush()


def _bar(progress: ImportProgress) -> str:
    entries = f"{count(progress.entries)} entries"
    if not progress.total_bytes:
        return entries
    part = min(progress.read_bytes / progress.total_bytes, 1.0)
    done = round(part * _CELLS)
    return f"[{'█' * done}{'·' * (_CELLS - done)}] {part:4.0%}  {entries}"
