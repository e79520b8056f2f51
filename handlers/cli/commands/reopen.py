"""`lanebus reopen`: a closed session takes messages again."""

import click

from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import user_messages
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.receipt import show_state

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
    said = user_messages(messages)
    receipt = on_session(ctx, session, lambda it: it.reopen(*said, reason=reason, key=key))
    show_state(Output.of(ctx), session, receipt, is_closed=False)
