"""Fold what a list of sessions shows of each: its summary, what its agent does, and the calls that wait."""

from collections.abc import Mapping
from typing import Literal

from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.events import ToolWaiting
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.context.read_marks import deferred_positions, is_prompt, read_position
from lanebus.handlers.projections.agent_activity import doing, own_loop, waiting_calls
from lanebus.handlers.projections.agent_status import STATUS, Status
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.projection import Projected, load_stored, start_of
from lanebus.handlers.projections.sessions import SESSIONS, SessionLine

__all__ = (
    "CARD",
    "Asked",
    "CallToDecide",
    "Card",
    "CardState",
    "card_start",
    "card_state",
    "card_waits",
    "with_status",
)

CardState = Literal["working", "waiting", "queued", "failed", "idle", "paused", "closed"]
"""What a session does: `waiting` for a person, `queued` until a worker reads its newest message, `failed` in its newest
loop, `paused` until it is resumed."""


class Asked(Frozen):
    """When and where a call began to wait."""

    position: int
    time: float


class Card(Frozen):
    """The state of one session in a list."""

    line: SessionLine = SessionLine()
    status: Status = Status()
    asked: Mapping[str, Asked] = {}
    """tool call id → the newest question about the call, for the calls of the newest loop"""
    unread: int | None = None
    """position of the newest message of a user; None once a model has read it"""


class CallToDecide(Frozen):
    """A tool call that a person has yet to approve or deny."""

    event: ToolWaiting
    position: int
    """position of the question; 0 if it was trimmed before it was read"""
    since: float | None


def _evolve(card: Card, envelope: Envelope) -> Card:
    line, unread = SESSIONS.evolve(card.line, envelope), _unread(card.unread, envelope)
    return with_status(card, envelope).model_copy(update={"line": line, "unread": unread})


def with_status(card: Card, envelope: Envelope) -> Card:
    """Return the card after one more entry, changed in `status` and `asked` alone. Pure."""
    message = envelope.message
    if not isinstance(message, ExtensionMessage):
        return card
    status, asked = STATUS.evolve(card.status, envelope), card.asked
    if message.kind == ToolWaiting.KIND and status.loop is not None:
        before: Mapping[str, ToolWaiting] = {} if card.status.loop is None else card.status.loop.calls_waiting
        now = status.loop.calls_waiting
        here = Asked(position=envelope.position, time=envelope.time)
        asked = {
            call: here if before.get(call) is not event else card.asked.get(call, here) for call, event in now.items()
        }
    return card.model_copy(update={"status": status, "asked": asked})


def _unread(before: int | None, envelope: Envelope) -> int | None:
    if envelope.is_imported:
        return before
    if is_prompt(envelope):
        return envelope.position
    seen = read_position(envelope)
    is_read = before is not None and seen is not None and before <= seen and before not in deferred_positions(envelope)
    return None if is_read else before


def card_state(head: SessionHead, card: Card) -> CardState:
    """Return what a session does, in one word. Pure."""
    if head.is_closed:
        return "closed"
    match doing(head.session, card.status):
        case "waiting":
            return "waiting"
        case "paused" | "handoff":
            return "paused"
        case "model" | "tools":
            return "working"
        case "idle":
            loop = own_loop(head.session, card.status)
            # A loop that ended without an answer has tried the messages before it.
            if card.unread is not None and (loop is None or loop.position < card.unread):
                return "queued"
            return "failed" if loop is not None and loop.ended == "error" else "idle"


def card_waits(session: str, card: Card) -> tuple[CallToDecide, ...]:
    """Return the calls of a session that wait for a person, the oldest first. Pure."""
    loop = own_loop(session, card.status)
    if loop is None or not (loop.ended is None or loop.is_stopped):
        return ()
    waits: list[CallToDecide] = []
    for event in waiting_calls(loop):
        asked = card.asked.get(event.tool_call_id)
        position, since = (asked.position, asked.time) if asked is not None else (0, None)
        waits.append(CallToDecide(event=event, position=position, since=since))
    return tuple(waits)


async def card_start(session: Session, head: SessionHead) -> Projected[Card]:
    """Return the state from which the card of a session is folded.

    For a trimmed session, it is made of the stored `SESSIONS` and `STATUS`, if these are of the same position, so that
    trimmed entries are counted.

    Args:
        session: the session.
        head: its head.

    Raises:
        Unavailable: the server cannot be reached.
    """
    if head.trimmed:
        line, status = await load_stored(session, SESSIONS), await load_stored(session, STATUS)
        if line is not None and status is not None and line.cursor == status.cursor:
            return Projected(Card(line=line.state, status=status.state), line.cursor)
    start = await start_of(session, CARD)
    kept = head.cursor_at(head.trimmed)
    return Projected(start.state, kept, head.first_kept) if kept > start.cursor else start


CARD = projection("lanebus.card", version=1, forked=Card())(_evolve)
"""The card of a session. For a fork, it covers only the fork's own entries."""
