"""`lanebus projections`: the states that are stored of a session's views, and the end of one that nobody reads."""

import click

from lanebus.bus.session.session import Session
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.options import BusGroup, ViewCommand
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.table import Column

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
    found = on_session(ctx, session, _stored)
    Output.of(ctx).items(
        found,
        lambda each: {"session": session, "projection": each[0], "position": each[1]},
        _COLUMNS,
        lambda each: (each[0], str(each[1])),
        empty=f"nothing is stored of session {session!r}",
    )


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
    was_there = on_session(ctx, session, lambda it: it.drop_projection(plain, int(version)))
    outcome = "was removed" if was_there else "is not stored"
    Output.of(ctx).answer(
        {"session": session, "projection": name, "removed": was_there}, f"{name} of {session} {outcome}"
    )
    return 0 if was_there else 1


async def _stored(session: Session) -> list[tuple[str, int]]:
    checkpoints = await session.checkpoints()
    return [(name[2:], cursor.position) for name, cursor in checkpoints.items() if name.startswith("p:")]
