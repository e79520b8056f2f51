"""`lanebus fork`: start a session that shares the first entries of another."""

from functools import partial

import click

from lanebus.bus.log.head import SessionHead
from lanebus.bus.session.session import Session
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.session_id import SessionId, complete_agent
from lanebus.handlers.cli.terminal.output import Output

__all__ = ("command",)


@click.command("fork", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="POSITION",
    help="Last shared entry; default: the last entry of SESSION.",
)
@click.option("--id", "name", metavar="ID", help="Id of the new session; default: a random id.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agent,
    help="Agent that the new session belongs to; default: that of SESSION.",
)
@click.pass_context
def command(ctx: click.Context, session: str, *, at: int | None, name: str | None, agent: str | None) -> None:
    """Start a session that shares the entries of SESSION up to a position. After this position, the two sessions
    continue independently. Entries are not copied.

    Prints the new session's id. If the command is repeated with the same --id and --at, it prints the same id and
    starts no second fork.

    \b
    Example: lanebus fork support-42 --at 12 --id support-42-again
    """
    head = on_session(ctx, session, partial(_fork, at=at, name=name, agent=agent))
    shared = head.origin.position if head.origin else 0
    Output.of(ctx).answer({"session": head.session, "parent": session, "position": shared}, head.session)


async def _fork(session: Session, *, at: int | None, name: str | None, agent: str | None) -> SessionHead:
    return await (await session.fork(at, id=name, agent=agent)).head()
