"""`lanebus turns`: the model calls of a session."""

from collections import Counter
from functools import partial

import click

from handlers.cli.opening import open_session
from handlers.cli.options import Settings, ViewCommand
from handlers.cli.output import Output, tell
from handlers.cli.run import run
from handlers.cli.table import Column
from handlers.cli.text import count, counted_from, duration, money
from handlers.projections.projection import Projected, look
from handlers.projections.turns import TURNS, Turn, TurnsState

__all__ = ("TURN_COLUMNS", "command", "turn_rows")

TURN_COLUMNS = (
    Column("turn", is_flexible=True),
    Column("entry", is_number=True),
    Column("status"),
    Column("model", is_flexible=True),
    Column("tools", is_flexible=True),
    Column("input", is_number=True),
    Column("output", is_number=True),
    Column("cached", is_number=True),
    Column("cost", is_number=True),
    Column("took", is_number=True),
)


@click.command("turns", cls=ViewCommand)
@click.argument("session")
@click.pass_context
def command(ctx: click.Context, session: str) -> None:
    """Show each model call of a session with its tools, tokens and cost.

    As JSON each line is a turn; prompts, message and the tools' results are positions of entries, times are seconds
    UTC by the server's clock.

    \b
    Example: lanebus turns support-42
    """
    output = Output.of(ctx)
    now = run(partial(_turns, Settings.of(ctx), session))
    state = now.state
    if now.counted_from is not None:
        tell(counted_from(session, now.counted_from))
    if output.is_json:
        for turn in state.turns:
            output.json_text(turn.to_json())
    elif state.turns:
        output.table(TURN_COLUMNS, turn_rows(state, session))
    else:
        tell(f"session {session!r} has no turns yet: no model was called")


async def _turns(settings: Settings, session_id: str) -> Projected[TurnsState]:
    async with open_session(settings, session_id) as session:
        return await look(session, TURNS)


def turn_rows(state: TurnsState, session: str) -> list[tuple[str, ...]]:
    """A row for each turn, for `TURN_COLUMNS`.

    A turn's id is without the session, with which it begins; a turn that has none is called by its count, as `#12`.
    """
    return [_row(number, turn, f"{session}.") for number, turn in enumerate(state.turns, 1)]


def _row(number: int, turn: Turn, prefix: str) -> tuple[str, ...]:
    usage = turn.usage
    tokens = (usage.input, usage.output, usage.cache_read) if usage else ()
    runs = Counter(f"{run.name}{' failed' if run.is_error else ''}" for run in turn.tools)
    tools = ", ".join(name if times == 1 else f"{name} ×{times}" for name, times in runs.items())
    return (
        f"#{number}" if turn.turn_id is None else str(turn.turn_id).removeprefix(prefix),
        "" if turn.message is None else str(turn.message),
        turn.status,
        turn.model or "",
        tools,
        *(map(count, tokens) if tokens else ("", "", "")),
        money(turn.cost.total) if turn.cost else "unknown",
        # Without events all that is known is when it was imported.
        duration(turn.ended - turn.started) if turn.has_events and turn.ended is not None else "",
    )
