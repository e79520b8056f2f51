"""`lanebus fork`: another session with the same beginning."""

from functools import partial

import click

from lanebus.bus.log.head import SessionHead
from lanebus.bus.session.session import Session
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.terminal.output import Output

__all__ = ("command",)


@click.command("fork", cls=ViewCommand)
@click.argument("session")
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="POSITION",
    help="The last entry that both share; the last there is if not given.",
)
@click.option("--id", "name", metavar="ID", help="Of the new session; made up if not given.")
@click.pass_context
def command(ctx: click.Context, session: str, *, at: int | None, name: str | None) -> None:
    """Begin a session that shares another one's entries up to a position, and goes on for itself behind it. No entry is
    copied. Prints the new id; with the same --id and --at it may be asked again.

    \b
    Example: lanebus fork support-42 --at 12 --id support-42-again
    """
    head = on_session(ctx, session, partial(_fork, at=at, name=name))
    shared = head.origin.position if head.origin else 0
    Output.of(ctx).answer({"session": head.session, "parent": session, "position": shared}, head.session)


async def _fork(session: Session, *, at: int | None, name: str | None) -> SessionHead:
    return await (await session.fork(at, id=name)).head()
