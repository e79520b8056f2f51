"""`lanebus close`: make a session accept no further messages."""

from collections.abc import Sequence
from functools import partial

import click

from lanebus.bus.errors import SessionClosed
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import EXPECTED_HELP, CursorParameter, user_messages
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
@click.option("--expected", type=CursorParameter(), metavar="CURSOR", help=EXPECTED_HELP)
@click.pass_context
def command(
    ctx: click.Context,
    session: str,
    messages: tuple[str, ...],
    *,
    reason: str,
    key: str | None,
    expected: Cursor | None,
) -> None:
    """Close a session: it accepts no further messages until `lanebus reopen`. Its entries stay readable.

    Each MESSAGE is appended as a last user message, then the event `session.closed` with the reason, all in one step.
    Without a MESSAGE, closing a closed session changes nothing.

    \b
    Example: lanebus close support-42 --reason solved "Thanks, that was it."
    """
    last = user_messages(messages)
    receipt = on_session(ctx, session, partial(_close, last, reason=reason, key=key, expected=expected))
    show_state(Output.of(ctx), session, receipt, is_closed=True)


async def _close(
    last: Sequence[UserMessage], session: Session, *, reason: str, key: str | None, expected: Cursor | None
) -> Receipt | None:
    """Close a session. Return None if the session was closed already and there is no message to append."""
    try:
        return await session.close(*last, reason=reason, key=key, expected=expected)
    except SessionClosed:
        if last:
            raise
        return None
