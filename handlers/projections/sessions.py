"""One line a session: what a list of sessions shows."""

from collections.abc import Mapping
from contextlib import suppress

from lanebus.bus.bus import Bus
from lanebus.bus.errors import MessageError, SessionErased
from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.events import AgentEnded, TurnStarted, UsageSettled, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import AssistantMessage, UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Usage
from lanebus.bus.wire.envelope import DecodeFailure, Envelope
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.estimates import Pending, added, settled, take_early, with_early
from lanebus.handlers.projections.projection import Projected, look
from lanebus.handlers.projections.summary_calls import summary_call
from lanebus.handlers.projections.views import Views

__all__ = ("SESSIONS", "SessionLine", "session_lines")

TITLE_LENGTH = 80


class SessionLine(Frozen):
    """What there is to say of a session in a line."""

    llm: int = 0
    """entries of the LLM lane"""
    extension: int = 0
    """entries of the extension lane"""
    turns: int = 0
    usage: Usage = Usage()
    """the sum over all model calls; its cost is None as long as no call's cost is known"""
    pending: Pending | None = None
    """what of the usage is estimated; None where nothing is"""
    early: Mapping[str, Usage] = {}
    """settlements of usage whose messages have not come"""
    title: str | None = None
    """the beginning of the first text a user said, on one line, at most 80 characters"""
    first_activity: float | None = None
    """seconds UTC by the server's clock"""
    last_activity: float | None = None
    open_loops: Mapping[str, int] = {}
    """how many turns of a loop were seen, for loops that have not ended"""


async def session_lines(bus: Bus, views: Views | None = None) -> dict[str, Projected[SessionLine]]:
    """The line of every session by its id, newest activity first. Where a session's beginning was trimmed away before
    it was counted, its line is of what is left; `Projected.counted_from` says where that begins.

    Args:
        views: where a process that lists the sessions again and again keeps their lines; None folds each log anew.

    Raises:
        BusError: a log could not be read.
    """
    lines: dict[str, Projected[SessionLine]] = {}
    for head in await bus.sessions():
        with suppress(SessionErased):  # meanwhile
            lines[head.session] = await (views.look if views else look)(bus.session(head.session), SESSIONS)
    return lines


def _evolve(line: SessionLine, envelope: Envelope) -> SessionLine:
    changed: dict[str, object] = {}
    if not isinstance(envelope.message, DecodeFailure):  # which has no time that could be believed
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
            changed |= {"turns": line.turns + 1} if message.turn_id is None else _turn(line, message.turn_id)
        case ExtensionMessage(kind=TurnStarted.KIND | AgentEnded.KIND | UsageSettled.KIND) as message:
            changed |= _event(line, envelope.position, message)
        case message if call := summary_call(message):
            changed |= _call(line, envelope.position, call)
        case _:
            pass
    return line.model_copy(update=changed)


def _call(line: SessionLine, position: int, call: AssistantMessage) -> dict[str, object]:
    """What one model call more changes."""
    usage, early = take_early(line.early, position, call.usage)
    if usage is None:
        return {"early": early}
    total, pending = added(line.usage, line.pending, position, usage)
    return {"early": early, "usage": total, "pending": pending}


def _event(line: SessionLine, position: int, message: ExtensionMessage) -> dict[str, object]:
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


def _settle(line: SessionLine, position: int, event: UsageSettled) -> dict[str, object]:
    if line.pending is None or str(event.message) not in line.pending.estimates:
        return {"early": with_early(line.early, position, event)}
    usage, pending = settled(line.pending, event)
    return {"usage": usage, "pending": pending}


def _turn(line: SessionLine, turn_id: TurnId) -> dict[str, object]:
    """One turn more, unless its event or its message was seen before."""
    if turn_id.turn_index < line.open_loops.get(turn_id.loop_id, 0):
        return {}
    return {
        "turns": line.turns + 1,
        "open_loops": {**line.open_loops, turn_id.loop_id: turn_id.turn_index + 1},
    }


def _title(text: str) -> str | None:
    """The text's beginning on one line, without anything a terminal would obey; None if nothing is left."""
    # What is cut away is not looked at: a user's text may be megabytes.
    words = " ".join(text[: TITLE_LENGTH * 20].split())
    line = "".join(character for character in words if character.isprintable())
    return (line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…") or None


SESSIONS = projection("sessions", version=3, forked=SessionLine())(_evolve)
"""Of a fork its own entries alone."""
