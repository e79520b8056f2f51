"""`lanebus import`: read a transcript file into a session."""

import sys
from functools import partial
from itertools import islice
from pathlib import Path

import click

from lanebus.bus.errors import InvalidSessionId, MessageError
from lanebus.bus.messages.json_parser import parse_json
from lanebus.bus.wire.keys import check_session_id
from lanebus.handlers.cli.access import open_bus
from lanebus.handlers.cli.errors import FileUnread
from lanebus.handlers.cli.exits import ExitCode
from lanebus.handlers.cli.options import Settings, ViewCommand
from lanebus.handlers.cli.run import run
from lanebus.handlers.cli.session_id import SessionId, complete_agent
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.progress import ProgressBar
from lanebus.handlers.cli.terminal.text import count
from lanebus.handlers.cli.usage import WrongUsage
from lanebus.handlers.transcripts.importer import import_transcript
from lanebus.handlers.transcripts.lines import read_lines
from lanebus.handlers.transcripts.report import ImportReport

__all__ = ("command",)

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
def command(ctx: click.Context, file: Path, session: str | None, agent: str | None) -> int:
    """Read a transcript FILE into a session; "-" is stdin. The format is detected. It may be a session file of pi, of
    Claude Code or in the coding-agent format, or a file of `lanebus export`. It may also be one JSON document: a
    conversation for OpenAI's Chat Completions.

    A repeated or interrupted import adds only what is missing. Unreadable lines are listed on stderr with number and
    reason; the other lines are imported, and the exit code is 7. A line whose parent is not in the file is imported and
    listed too, because its context is a guess: after a bad line, and in a file of Claude Code, it follows the previous
    line; otherwise it begins a branch. If a file of `lanebus export` is incomplete, what it has is imported, the
    positions that it lacks are listed, and the exit code is 7. After a file that was cut, import the whole one.

    \b
    Example: lanebus import session.jsonl --session pi
    """
    name = session if session is not None else _session_for(file)
    report = run(partial(_import, Settings.of(ctx), file, name, agent))
    for bad in report.bad:
        tell(f"{report.unit} {bad.number}: {bad.reason}")
    for line in report.missing_parents:
        tell(f"line {line.number}: its parent {line.parent!r} is missing, so its context is a guess")
    for gap in report.missing_entries:
        entries = f"entry {gap.first}" if gap.first == gap.last else f"entries {gap.first} to {gap.last}"
        tell(f"{entries} of the exported session: not in the file, although its header says so")
    _show(Output.of(ctx), name, report)
    if next_step := _next_step(report):
        tell(f"hint: {next_step}")
    return ExitCode.FAULTS if report.bad or report.missing_entries else ExitCode.DONE


async def _import(settings: Settings, file: Path, session_id: str, agent: str | None) -> ImportReport:
    try:
        async with open_bus(settings) as bus:
            with ProgressBar() as bar:
                source = sys.stdin.buffer if str(file) == "-" else file
                return await import_transcript(bus.session(session_id, agent=agent), source, on_progress=bar.show)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise FileUnread(file, error.strerror or str(error)) from error


def _show(output: Output, session: str, report: ImportReport) -> None:
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
