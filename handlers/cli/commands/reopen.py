"""`lanebus reopen`: make a closed session accept messages again."""

import click

from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import user_messages
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.receipt import show_state

__all__ = ("command",)


@click.command("reopen", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.argument("messages", nargs=-1, metavar="[MESSAGE]…")
@click.option("--reason", default="", metavar="TEXT", help="Reason; recorded in the `session.reopened` event.")
@click.option("--key", metavar="KEY", help="Idempotency key: a repeat with the same key adds nothing.")
@click.pass_context
def command(ctx: click.Context, session: str, messages: tuple[str, ...], *, reason: str, key: str | None) -> None:
    """Make a closed session accept messages again.

    The event `session.reopened` with the reason is appended, then each MESSAGE as a user message, all in one step.

    \b
    Example: lanebus reopen support-42 "It happens again."
    """
    first = user_messages(messages)
    receipt = on_session(ctx, session, lambda it: it.reopen(*first, reason=reason, key=key))
    show_state(Output.of(ctx), session, receipt, is_closed=False)
