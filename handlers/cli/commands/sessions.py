"""`lanebus sessions`: list the sessions."""

from collections.abc import Collection
from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.bus.log.head import SessionHead
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import count, moment, money, size
from lanebus.handlers.projections.sessions import SessionLine, session_lines
from lanebus.handlers.projections.usage import summary

__all__ = ("command",)

_COLUMNS = (
    Column("session", is_flexible=True),
    Column("agent", is_flexible=True),
    Column("entries", is_number=True),
    Column("size", is_number=True),
    Column("last entry"),
    Column("turns", is_number=True),
    Column("tokens", is_number=True),
    Column("cost", is_number=True),
    Column("title", is_flexible=True),
)
_WITH_STATE = (*_COLUMNS[:2], Column("state", is_flexible=True), *_COLUMNS[2:])
"""the columns if at least one session is closed, forked, trimmed or archived"""


@click.command("sessions", cls=ViewCommand)
@click.option("--agent", metavar="NAME", help="List only the sessions that belong to this agent.")
@click.pass_context
def command(ctx: click.Context, *, agent: str | None) -> None:
    """List sessions, most recently active first. The table has a column "state" if a session is closed, forked, trimmed
    or archived. An agent without a live worker is marked "no worker".

    \b
    Example: lanebus sessions --json | head -1
    Example: lanebus sessions --agent support
    """
    lines, served = on_bus(ctx, partial(_sessions, agent=agent))
    has_states = any(_state(head) for head, _ in lines)
    Output.of(ctx).items(
        lines,
        partial(_json, served=served),
        _WITH_STATE if has_states else _COLUMNS,
        partial(_row, has_state=has_states, served=served),
        empty="no sessions yet: create one with `lanebus publish first hello`",
    )


async def _sessions(bus: Bus, *, agent: str | None) -> tuple[list[tuple[SessionHead, SessionLine]], Collection[str]]:
    """Return the sessions, and the agents that have a live worker."""
    heads = {head.session: head for head in await bus.sessions(agent=agent)}
    lines = await session_lines(bus)
    served = await bus.live_workers()
    return [(head, lines[name].state) for name, head in heads.items() if name in lines], served.keys()


def _json(found: tuple[SessionHead, SessionLine], *, served: Collection[str]) -> dict[str, object]:
    head, line = found
    origin = head.origin
    return {
        "session": head.session,
        "agent": head.agent,
        "has_worker": head.agent in served,
        "position": head.position,
        "size_bytes": head.size_bytes,
        "created": head.created,
        "updated": head.updated,
        "is_closed": head.is_closed,
        "first_kept": head.first_kept,
        "archived": head.archived,
        "origin": {"session": origin.session, "position": origin.position} if origin else None,
        "title": line.title,
        "llm": line.llm,
        "extension": line.extension,
        "turns": line.turns,
        "usage": summary(line.usage),
    }


def _row(found: tuple[SessionHead, SessionLine], *, has_state: bool, served: Collection[str]) -> tuple[str, ...]:
    head, line = found
    cost = line.usage.cost.total if line.usage.cost else None
    return (
        head.session,
        head.agent if head.agent in served else f"{head.agent} (no worker)",
        *((_state(head),) if has_state else ()),
        count(head.position),
        size(head.size_bytes),
        moment(head.updated),
        count(line.turns),
        count(line.usage.total_tokens),
        money(cost) if line.turns else "",
        line.title or "",
    )


def _state(head: SessionHead) -> str:
    """Describe whether a session is closed, forked, trimmed or archived; "" if it is none of these."""
    origin = head.origin
    found = [
        "closed" if head.is_closed else "",
        f"fork of {origin.session} at {count(origin.position)}" if origin else "",
        f"from {count(head.first_kept)}" if head.trimmed else "",
        f"archived to {count(head.archived)}" if head.archived else "",
    ]
    return ", ".join(filter(None, found))
