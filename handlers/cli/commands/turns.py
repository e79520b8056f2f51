"""`lanebus turns`: show the model calls of a session."""

from collections import Counter
from functools import partial

import click

from lanebus.bus.messages.usage import Usage
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.options import ViewCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import about, count, counted_from, duration, money
from lanebus.handlers.projections.loops import (
    chain_to,
    children,
    loop_messages,
    loop_turns,
    siblings,
    total_usage,
    usages,
)
from lanebus.handlers.projections.projection import look
from lanebus.handlers.projections.turns import TURNS
from lanebus.handlers.projections.turns_state import Loop, ToolRun, Turn, TurnsState
from lanebus.handlers.projections.usage import summary

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
    Column("duration", is_number=True),
)


_LOOP_COLUMNS = (
    Column("loop", is_flexible=True),
    Column("parent", is_flexible=True),
    Column("agent", is_flexible=True),
    Column("continuation"),
    Column("status"),
    Column("turns", is_number=True),
    Column("tokens", is_number=True),
    Column("cost", is_number=True),
)


@click.command("turns", cls=ViewCommand)
@click.argument("session", type=SessionId())
@click.option("--loops", "is_by_loop", is_flag=True, help="Show loops (runs of the agent) instead of turns.")
@click.pass_context
def command(ctx: click.Context, session: str, *, is_by_loop: bool) -> None:
    """Show each turn of a session: a model call with its tools, tokens and cost in US dollars.

    A turn ends after its last tool, so its duration includes waits for a person.

    As JSON, each line is a turn. prompts (what the turn answers: messages of users or results of tools), message (its
    answer) and the results of tools are positions of entries; times are seconds UTC by the server's clock.

    With --loops, each line is a loop with its parent, number of turns and usage. As JSON, it also has the chain of its
    ancestors, its children, its siblings (which ran in parallel), and the positions of its messages.

    \b
    Example: lanebus turns support-42
    Example: lanebus turns support-42 --loops
    """
    output = Output.of(ctx)
    found = on_session(ctx, session, partial(look, projection=TURNS))
    state = found.state
    if found.counted_from is not None:
        tell(counted_from(session, found.counted_from))
    if is_by_loop:
        _show_loops(output, state, session)
    elif output.is_json:
        for turn in state.turns:
            output.json_text(turn.to_json())
    elif state.turns:
        output.table(TURN_COLUMNS, turn_rows(state, session))
    else:
        tell(f"session {session!r} has no turns yet: no model was called")


def _show_loops(output: Output, state: TurnsState, session: str) -> None:
    usage = usages(state)
    output.items(
        state.loops,
        lambda loop: _loop_json(state, loop, usage.get(loop.loop_id, Usage())),
        _LOOP_COLUMNS,
        lambda loop: _loop_row(state, loop, usage.get(loop.loop_id, Usage())),
        empty=f"session {session!r} has no loops: no agent has worked on it",
    )
    if state.loops and not output.is_json:
        total = total_usage(state)
        cost = money(total.cost.total if total.cost else None)
        output.line(f"{count(len(state.turns))} turns, {count(total.total_tokens)} tokens, cost {cost}")


def _loop_json(state: TurnsState, loop: Loop, usage: Usage) -> dict[str, object]:
    return {
        "loop_id": loop.loop_id,
        "agent": loop.agent,
        "parent": loop.parent,
        "continuation": loop.continuation,
        "chain": chain_to(state, loop.loop_id),
        "children": children(state, loop.loop_id),
        "siblings": siblings(state, loop.loop_id),
        "is_selected": loop.is_selected,
        "status": loop.status,
        "stop_reason": loop.stop_reason,
        "turns": len(loop_turns(state, loop.loop_id)),
        "messages": loop_messages(state, loop.loop_id),
        "usage": summary(usage),
    }


def _loop_row(state: TurnsState, loop: Loop, usage: Usage) -> tuple[str, ...]:
    return (
        *(loop.loop_id, loop.parent or "", loop.agent or "", loop.continuation or "", loop.status),
        *(count(len(loop_turns(state, loop.loop_id))), f"{about(usage.estimated)}{count(usage.total_tokens)}"),
        about(usage.estimated) + money(usage.cost.total if usage.cost else None),
    )


def turn_rows(state: TurnsState, session: str) -> list[tuple[str, ...]]:
    """Return a row of `TURN_COLUMNS` for each turn.

    A turn's id is shown in its short form, without the session. A turn without an id is shown by its number, such as
    #12.
    """
    return [_row(number, turn, f"{session}.") for number, turn in enumerate(state.turns, 1)]


def _row(number: int, turn: Turn, prefix: str) -> tuple[str, ...]:
    usage = turn.usage
    tokens = (usage.input, usage.output, usage.cache_read) if usage else ()
    mark = about(usage is not None and usage.estimated)
    runs = Counter(map(_run, turn.tools))
    tools = ", ".join(name if times == 1 else f"{name} ×{times}" for name, times in runs.items())
    return (
        f"#{number}" if turn.turn_id is None else str(turn.turn_id).removeprefix(prefix),
        "" if turn.message is None else str(turn.message),
        turn.status,
        turn.model or "",
        tools,
        *(f"{mark}{count(each)}" for each in tokens),
        *(() if tokens else ("", "", "")),
        f"{mark}{money(turn.cost.total)}" if turn.cost else "unknown",
        # Without events, the log has only the time of the import.
        duration(turn.ended - turn.started) if turn.has_events and turn.ended is not None else "",
    )


def _run(run: ToolRun) -> str:
    attempts = f" ({count(run.attempts)} attempts)" if run.attempts > 1 else ""
    return f"{run.name} {run.fault}".rstrip() + attempts
