"""`lanebus import`: a transcript into a session."""

import sys
from functools import partial
from pathlib import Path

import click

from handlers.cli.errors import FileUnread
from handlers.cli.naming import session_for
from handlers.cli.opening import open_bus
from handlers.cli.options import Settings, ViewCommand
from handlers.cli.output import Output, tell
from handlers.cli.progress import ProgressBar
from handlers.cli.run import run
from handlers.cli.text import count
from handlers.transcripts.importer import ImportReport, import_transcript

__all__ = ("command",)


@click.command("import", cls=ViewCommand)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--session", metavar="ID", help="Where it goes; the transcript's own id, or else its file's name, if not given."
)
@click.pass_context
def command(ctx: click.Context, file: Path, session: str | None) -> int:
    """Put a transcript FILE into a session; "-" is stdin. Its format is detected: session files of the agents pi,
    Claude Code and seed 000, a conversation as OpenAI's Chat Completions takes it (one JSON document), and what
    `lanebus export` wrote.

    Imported again, also after an import that was cut, it adds only what is missing. A line that cannot be read is
    listed on stderr with its number and the reason, the others go in, and the exit code is 1.

    \b
    Example: lanebus import session.jsonl --session pi
    """
    name = session if session is not None else session_for(file)
    report = run(partial(_import, Settings.of(ctx), file, name))
    for bad in report.bad:
        tell(f"{report.unit} {bad.number}: {bad.reason}")
    _show(Output.of(ctx), name, report)
    return 1 if report.bad else 0


async def _import(settings: Settings, file: Path, session_id: str) -> ImportReport:
    try:
        async with open_bus(settings) as bus:
            with ProgressBar() as bar:
                source = sys.stdin.buffer if str(file) == "-" else file
                return await import_transcript(bus.session(session_id), source, on_progress=bar.show)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise FileUnread(file, error.strerror or str(error)) from error


def _show(output: Output, session: str, report: ImportReport) -> None:
    if output.is_json:
        output.json(
            {
                "session": session,
                "format": report.format,
                "lines": report.lines,
                "added": report.added,
                "already_there": report.already_there,
                "bad": [{report.unit: bad.number, "reason": bad.reason} for bad in report.bad],
                "first": report.first,
                "last": report.last,
            }
        )
        return
    bad = f", {count(len(report.bad))} bad {report.unit}s" if report.bad else ""
    output.line(
        f"{session}: {count(report.added)} entries added, {count(report.already_there)} already there{bad}"
        f" ({report.format} transcript of {count(report.lines)} lines)"
    )
