"""Fold what a list of sessions shows of each: its summary, what its agent does, and the calls that wait."""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Literal, NamedTuple, TypedDict

from lanebus.bus import Bus, FailedWork, Session, SessionHead, read_leases
from lanebus.bus.errors import BusError, MessageError, SessionErased, is_of_session
from lanebus.bus.messages import (
    AgentEnded,
    AgentStarted,
    AssistantMessage,
    ExtensionMessage,
    Frozen,
    Lane,
    ToolStarted,
    ToolWaiting,
    TurnId,
    TurnStarted,
    Usage,
    UsageSettled,
    UserMessage,
    parse_event,
)
from lanebus.bus.wire import DecodeFailure, Envelope
from lanebus.handlers.context import cut_text, deferred_positions, is_prompt, read_position
from lanebus.handlers.projections.agent_status import STATUS, Command, Status, decisions, doing, own_loop, waiting_calls
from lanebus.handlers.projections.all_sessions import Views
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.folding import Projected, load_stored, look, start_of
from lanebus.handlers.projections.unseen import with_codes
from lanebus.handlers.projections.usage import Pending, added, settled, summary_call, take_early, with_early

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


# What a session does. `session_state` is the one opinion on it: lists, heads and the page have it from here.

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


def _evolve_card(card: Card, envelope: Envelope) -> Card:
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

CARD = projection("lanebus.card", version=3, forked=Card())(_evolve_card)
"""The card of a session. For a fork, it covers only the fork's own entries."""
