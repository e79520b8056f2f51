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
    unless it has the same --key. The answer names the agent that the session belongs to now.

    \b
    Example: lanebus hand-over support-42 billing --by anna
    """
    handing = partial(_hand_over, session, agent, by=by, reason=reason, key=key, expected=expected)
    receipt, owner, is_served = on_bus(ctx, handing)
    what = f"handed over to {owner} at position {receipt.position}"
    if receipt.is_duplicate:
        earlier = f"was handed over to {agent} at position {receipt.position}, and " if owner != agent else ""
        what = f"{earlier}belongs to {owner}{' now' if earlier else ''}, nothing changed"
    Output.of(ctx).answer({**receipt_json(session, receipt), "agent": owner}, f"{session}: {what}")
    if not is_served:
        tell_unserved(owner, can_hand_over=owner != agent)


async def _hand_over(
    name: str,
    agent: str,
    bus: Bus,
    *,
    by: str | None,
    reason: str | None,
    key: str | None,
    expected: Cursor | None,
) -> tuple[Receipt, str, bool]:
    """Hand a session over. Return the receipt, the session's agent now, and whether a live worker serves it."""
    session = await existing(bus, name)
    receipt = await session.hand_over(agent, by=by, reason=reason, key=key, expected=expected)
    owner = (await session.head()).agent or agent if receipt.is_duplicate else agent
    return receipt, owner, await is_served(bus, owner)
