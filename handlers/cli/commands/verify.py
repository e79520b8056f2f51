"""`lanebus verify`: check that stored sessions are complete and undamaged."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.errors import NamespaceMissing, SessionEmpty
from lanebus.handlers.cli.exits import ExitCode
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import count
from lanebus.handlers.cli.usage import WrongUsage
from lanebus.handlers.verify.namespace import verify_all
from lanebus.handlers.verify.problem import Problem, Report
from lanebus.handlers.verify.session import verify_session

__all__ = ("command",)

_COLUMNS = (
    Column("session", columns=16),
    Column("position", is_number=True, columns=8),
    Column("kind", columns=12),
    Column("problem", is_flexible=True),
)


@click.command("verify", cls=ViewCommand)
@click.argument("sessions", nargs=-1, type=SessionId(), metavar="[SESSION]…")
@click.option("--all", "is_all", is_flag=True, help="Check every session, and keys that belong to none.")
@click.pass_context
def command(ctx: click.Context, sessions: tuple[str, ...], *, is_all: bool) -> int:
    """Check that the stored log of each SESSION is complete and undamaged. Changes nothing. Publishing may continue.

    \b
    It checks that
    - positions have no gaps over both lanes,
    - every entry has the right checksum and can be decoded,
    - the head, producers, keys and checkpoints agree with the entries,
    - stored projections equal a new fold of the log, byte for byte.

    With --all, it also reports that the log was emptied or is an older copy. It knows that from workers and `lanebus
    serve` that ran meanwhile, or that ran earlier on this machine as this user. `lanebus namespace accept` accepts it.

    A session is "unproven" if no problem is found, but one may be hidden. Either a stored projection is custom or of
    another version, or the server was restarted and may have lost acknowledged entries in a power failure.

    The exit code is 7 if a problem is found, and 3 if there is no such session or namespace. As JSON, each line is a
    session with its problems: kind, position, text.

    \b
    Example: lanebus verify support-42
    Example: lanebus verify --all --json
    """
    if is_all == bool(sessions):
        raise WrongUsage("SESSION and --all: one of them is needed", "give either SESSION or --all")
    return on_bus(ctx, partial(_verify, sessions=sessions, output=Output.of(ctx)), remembers=True, begins=False)


async def _verify(bus: Bus, *, sessions: Sequence[str], output: Output) -> int:
    is_faultless, risk, sessions_checked, unproven = True, "", 0, False
    async with aclosing(_reports(bus, sessions)) as reports:
        async for report in reports:
            _show(output, report)
            is_faultless, risk = is_faultless and report.is_faultless, risk or report.risk
            sessions_checked, unproven = sessions_checked + bool(report.session), unproven or bool(report.unproven)
    if is_faultless and not sessions_checked:
        name = bus.namespace.name
        if not await bus.inspector.fields(bus.inspector.keys.config, ("schema",)):
            raise NamespaceMissing(name)
        tell(f"namespace {name!r} has no sessions: nothing was checked")
    elif not output.is_json:
        verdict = (
            "problems found" if not is_faultless else "no problem found, but unproven" if risk or unproven else "whole"
        )
        plural = "" if sessions_checked == 1 else "s"
        tell(f"{count(sessions_checked)} session{plural}: {verdict}{f': {risk}' if risk else ''}")
    return ExitCode.DONE if is_faultless else ExitCode.FAULTS


async def _reports(bus: Bus, sessions: Sequence[str]) -> AsyncGenerator[Report, None]:
    """Yield a report for each named session; without names, for every session, and for keys that belong to no
    session."""
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
        output.row(_COLUMNS, (report.session or "-", "", "", f"and {count(report.unlisted)} more problems"))
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
