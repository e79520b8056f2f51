"""`lanebus verify`, `replay` and `namespace`: check what is stored, and accept a log that was emptied or went back."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

import click

from lanebus.bus import Bus, LogLoss, Session
from lanebus.handlers.cli.access import on_bus, on_session
from lanebus.handlers.cli.arguments import SessionId, ask, require_consent, yes_option
from lanebus.handlers.cli.errors import BeyondEnd, NamespaceMissing, SessionEmpty
from lanebus.handlers.cli.exits import ExitCode, WrongUsage, did_you_mean
from lanebus.handlers.cli.modules import load_module
from lanebus.handlers.cli.options import BusGroup, Settings, ViewCommand
from lanebus.handlers.cli.output import Column, Output, count, tell
from lanebus.handlers.projections import find_projection
from lanebus.handlers.serve import spliced
from lanebus.handlers.verify import (
    PROJECTION_NAMES,
    BeginFold,
    Problem,
    Replayed,
    Report,
    differs,
    fold_of,
    replay,
    verify_all,
    verify_session,
)

_PROBLEM_COLUMNS = (
    Column("session", columns=16),
    Column("position", is_number=True, columns=8),
    Column("kind", columns=12),
    Column("problem", is_flexible=True),
)


@click.command("verify", cls=ViewCommand)
@click.argument("sessions", nargs=-1, type=SessionId(), metavar="[SESSION]…")
@click.option("--all", "is_all", is_flag=True, help="Check every session, and keys that belong to none.")
@click.pass_context
def verify_command(ctx: click.Context, sessions: tuple[str, ...], *, is_all: bool) -> int:
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
            _show_report(output, report)
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


def _show_report(output: Output, report: Report) -> None:
    if output.is_json:
        output.json(_report_json(report), flush=True)
        return
    for problem in report.problems:
        place = str(problem.position) if problem.position else ""
        output.row(_PROBLEM_COLUMNS, (problem.session or "-", place, problem.kind, problem.text))
    if report.unlisted:
        output.row(_PROBLEM_COLUMNS, (report.session or "-", "", "", f"and {count(report.unlisted)} more problems"))
    if report.is_faultless and report.session:
        verdict = "whole" if report.is_whole else "unproven"
        output.row(_PROBLEM_COLUMNS, (report.session, "", verdict, f"{count(report.entries)} entries"), flush=True)
    for note in report.notes:
        output.row(_PROBLEM_COLUMNS, (report.session or "-", "", "note", note))


def _report_json(report: Report) -> dict[str, object]:
    return {
        "session": report.session or None,
        "is_whole": report.is_whole,
        "entries": report.entries,
        "problems": [_problem_json(problem) for problem in report.problems],
        "unlisted": report.unlisted,
        "notes": report.notes,
        "risk": report.risk or None,
        "unproven": list(report.unproven),
    }


def _problem_json(problem: Problem) -> dict[str, object]:
    return {"kind": problem.kind, "position": problem.position or None, "text": problem.text}


_REPLAYED_COLUMNS = (
    Column("projection"),
    Column("position", is_number=True),
    Column("stored"),
    Column("state", is_flexible=True),
)


def _check_projections(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    del ctx, param
    for name in names:
        if ":" not in name and name not in PROJECTION_NAMES:
            known = ", ".join(PROJECTION_NAMES)
            near = did_you_mean(name, PROJECTION_NAMES)
            remedy = near or f"use one of {known}, or MODULE:ATTRIBUTE for one of your own"
            raise WrongUsage(f"{name!r} is no projection", remedy)
    return names


@click.command("replay", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.option("--until", type=click.IntRange(min=1), metavar="POSITION", help="As of this entry.")
@click.option(
    "--projection",
    "names",
    metavar=f"[{'|'.join(PROJECTION_NAMES)}|MODULE:ATTRIBUTE]",
    callback=_check_projections,
    multiple=True,
    help="Only this projection; may be given several times. One of your own is named as an agent is for `lanebus "
    "worker`: module:attribute, or path/to/file.py:attribute.",
)
@click.pass_context
def replay_command(ctx: click.Context, session: str, *, until: int | None, names: tuple[str, ...]) -> int:
    """Fold projections of a session anew from its first entry, print their states, and compare them with the stored
    ones. The exit code is 7 if a stored state differs from the folded state. Nothing is stored.

    As JSON, each line is a projection: session, projection, version, position (of the last folded entry), stored
    (position of the stored state), agrees, unreadable (number of skipped entries) and state.

    \b
    Example: lanebus replay support-42
    Example: lanebus replay support-42 --until 12 --projection usage --json
    Example: lanebus replay support-42 --projection errors.py:tool_errors
    """
    chosen = tuple(dict.fromkeys(names)) or PROJECTION_NAMES
    others = [fold_of(load_module(find_projection, name)) for name in chosen if ":" in name]
    own = [name for name in chosen if ":" not in name]
    replayed = on_session(ctx, session, partial(_replay, names=own, others=others, until=until))
    _show_replayed(Output.of(ctx), session, replayed)
    for each in replayed:
        if each.unreadable:
            tell(f"projection {each.key}: skipped entries that could not be read: {each.unreadable}")
    disagree = [each.key for each in replayed if each.agrees is False]
    for key in disagree:
        tell(differs(session, key))
    return ExitCode.FAULTS if disagree else ExitCode.DONE


async def _replay(
    session: Session, *, names: Sequence[str], others: Sequence[BeginFold], until: int | None
) -> list[Replayed]:
    last = (await session.head()).position
    if until is not None and until > last:
        raise BeyondEnd(session.id, until, last)
    return await replay(session, names, others=others, until=until or last)


def _show_replayed(output: Output, session: str, replayed: Sequence[Replayed]) -> None:
    if not output.is_json:
        output.table(_REPLAYED_COLUMNS, [_replayed_row(each) for each in replayed])
        return
    for each in replayed:
        place = {"session": session, "projection": each.name, "version": each.version}
        found = {"position": each.cursor.position, "stored": each.stored, "agrees": each.agrees}
        skipped = {"unreadable": each.unreadable}
        output.json_text(spliced({**place, **found, **skipped}, "state", each.state.decode()))


def _replayed_row(each: Replayed) -> tuple[str, ...]:
    match each.agrees:
        case True:
            stored = f"agrees at {each.stored}"
        case False:
            stored = f"differs at {each.stored}"
        case None:
            stored = "none" if each.stored is None else f"at {each.stored}"
    return (each.key, str(each.cursor.position), stored, each.state.decode())


# `lanebus namespace`: accept a log that was emptied or is an older copy.


@click.group("namespace", cls=BusGroup)
def namespace_command() -> None:
    """Accept the log of a namespace, after it was emptied or an older copy of it was restored.

    \b
    Example: lanebus namespace accept
    """


@namespace_command.command("accept", cls=ViewCommand)
@yes_option
@click.pass_context
def accept(ctx: click.Context, *, yes: bool) -> None:
    """Accept the log that the server has now, in place of the one that workers and `lanebus serve` knew. Says what is
    lost, and asks. Deletes nothing, and restores nothing: sessions that are gone stay gone.

    Workers and servers that refuse an emptied log (event log.emptied) serve the new one within seconds, without a
    restart. `lanebus verify --all` and `lanebus doctor` report the loss no more. If nothing is lost, this does no harm.

    \b
    Example: lanebus namespace accept
    Example: lanebus namespace accept --yes --url redis://localhost:6379
    """
    require_consent("accepted", yes=yes)
    name = Settings.of(ctx).namespace
    losses = on_bus(ctx, _losses, remembers=True)
    for loss in losses:
        tell(f"{name}: {loss.text}")
    if not losses:
        tell(f"{name}: no loss is known here; processes that knew another log will accept this one")
    ask(f"Accept the log of namespace {name} as it is now?", "accepted", yes=yes)
    on_bus(ctx, _accept, remembers=True)
    kinds = [loss.kind for loss in losses]
    Output.of(ctx).answer({"namespace": name, "accepted": kinds}, f"the log of namespace {name} was accepted")


async def _losses(bus: Bus) -> tuple[LogLoss, ...]:
    return await bus.namespace.unaccepted()


async def _accept(bus: Bus) -> None:
    await bus.namespace.accept()
