"""Fold a summary of each session, for a list of sessions."""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import TypedDict

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError, MessageError, SessionErased, is_of_session, require_all, require_instance
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.events import AgentEnded, TurnStarted, UsageSettled, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Usage
from lanebus.bus.wire.envelope import DecodeFailure, Envelope
from lanebus.handlers.cut_text import cut_text
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.estimates import Pending, added, settled, take_early, with_early
from lanebus.handlers.projections.projection import Projected, look
from lanebus.handlers.projections.summary_calls import summary_call
from lanebus.handlers.projections.views import Views
from lanebus.handlers.unseen import with_codes

__all__ = ("SESSIONS", "SessionLine", "session_lines")

TITLE_LENGTH = 80


class SessionLine(Frozen):
    """The summary of one session: its size, usage, title and times."""

    llm: int = 0
    """number of entries in the LLM lane"""
    extension: int = 0
    """number of entries in the extension lane"""
    turns: int = 0
    """number of turns"""
    usage: Usage = Usage()
    """the sum over all model calls. The cost is None until the cost of at least one call is known"""
    pending: Pending | None = None
    """the estimated part of the usage; None if no usage is estimated"""
    early: Mapping[str, Usage] = {}
    """message position → final usage, from each `UsageSettled` that comes before its message in the log"""
    title: str | None = None
    """start of the first user message with text, on one line, at most 80 characters; None if no such message exists"""
    first_activity: float | None = None
    """time of the first entry, seconds UTC by the server's clock"""
    last_activity: float | None = None
    """time of the last entry, seconds UTC by the server's clock"""
    open_loops: Mapping[str, int] = {}
    """loop id → highest known turn index plus one, for loops that have not ended"""


class _Changes(TypedDict, total=False):
    """Fields of `SessionLine` that one entry changes."""

    llm: int
    extension: int
    turns: int
    usage: Usage
    pending: Pending | None
    early: Mapping[str, Usage]
    title: str | None
    first_activity: float | None
    last_activity: float
    open_loops: Mapping[str, int]


async def session_lines(
    bus: Bus,
    views: Views | None = None,
    *,
    heads: Sequence[SessionHead] | None = None,
    failed: MutableMapping[str, BusError] | None = None,
) -> dict[str, Projected[SessionLine]]:
    """Return the summary of every session by session id, newest activity first. Erased sessions are left out, and so
    are sessions whose logs cannot be read.

    If the first entries of a session were trimmed before they were counted, the summary covers the remaining entries.
    `Projected.counted_from` is then the position of the first remaining entry.

    Args:
        bus: the bus whose sessions to list.
        views: cache of the summaries, for a process that lists the sessions repeatedly. None uses no cache.
        heads: only these sessions, in their order. None means all.
        failed: gets the error of each session whose log cannot be read, by session id. None means that these errors are
            not wanted.

    Raises:
        Unavailable: the server cannot be reached.
    """
    require_instance("bus", bus, Bus, "pass the Bus of `async with Bus.open() as bus`")
    require_instance("views", views, Views, "pass Views(), or None", is_optional=True)
    if heads is not None:
        require_all("heads", heads, SessionHead, "pass heads, such as `bus.sessions()` returns")
    lines: dict[str, Projected[SessionLine]] = {}
    for head in await bus.sessions() if heads is None else heads:
        try:
            lines[head.session] = await (views.look if views else look)(bus.session(head.session), SESSIONS)
        except BusError as error:
            if not is_of_session(error):
                raise
            if failed is not None and not isinstance(error, SessionErased):  # erased since the list was read
                failed[head.session] = error
    return lines


def _evolve(line: SessionLine, envelope: Envelope) -> SessionLine:
    changed: _Changes = {}
    if not isinstance(envelope.message, DecodeFailure):  # the time of an unreadable entry is not reliable
        changed["first_activity"] = envelope.time if line.first_activity is None else line.first_activity
        changed["last_activity"] = envelope.time
    if envelope.lane is Lane.LLM:
        changed["llm"] = line.llm + 1
    else:
        changed["extension"] = line.extension + 1
    match envelope.message:
        case UserMessage() as message if line.title is None:
            changed["title"] = _title(message.text_content())
        case AssistantMessage() as message:
            changed |= _call(line, envelope.position, message)
            changed |= _Changes(turns=line.turns + 1) if message.turn_id is None else _turn(line, message.turn_id)
        case ExtensionMessage(kind=TurnStarted.KIND | AgentEnded.KIND | UsageSettled.KIND) as message:
            changed |= _event(line, envelope.position, message)
        case message if call := summary_call(message):
            changed |= _call(line, envelope.position, call)
        case _:
            pass
    return line.model_copy(update=changed)


def _call(line: SessionLine, position: int, call: AssistantMessage) -> _Changes:
    """Return the fields that one more model call changes."""
    usage, early = take_early(line.early, position, call.usage)
    if usage is None:
        return {"early": early}
    total, pending = added(line.usage, line.pending, position, usage)
    return {"early": early, "usage": total, "pending": pending}


def _event(line: SessionLine, position: int, message: ExtensionMessage) -> _Changes:
    try:
        event = parse_event(message)
    except MessageError:
        return {}
    if isinstance(event, TurnStarted):
        return _turn(line, event.turn_id)
    if isinstance(event, UsageSettled):
        return _settle(line, position, event)
    if isinstance(event, AgentEnded):
        return {"open_loops": {loop: turns for loop, turns in line.open_loops.items() if loop != event.loop_id}}
    return {}


def _settle(line: SessionLine, position: int, event: UsageSettled) -> _Changes:
    if line.pending is None or str(event.message) not in line.pending.estimates:
        return {"early": with_early(line.early, position, event)}
    usage, pending = settled(line.pending, event)
    return {"usage": usage, "pending": pending}


def _turn(line: SessionLine, turn_id: TurnId) -> _Changes:
    """Count a turn, unless an event or message of this turn was counted already."""
    if turn_id.turn_index < line.open_loops.get(turn_id.loop_id, 0):
        return {}
    return {
        "turns": line.turns + 1,
        "open_loops": {**line.open_loops, turn_id.loop_id: turn_id.turn_index + 1},
    }


def _title(text: str) -> str | None:
    """Return the start of the text on one line, invisible characters as codes; None if it has only white space."""
    # Only the start is processed: a user's text may be megabytes.
    line = with_codes(" ".join(text[: TITLE_LENGTH * 20].split()))
    return (line if len(line) <= TITLE_LENGTH else cut_text(line, TITLE_LENGTH - 1).rstrip() + "…") or None


SESSIONS = projection("sessions", version=3, forked=SessionLine())(_evolve)
"""The summary of a session. For a fork, the summary covers only the fork's own entries."""
