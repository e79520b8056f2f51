"""`lanebus sessions`: list the sessions."""

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
    Column("entries", is_number=True),
    Column("size", is_number=True),
    Column("last entry"),
    Column("turns", is_number=True),
    Column("tokens", is_number=True),
    Column("cost", is_number=True),
    Column("title", is_flexible=True),
)
_WITH_STATE = (*_COLUMNS[:1], Column("state", is_flexible=True), *_COLUMNS[1:])
"""the columns if at least one session is closed, forked, trimmed or archived"""


@click.command("sessions", cls=ViewCommand)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List sessions, most recently active first. The table has a column "state" if a session is closed, forked, trimmed
    or archived.

    \b
    Example: lanebus sessions --json | head -1
    """
    lines = on_bus(ctx, _sessions)
    has_states = any(_state(head) for head, _ in lines)
    Output.of(ctx).items(
        lines,
        _json,
        _WITH_STATE if has_states else _COLUMNS,
        partial(_row, has_state=has_states),
        empty="no sessions yet: create one with `lanebus publish first hello`",
    )


async def _sessions(bus: Bus) -> list[tuple[SessionHead, SessionLine]]:
    heads = {head.session: head for head in await bus.sessions()}
    lines = await session_lines(bus)
    return [(head, lines[name].state) for name, head in heads.items() if name in lines]


def _json(found: tuple[SessionHead, SessionLine]) -> dict[str, object]:
    head, line = found
    origin = head.origin
    return {
        "session": head.session,
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


def _row(found: tuple[SessionHead, SessionLine], *, has_state: bool) -> tuple[str, ...]:
    head, line = found
    cost = line.usage.cost.total if line.usage.cost else None
    return (
        head.session,
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
