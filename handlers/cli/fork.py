"""`lanebus fork`: another session with the same beginning."""

from functools import partial

import click

from bus.head import SessionHead
from handlers.cli.opening import open_session
from handlers.cli.options import Settings, ViewCommand
from handlers.cli.output import Output
from handlers.cli.run import run

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
    head = run(partial(_fork, Settings.of(ctx), session, at, name))
    output = Output.of(ctx)
    if output.is_json:
        output.json(
            {"session": head.session, "parent": session, "position": head.origin.position if head.origin else 0}
        )
    else:
        output.line(head.session)


async def _fork(settings: Settings, session_id: str, at: int | None, name: str | None) -> SessionHead:
    async with open_session(settings, session_id) as session:
        return await (await session.fork(at, id=name)).head()
