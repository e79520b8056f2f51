"""`lanebus reopen`: a closed session takes messages again."""

from functools import partial

import click

from bus.messages.message import UserMessage
from bus.receipt import Receipt
from handlers.cli.closing import show_state, spoken
from handlers.cli.opening import open_session
from handlers.cli.options import BusCommand, Settings
from handlers.cli.output import Output
from handlers.cli.run import run

__all__ = ("command",)


@click.command("reopen", cls=BusCommand)
@click.argument("session")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]…")
@click.option("--reason", default="", metavar="TEXT", help="Why; it stands in the note that begins what follows.")
@click.option("--key", help="Your own name for this; reopened again under it, nothing is added.")
@click.pass_context
def command(ctx: click.Context, session: str, messages: tuple[str, ...], *, reason: str, key: str | None) -> None:
    """Let a closed session take messages again: first a note `session.reopened` with the reason, then the MESSAGES
    of the user, if there are any, in one step.

    \b
    Example: lanebus reopen support-42 "It happens again."
    """
    receipt = run(partial(_reopen, Settings.of(ctx), session, spoken(messages), reason, key))
    show_state(Output.of(ctx), session, receipt, is_closed=False)


async def _reopen(
    settings: Settings, session_id: str, messages: list[UserMessage], reason: str, key: str | None
) -> Receipt:
    async with open_session(settings, session_id) as session:
        return await session.reopen(*messages, reason=reason, key=key)
