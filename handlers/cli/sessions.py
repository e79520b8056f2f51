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
from handlers.projections.projection import project
from handlers.projections.sessions import SESSIONS, SessionLine
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
_WITH_ORIGIN = (*_COLUMNS[:1], Column("fork of", is_flexible=True), *_COLUMNS[1:])


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
    elif any(head.origin for head, _ in lines):
        output.table(_WITH_ORIGIN, [_with_origin(head, _row(head, line)) for head, line in lines])
    elif lines:
        output.table(_COLUMNS, [_row(head, line) for head, line in lines])
    else:
        tell("no sessions yet; `lanebus publish first hello` makes one")


async def _sessions(settings: Settings) -> list[tuple[SessionHead, SessionLine]]:
    async with open_bus(settings) as bus:
        return [(head, (await project(bus.session(head.session), SESSIONS)).state) for head in await bus.sessions()]


def _json(head: SessionHead, line: SessionLine) -> dict[str, object]:
    origin = head.origin
    return {
        "session": head.session,
        "position": head.position,
        "size_bytes": head.size_bytes,
        "created": head.created,
        "updated": head.updated,
        "is_closed": head.is_closed,
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


def _with_origin(head: SessionHead, row: tuple[str, ...]) -> tuple[str, ...]:
    origin = head.origin
    return (*row[:1], f"{origin.session}@{origin.position}" if origin else "", *row[1:])
