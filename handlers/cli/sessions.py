"""`lanebus sessions`: what there is."""

from functools import partial

import click

from bus.head import SessionHead
from handlers.cli.opening import open_bus
from handlers.cli.options import Settings, ViewCommand
from handlers.cli.output import Output, tell
from handlers.cli.run import run
from handlers.cli.table import Column
from handlers.cli.text import count, moment, money, size
from handlers.projections.sessions import SessionLine, session_lines
from handlers.projections.usage import summary

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
"""where there is one that is more than open"""


@click.command("sessions", cls=ViewCommand)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List the sessions, newest activity first.

    \b
    Example: lanebus sessions --json | head -1
    """
    output = Output.of(ctx)
    lines = run(partial(_sessions, Settings.of(ctx)))
    if output.is_json:
        for head, line in lines:
            output.json(_json(head, line))
    elif any(_state(head) for head, _ in lines):
        rows = [(head, _row(head, line)) for head, line in lines]
        output.table(_WITH_STATE, [(*row[:1], _state(head), *row[1:]) for head, row in rows])
    elif lines:
        output.table(_COLUMNS, [_row(head, line) for head, line in lines])
    else:
        tell("no sessions yet; `lanebus publish first hello` makes one")


async def _sessions(settings: Settings) -> list[tuple[SessionHead, SessionLine]]:
    async with open_bus(settings) as bus:
        heads = {head.session: head for head in await bus.sessions()}
        lines = await session_lines(bus)
        return [(head, lines[name].state) for name, head in heads.items() if name in lines]


def _json(head: SessionHead, line: SessionLine) -> dict[str, object]:
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


def _row(head: SessionHead, line: SessionLine) -> tuple[str, ...]:
    cost = line.usage.cost.total if line.usage.cost else None
    return (
        head.session,
        count(head.position),
        size(head.size_bytes),
        moment(head.updated),
        count(line.turns),
        count(line.usage.total_tokens),
        money(cost) if line.turns else "",
        line.title or "",
    )


def _state(head: SessionHead) -> str:
    """What a session is beside open and whole; "" if it is just that."""
    origin = head.origin
    found = [
        "closed" if head.is_closed else "",
        f"fork of {origin.session} at {count(origin.position)}" if origin else "",
        f"from {count(head.first_kept)}" if head.trimmed else "",
        f"archived to {count(head.archived)}" if head.archived else "",
    ]
    return ", ".join(filter(None, found))
