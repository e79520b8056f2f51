"""`lanebus projections`: the states that are stored of a session's views, and the end of one that nobody reads."""

from functools import partial

import click

from handlers.cli.opening import open_session
from handlers.cli.options import BusGroup, Settings, ViewCommand
from handlers.cli.output import Output, tell
from handlers.cli.run import run
from handlers.cli.table import Column

__all__ = ("command",)

_COLUMNS = (Column("projection", is_flexible=True), Column("position", is_number=True))


@click.group("projections", cls=BusGroup)
def command() -> None:
    """Look at the stored projections of a session, and remove one: what is behind its position is kept for it, so one
    that nobody reads any more holds every trim back.

    \b
    Example: lanebus projections list support-42
    Example: lanebus projections remove support-42 usage@2
    """


@command.command("list", cls=ViewCommand)
@click.argument("session")
@click.pass_context
def list_(ctx: click.Context, session: str) -> None:
    """Show each stored projection of SESSION, and the position it was folded up to.

    \b
    Example: lanebus projections list support-42 --json
    """
    found = run(partial(_list, Settings.of(ctx), session))
    output = Output.of(ctx)
    if output.is_json:
        for name, position in found.items():
            output.json({"session": session, "projection": name, "position": position})
    elif found:
        output.table(_COLUMNS, [(name, str(position)) for name, position in found.items()])
    else:
        tell(f"nothing is stored of session {session!r}")


@command.command("remove", cls=ViewCommand)
@click.argument("session")
@click.argument("name", metavar="NAME@VERSION")
@click.pass_context
def remove(ctx: click.Context, session: str, name: str) -> int:
    """Remove one stored projection of SESSION. It is folded from the log again when it is asked for.

    \b
    Example: lanebus projections remove support-42 usage@2
    """
    plain, _, version = name.rpartition("@")
    if not plain or not version.isdecimal():
        raise click.UsageError(f"{name!r} is no projection: want NAME@VERSION, as `lanebus projections list` shows it")
    was_there = run(partial(_remove, Settings.of(ctx), session, plain, int(version)))
    output = Output.of(ctx)
    if output.is_json:
        output.json({"session": session, "projection": name, "removed": was_there})
    else:
        output.line(f"{name} of {session} {'was removed' if was_there else 'is not stored'}")
    return 0 if was_there else 1


async def _list(settings: Settings, session_id: str) -> dict[str, int]:
    async with open_session(settings, session_id) as session:
        checkpoints = await session.checkpoints()
        return {name[2:]: cursor.position for name, cursor in checkpoints.items() if name.startswith("p:")}


async def _remove(settings: Settings, session_id: str, name: str, version: int) -> bool:
    async with open_session(settings, session_id) as session:
        return await session.drop_projection(name, version)
