"""`lanebus projections`: list the stored projections of a session, or remove one of them."""

import click

from lanebus.bus.digits import number_in
from lanebus.bus.session.session import Session
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.errors import NoSuchProjection
from lanebus.handlers.cli.options import BusGroup, ViewCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.usage import WrongUsage

__all__ = ("command",)

_COLUMNS = (Column("projection", is_flexible=True), Column("position", is_number=True))


@click.group("projections", cls=BusGroup)
def command() -> None:
    """List the stored projections of a session, or remove one. Entries after a projection's position cannot be
    trimmed, so a projection that is not used any more should be removed.

    \b
    Example: lanebus projections list support-42
    Example: lanebus projections remove support-42 usage@2
    """


@command.command("list", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.pass_context
def list_(ctx: click.Context, session: str) -> None:
    """List each stored projection of a session, and the position up to which it is folded.

    \b
    Example: lanebus projections list support-42 --json
    """
    found = on_session(ctx, session, _stored)
    Output.of(ctx).items(
        found,
        lambda each: {"session": session, "projection": each[0], "position": each[1]},
        _COLUMNS,
        lambda each: (each[0], str(each[1])),
        empty=f"session {session!r} has no stored projections",
    )


@command.command("remove", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.argument("name", metavar="NAME@VERSION")
@click.pass_context
def remove(ctx: click.Context, session: str, name: str) -> None:
    """Remove one stored projection of a session. Its next use folds it from the log again. The exit code is 3 if it is
    not stored.

    \b
    Example: lanebus projections remove support-42 usage@2
    """
    plain, _, version = name.rpartition("@")
    number = number_in(version)
    if not plain or number is None:
        raise WrongUsage(
            f"{name[:100]!r} is not a projection", f"write NAME@VERSION as in `lanebus projections list {session}`"
        )
    if not on_session(ctx, session, lambda it: it.drop_projection(plain, number)):
        raise NoSuchProjection(session, name)
    Output.of(ctx).answer({"session": session, "projection": name, "removed": True}, f"{name} of {session} was removed")


async def _stored(session: Session) -> list[tuple[str, int]]:
    checkpoints = await session.checkpoints()
    return [(name[2:], cursor.position) for name, cursor in checkpoints.items() if name.startswith("p:")]
