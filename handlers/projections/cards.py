"""Fold what a list of sessions shows of each: its summary, what its agent does, and the calls that wait.

`session_state` is the one opinion on what a session does: lists, heads and the page have it from here.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from lanebus.bus.groups.failed_work import FailedWork
from lanebus.bus.groups.lease_status import read_leases
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.events import AgentStarted, ToolStarted, ToolWaiting, TurnStarted
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.context.read_marks import deferred_positions, is_prompt, read_position
from lanebus.handlers.projections.agent_activity import decisions, doing, own_loop, waiting_calls
from lanebus.handlers.projections.agent_status import STATUS, Command, Status
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.projection import Projected, load_stored, look, start_of
from lanebus.handlers.projections.sessions import SESSIONS, SessionLine
from lanebus.handlers.projections.views import Views

__all__ = (
    "CARD",
    "SIGNS",
    "Asked",
    "CallToDecide",
    "Card",
    "CardState",
    "Logged",
    "Signs",
    "card_start",
    "card_waits",
    "logged",
    "look_at_state",
    "session_state",
    "with_status",
)

CardState = Literal["working", "waiting", "queued", "retrying", "failed", "dead", "idle", "paused", "handoff", "closed"]
"""What a session does.

`waiting`: for a person. `queued`: until a worker reads its newest message or decision, or continues its loop after the
worker was lost. `retrying`: workers try it again after an attempt that failed. `failed`: its newest loop did. `dead`:
workers gave it up, and it has a dead letter. `paused`: until it is resumed. `handoff`: a person has it.
"""

_SIGNS_OF_LIFE = frozenset({AgentStarted.KIND, TurnStarted.KIND, ToolStarted.KIND})


class Asked(Frozen):
    """When and where a call began to wait."""

    position: int
    time: float


class Signs(Frozen):
    """What an agent has left to do in a session, and when it last did something, beside its `Status`."""

    unread: int | None = None
    """position of the newest message of a user; None once a model has read it"""
    acted: float = 0.0
    """time at which an agent last began a loop, a turn or a tool, or answered; seconds UTC by the server's clock"""
    has_failed: bool = False
    """whether the newest answer outside of loops is the record of a failure"""


class Card(Frozen):
    """The state of one session in a list."""

    line: SessionLine = SessionLine()
    status: Status = Status()
    asked: Mapping[str, Asked] = {}
    """tool call id → the newest question about the call, for the calls of the newest loop"""
    signs: Signs = Signs()


class Logged(NamedTuple):
    """What the log alone tells of a session's state."""

    state: CardState
    unread: int | None
    """as in `Signs`"""
    acted: float
    """as in `Signs`"""


class CallToDecide(Frozen):
    """A tool call that waits for the approval or denial of a person, or that a worker has yet to apply it to."""

    event: ToolWaiting
    position: int
    """position of the question; 0 if it was trimmed before it was read"""
    since: float | None
    decision: Command | None = None
    """the approval or denial that no worker has applied yet; None if nobody has decided"""


def _evolve(card: Card, envelope: Envelope) -> Card:
    line, signs = SESSIONS.evolve(card.line, envelope), SIGNS.evolve(card.signs, envelope)
    return with_status(card, envelope).model_copy(update={"line": line, "signs": signs})


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


def _on_sign(signs: Signs, envelope: Envelope) -> Signs:
    if envelope.is_imported:
        return signs
    unread, acted, has_failed = _unread(signs.unread, envelope), signs.acted, signs.has_failed
    match envelope.message:
        case AssistantMessage(turn_id=turn_id, stop_reason=stop_reason):
            acted, has_failed = envelope.time, turn_id is None and stop_reason == "error"
        case ExtensionMessage(kind=kind) if kind in _SIGNS_OF_LIFE:
            acted, has_failed = envelope.time, has_failed and kind != AgentStarted.KIND
        case _ if unread == signs.unread:
            return signs
        case _:
            pass
    return signs.model_copy(update={"unread": unread, "acted": acted, "has_failed": has_failed})


def _unread(before: int | None, envelope: Envelope) -> int | None:
    if is_prompt(envelope):
        return envelope.position
    seen = read_position(envelope)
    is_read = before is not None and seen is not None and before <= seen and before not in deferred_positions(envelope)
    return None if is_read else before


def logged(session: str, status: Status, signs: Signs) -> Logged:
    """Return what the log tells of a session's state. Pure."""
    return Logged(_logged_state(session, status, signs), signs.unread, signs.acted)


def _logged_state(session: str, status: Status, signs: Signs) -> CardState:
    match doing(session, status):
        case "model" | "tools":
            return "working"
        case "idle":
            loop = own_loop(session, status)
            # A loop that ended without an answer has tried the messages before it.
            if signs.unread is not None and (loop is None or loop.position < signs.unread):
                return "queued"
            return "failed" if signs.has_failed or (loop is not None and loop.ended == "error") else "idle"
        case activity:
            return activity


def session_state(head: SessionHead, log: Logged, work: FailedWork | None, *, is_left: bool) -> CardState:
    """Return what a session does, in one word. Pure.

    Args:
        head: the session's head.
        log: what its log tells.
        work: its failed work; None if it has none.
        is_left: whether its last lease is over, so no worker or recorder works on its open loop. False if it never had
            a lease: a program may write loops without one.
    """
    if head.is_closed:
        return "closed"
    state = "queued" if log.state == "working" and is_left else log.state
    if work is None:
        return state
    if work.is_dead:
        # Workers get the session again with a later message, and an agent may have worked on it since.
        is_over = (log.unread or 0) > work.position or log.acted > work.time
        return state if is_over else "dead"
    if state in {"waiting", "paused", "handoff"} or (state == "working" and work.is_held):
        return state
    return "retrying" if work.attempts or work.delay else "queued"


def card_waits(session: str, card: Card) -> tuple[CallToDecide, ...]:
    """Return the calls of a session that wait for a decision or for its effect, the oldest first. Pure."""
    loop = own_loop(session, card.status)
    if loop is None or not (loop.ended is None or loop.is_stopped):
        return ()
    waits, decided = list[CallToDecide](), decisions(card.status)
    for event in waiting_calls(loop):
        asked = card.asked.get(event.tool_call_id)
        position, since = (asked.position, asked.time) if asked is not None else (0, None)
        decision = decided.get(event.tool_call_id)
        waits.append(CallToDecide(event=event, position=position, since=since, decision=decision))
    return tuple(waits)


async def look_at_state(
    session: Session, head: SessionHead, work: FailedWork | None, views: Views | None = None
) -> CardState:
    """Return what a session does, as a list of sessions tells it.

    Args:
        session: the session.
        head: its head.
        work: its failed work, of `Bus.failed_work`; None if it has none.
        views: a cache of states; None reads the whole session.

    Raises:
        BusError: the log could not be read.
    """
    if views is None:
        status, signs = await look(session, STATUS), await look(session, SIGNS)
    else:
        status, signs = await views.look(session, STATUS), await views.look(session, SIGNS)
    log, bus = logged(session.id, status.state, signs.state), session.resources.log
    is_left = log.state == "working" and (await read_leases(bus.pool, bus.keys, [session.id]))[0].is_over
    return session_state(head, log, work, is_left=is_left)


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


SIGNS = projection("lanebus.signs", version=1, forked=Signs(), kinds={"user", "assistant", *_SIGNS_OF_LIFE})(_on_sign)
"""The signs of life of a session's agent. For a fork, they cover only the fork's own entries."""

CARD = projection("lanebus.card", version=2, forked=Card())(_evolve)
"""The card of a session. For a fork, it covers only the fork's own entries."""
