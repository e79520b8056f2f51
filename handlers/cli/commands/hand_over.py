"""`lanebus hand-over`: give a session to another agent."""

from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.cli.access import existing, on_bus
from lanebus.handlers.cli.arguments import EXPECTED_HELP, CursorParameter
from lanebus.handlers.cli.groups import is_served, tell_unserved
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.session_id import SessionId, complete_agent
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.receipt import receipt_json

__all__ = ("command",)


@click.command("hand-over", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.argument("agent", shell_complete=complete_agent)
@click.option("--by", metavar="NAME", help="Name of the person or program; recorded in the log.")
@click.option("--reason", metavar="TEXT", help="Reason; recorded in the log.")
@click.option("--key", metavar="KEY", help="Idempotency key: a repeat with the same key changes nothing.")
@click.option("--expected", type=CursorParameter(), metavar="CURSOR", help=EXPECTED_HELP)
@click.pass_context
def command(
    ctx: click.Context,
    session: str,
    agent: str,
    *,
    by: str | None,
    reason: str | None,
    key: str | None,
    expected: Cursor | None,
) -> None:
    """Hand SESSION over to the agent named AGENT. A worker that serves AGENT continues its loop from the log. The
    worker that runs the session now stops, and can append nothing more to it.

    If the session belongs to AGENT already, nothing changes. A repeat after another handover takes the session back,
    unless it has the same --key.

    \b
    Example: lanebus hand-over support-42 billing --by anna
    """
    handing = partial(_hand_over, session, agent, by=by, reason=reason, key=key, expected=expected)
    receipt, is_served = on_bus(ctx, handing)
    what, again = "handed over to", f" at position {receipt.position}"
    if receipt.is_duplicate:
        what, again = ("was handed over to" if key else "belongs to"), ", nothing changed"
    Output.of(ctx).answer({**receipt_json(session, receipt), "agent": agent}, f"{session}: {what} {agent}{again}")
    if not is_served:
        tell_unserved(agent, can_hand_over=False)


async def _hand_over(
    name: str,
    agent: str,
    bus: Bus,
    *,
    by: str | None,
    reason: str | None,
    key: str | None,
    expected: Cursor | None,
) -> tuple[Receipt, bool]:
    """Hand a session over. Return the receipt, and whether a live worker serves the agent."""
    session = await existing(bus, name)
    receipt = await session.hand_over(agent, by=by, reason=reason, key=key, expected=expected)
    return receipt, await is_served(bus, agent)
