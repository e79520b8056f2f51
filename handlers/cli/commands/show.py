"""`lanebus show`: print a session as a conversation."""

import os
import sys
from contextlib import aclosing
from functools import partial

import click

from lanebus.bus.groups.failed_work import FailedWorks
from lanebus.bus.log.head import SessionHead
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import START, Cursor
from lanebus.handlers.cli.access import on_session
from lanebus.handlers.cli.errors import SessionEmpty
from lanebus.handlers.cli.options import BusCommand
from lanebus.handlers.cli.session_id import SessionId
from lanebus.handlers.cli.terminal.line import Line
from lanebus.handlers.cli.terminal.output import put
from lanebus.handlers.cli.terminal.screen import has_colours
from lanebus.handlers.cli.terminal.states import STATES, decision_text, failure_text
from lanebus.handlers.cli.terminal.text import about, count, counted_from, money, plain
from lanebus.handlers.cli.terminal.transcript import Transcript
from lanebus.handlers.cli.terminal.turn_fold import answer_commands
from lanebus.handlers.projections.agent_activity import decisions, doing, own_loop, waiting_calls
from lanebus.handlers.projections.agent_status import STATUS
from lanebus.handlers.projections.cards import look_at_state
from lanebus.handlers.projections.projection import look
from lanebus.handlers.projections.usage import USAGE

__all__ = ("command",)

_NARROWEST, _WIDEST = 40, 100
"""columns of the text: longer lines are hard to read, whatever the window"""

_WORK = {"model": "the model is called", "tools": "tools run"}


@click.command("show", cls=BusCommand)
@click.argument("session", type=SessionId())
@click.option("--full", is_flag=True, help="Show the model's thinking, and long arguments and results completely.")
@click.option("--after", metavar="POSITION", help="Start after this position; default: at the beginning.")
@click.pass_context
def command(ctx: click.Context, session: str, *, full: bool, after: str | None) -> None:
    """Print a session as a conversation: messages, tool calls with their results, tokens and cost. At the end stand its
    state, why it is dead or tried again, and the calls that wait for a person, with the commands that answer them.

    The output is text also in a pipe. `lanebus tail --json` prints the entries for programs.

    \b
    Example: lanebus show support-42 | less -R
    """
    start = START if after is None else Cursor.parse(after)
    on_session(ctx, session, partial(_show, is_full=full, after=start))


async def _show(session: Session, *, is_full: bool, after: Cursor) -> None:
    head = await session.head()
    if not head.position:
        raise SessionEmpty(session.id)
    colours, columns = has_colours(), _columns()
    transcript = Transcript(session.id, columns, is_full=is_full)

    def say(line: Line) -> None:
        put(line, colours=colours)

    say(Line(session.id, "title"))
    facts = [
        *([f"agent {plain(head.agent)}"] if head.agent else []),
        f"{count(head.position)} entries",
        *([f"fork of {head.origin.session} at {head.origin.position}"] if head.origin else []),
        *(["closed"] if head.is_closed else []),
    ]
    say(Line(" · ".join(facts), "dim"))
    async with aclosing(session.read(after=after, until=head.position)) as envelopes:
        async for envelope in envelopes:
            for line in transcript.lines(envelope):
                say(line)
    for line in transcript.rest():
        say(line)
    say(Line(""))
    for line in await _end(session, head):
        say(line)
    sys.stdout.flush()


async def _end(session: Session, head: SessionHead) -> list[Line]:
    """Return what the session cost, what it does, and the calls that wait for a person."""
    usage, status = await look(session, USAGE), (await look(session, STATUS)).state
    work = (await FailedWorks(session.resources.log).read(session.id)).get(session.id)
    state = await look_at_state(session, head, work)
    total, activity = usage.state.total, doing(session.id, status)
    told = _WORK.get(activity, STATES[state]) if state == "working" else STATES[state]
    spent = f"{about(total.usage.estimated)}{count(total.usage.total_tokens)} tokens"
    cost = money(total.usage.cost.total if total.usage.cost else None)
    calls = f"{count(total.calls)} model call{'' if total.calls == 1 else 's'}"
    lines = [Line(f"{told} · {calls}, {spent}, cost {cost}" if total.calls else told, "dim")]
    if usage.counted_from is not None:
        lines.append(Line(counted_from(session.id, usage.counted_from), "dim"))
    if activity in {"paused", "handoff"}:
        lines.append(Line(f"  lanebus control {session.id} resume", "plain"))
    if work is not None and state in {"dead", "retrying"}:
        lines.append(Line(failure_text(work), "warn"))
    if state == "dead":
        lines.append(Line(f"  lanebus dead redrive --session {session.id}", "plain"))
    loop, decided = own_loop(session.id, status), decisions(status)
    for call in waiting_calls(loop) if loop is not None and activity != "idle" else ():
        if (command := decided.get(call.tool_call_id)) is not None:
            lines.append(Line(f"{plain(call.tool_name)} {decision_text(command)}", "warn"))
            continue
        lines.append(Line(f"{plain(call.tool_name)} waits for a person:", "warn"))
        lines += [Line(f"  {each}") for each in answer_commands(call, session.id)]
    return lines


def _columns() -> int:
    """Return the columns of a line of text, from the window or the variable COLUMNS."""
    try:
        window = int(os.environ.get("COLUMNS", "")) or _WIDEST
    except ValueError:
        window = os.get_terminal_size().columns if sys.stdout.isatty() else _WIDEST
    return max(_NARROWEST, min(window, _WIDEST))
