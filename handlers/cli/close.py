"""`lanebus close`: a session takes no further messages."""

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


@click.command("close", cls=BusCommand)
@click.argument("session")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]…")
@click.option("--reason", default="", metavar="TEXT", help="Why; it stands in the note that ends the log.")
@click.option("--key", help="Your own name for this; closed again under it, nothing is added.")
@click.option(
    "--expected", type=click.IntRange(min=0), metavar="POSITION", help="Refuse if the session's last entry is another."
)
@click.pass_context
def command(
    ctx: click.Context, session: str, messages: tuple[str, ...], *, reason: str, key: str | None, expected: int | None
) -> None:
    """Close a session: in one step with the last MESSAGES of the user, if there are any, it takes no further ones.
    What is in it stays. At its end stands a note `session.closed` with the reason, for readers however late they come.

    \b
    Example: lanebus close support-42 --reason solved "Thanks, that was it."
    """
    receipt = run(partial(_close, Settings.of(ctx), session, spoken(messages), reason, key, expected))
    show_state(Output.of(ctx), session, receipt, is_closed=True)


async def _close(  # noqa: PLR0917  # what the user gave
    settings: Settings, session_id: str, messages: list[UserMessage], reason: str, key: str | None, expected: int | None
) -> Receipt:
    async with open_session(settings, session_id) as session:
        return await session.close(*messages, reason=reason, key=key, expected=expected)
