"""`lanebus verify`: proof that stored logs are whole."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.errors import SessionEmpty
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import count
from lanebus.handlers.verify.namespace import verify_all
from lanebus.handlers.verify.problem import Problem, Report
from lanebus.handlers.verify.session import verify_session

__all__ = ("command",)

_COLUMNS = (
    Column("session", columns=16),
    Column("position", is_number=True, columns=8),
    Column("kind", columns=12),
    Column("what", is_flexible=True),
)


@click.command("verify", cls=ViewCommand)
@click.argument("sessions", nargs=-1, metavar="SESSION…")
@click.option("--all", "is_all", is_flag=True, help="Every session, and what is of none.")
@click.pass_context
def command(ctx: click.Context, sessions: tuple[str, ...], *, is_all: bool) -> int:
    """Prove that the stored log of each SESSION is whole, reading what the server holds as it is: positions without
    holes over both lanes, every entry readable and what was written (its checksum), the head, producers, keys and
    checkpoints in agreement with the entries, and stored projections byte for byte what the log gives. Nothing is
    changed. It may go on while others publish.

    A stored projection of another version, or of your own, cannot be folded here: its session is called unproven. Some
    versions of servers may lose acknowledged entries at a power cut. A session that such a server has gone on with
    after a restart is called unproven too, even if no fault is found.

    The exit code is 1 if anything is wrong. As JSON each line is a session with its problems: kind, position, text.

    \b
    Example: lanebus verify support-42
    Example: lanebus verify --all --json
    """
    if is_all == bool(sessions):
        raise click.UsageError("give sessions, or --all")
    return on_bus(ctx, partial(_verify, sessions=sessions, output=Output.of(ctx)))


async def _verify(bus: Bus, *, sessions: Sequence[str], output: Output) -> int:
    is_faultless, risk, seen, unproven = True, "", 0, False
    async with aclosing(_reports(bus, sessions)) as reports:
        async for report in reports:
            _show(output, report)
            is_faultless, seen = is_faultless and report.is_faultless, seen + bool(report.session)
            risk, unproven = risk or report.risk, unproven or bool(report.unproven)
    if not output.is_json:
        found = (
            "something is wrong"
            if not is_faultless
            else "no fault found, but not proven"
            if risk or unproven
            else "whole"
        )
        tell(f"{count(seen)} session{'' if seen == 1 else 's'}: {found}{f': {risk}' if risk else ''}")
    return 0 if is_faultless else 1


async def _reports(bus: Bus, sessions: Sequence[str]) -> AsyncGenerator[Report, None]:
    """One for each session that is named, or for all and for what is of none."""
    if not sessions:
        async with aclosing(verify_all(bus)) as reports:
            async for report in reports:
                yield report
    for name in sessions:
        found = await verify_session(bus, name)
        if found is None:
            raise SessionEmpty(name)
        yield found


def _show(output: Output, report: Report) -> None:
    if output.is_json:
        output.json(_json(report), flush=True)
        return
    for problem in report.problems:
        place = str(problem.position) if problem.position else ""
        output.row(_COLUMNS, (problem.session or "-", place, problem.kind, problem.text))
    if report.unlisted:
        output.row(_COLUMNS, (report.session or "-", "", "", f"and {count(report.unlisted)} problems more"))
    if report.is_faultless and report.session:
        verdict = "whole" if report.is_whole else "unproven"
        output.row(_COLUMNS, (report.session, "", verdict, f"{count(report.entries)} entries"), flush=True)
    for note in report.notes:
        output.row(_COLUMNS, (report.session or "-", "", "note", note))


def _json(report: Report) -> dict[str, object]:
    return {
        "session": report.session or None,
        "is_whole": report.is_whole,
        "entries": report.entries,
        "problems": [_problem(problem) for problem in report.problems],
        "unlisted": report.unlisted,
        "notes": report.notes,
        "risk": report.risk or None,
        "unproven": list(report.unproven),
    }


def _problem(problem: Problem) -> dict[str, object]:
    return {"kind": problem.kind, "position": problem.position or None, "text": problem.text}
