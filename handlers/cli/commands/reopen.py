"""`lanebus reopen`: make a closed session accept messages again."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import click

from lanebus.bus.errors import Conflict
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.arguments import user_messages
from lanebus.handlers.cli.errors import SessionOpen
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
    Without a MESSAGE, reopening an open session changes nothing.

    \b
    Example: lanebus reopen support-42 "It happens again."
    """
    first = user_messages(messages)
    receipt = on_session(ctx, session, partial(_reopen, first, reason=reason, key=key))
    show_state(Output.of(ctx), session, receipt, is_closed=False)


async def _reopen(first: Sequence[UserMessage], session: Session, *, reason: str, key: str | None) -> Receipt | None:
    """Reopen a session. Return None if the session is open already and there is no message to append."""
    if (await session.head()).is_closed:
        return await session.reopen(*first, reason=reason, key=key)
    if key is not None:
        with suppress(Conflict):  # only a repeat is answered: the session has entries
            return await session.publish(UserMessage.text(reason or "-"), key=key, expected=0)
    if first:
        raise SessionOpen(session.id)
    return None
