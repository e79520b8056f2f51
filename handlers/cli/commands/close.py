"""`lanebus close`: make a session accept no further messages."""

import click

from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import user_messages
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.receipt import show_state

__all__ = ("command",)


@click.command("close", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.argument("messages", nargs=-1, metavar="[MESSAGE]…")
@click.option("--reason", default="", metavar="TEXT", help="Reason; recorded in the `session.closed` event.")
@click.option("--key", metavar="KEY", help="Idempotency key: a repeat with the same key adds nothing.")
@click.option(
    "--expected", type=click.IntRange(min=0), metavar="POSITION", help="Refuse if the last entry has another position."
)
@click.pass_context
def command(
    ctx: click.Context, session: str, messages: tuple[str, ...], *, reason: str, key: str | None, expected: int | None
) -> None:
    """Close a session: it accepts no further messages until `lanebus reopen`. Its entries stay readable.

    Each MESSAGE is appended as a last user message, then the event `session.closed` with the reason, all in one step.

    \b
    Example: lanebus close support-42 --reason solved "Thanks, that was it."
    """
    last = user_messages(messages)
    receipt = on_session(ctx, session, lambda it: it.close(*last, reason=reason, key=key, expected=expected))
    show_state(Output.of(ctx), session, receipt, is_closed=True)
