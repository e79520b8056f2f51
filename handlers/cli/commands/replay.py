"""`lanebus replay`: fold projections of a session from its first entry, and compare them with stored states."""

from collections.abc import Sequence
from functools import partial

import click

from lanebus.bus.session.session import Session
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.errors import BeyondEnd
from lanebus.handlers.cli.exits import ExitCode
from lanebus.handlers.cli.modules import load_module
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.usage import WrongUsage, did_you_mean
from lanebus.handlers.json_text import spliced
from lanebus.handlers.projections.load import find_projection
from lanebus.handlers.verify.replay_check import PROJECTION_NAMES, BeginFold, Replayed, differs, fold_of, replay

__all__ = ("command",)

_COLUMNS = (
    Column("projection"),
    Column("position", is_number=True),
    Column("stored"),
    Column("state", is_flexible=True),
)


def _check_names(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
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
    callback=_check_names,
    multiple=True,
    help="Only this projection; may be given several times. One of your own is named as an agent is for `lanebus "
    "worker`: module:attribute, or path/to/file.py:attribute.",
)
@click.pass_context
def command(ctx: click.Context, session: str, *, until: int | None, names: tuple[str, ...]) -> int:
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
    _show(Output.of(ctx), session, replayed)
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


def _show(output: Output, session: str, replayed: Sequence[Replayed]) -> None:
    if not output.is_json:
        output.table(_COLUMNS, [_row(each) for each in replayed])
        return
    for each in replayed:
        place = {"session": session, "projection": each.name, "version": each.version}
        found = {"position": each.cursor.position, "stored": each.stored, "agrees": each.agrees}
        skipped = {"unreadable": each.unreadable}
        output.json_text(spliced({**place, **found, **skipped}, "state", each.state.decode()))


def _row(each: Replayed) -> tuple[str, ...]:
    match each.agrees:
        case True:
            stored = f"agrees at {each.stored}"
        case False:
            stored = f"differs at {each.stored}"
        case None:
            stored = "none" if each.stored is None else f"at {each.stored}"
    return (each.key, str(each.cursor.position), stored, each.state.decode())
