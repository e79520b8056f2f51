"""Ask an agent and wait for its answer; and commands to a running agent: abort, steer, approve, pause, resume."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeVar, get_args

import anyio
from pydantic import JsonValue, ValidationError
from pydantic.alias_generators import to_snake

from lanebus.bus import Session, read_live_workers
from lanebus.bus.errors import (
    BusError,
    Conflict,
    CursorTrimmed,
    DecodeError,
    InvalidArgument,
    KeyTooLong,
    MessageError,
    SessionClosed,
    UnknownKind,
    require_instance,
    require_seconds,
    require_text,
)
from lanebus.bus.messages import (
    CONTROLS,
    Abort,
    AgentEnded,
    AgentStarted,
    Approve,
    AssistantMessage,
    Compact,
    Control,
    ControlAnswered,
    Delta,
    Deny,
    ExtensionMessage,
    Handoff,
    Lane,
    Pause,
    Publishable,
    Resume,
    Steer,
    StopReason,
    ToolStarted,
    ToolWaiting,
    TurnId,
    UserMessage,
    parse_event,
)
from lanebus.bus.wire import START, Cursor, DecodeFailure, Envelope, Notice, Receipt, ReservedKey, check_key
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds
from lanebus.handlers.agent.errors import (
    UNKNOWN_DELAY,
    AnswerTimeout,
    CallDecided,
    Delay,
    LoopAborted,
    LoopFailed,
    PersonNeeded,
)
from lanebus.handlers.agent.turn.loop_state import FOLLOW_UP, is_cut, wanted_calls
from lanebus.handlers.context import deferred_positions, read_position
from lanebus.handlers.projections import STATUS, STATUS_KINDS, LoopStatus, Projected, Status, earlier_decision, look

# The last answer of a loop and the end of its work, collected from the session's entries as they are followed.

ENDING_KINDS: Final = frozenset({"assistant", "user", AgentStarted.KIND, AgentEnded.KIND})
"""kinds of the messages that `LastAnswer.follow` reads"""

CONTINUED: Final = frozenset({"paused", "handoff", "contextCompacted"})
"""stop reasons after which the next loop continues the work of the loop that ended"""

_WITH_NOTE = frozenset({"guardRail", "maxTurns"})
"""stop reasons for which the loop's final note contains the explanation"""


class WorkEnd(NamedTuple):
    """How the work on a session's messages ended."""

    stop_reason: StopReason
    loop_id: str | None
    """id of the last loop; None if no loop began"""


@dataclass
class LastAnswer:
    """Keeps the latest answer and, if it came later, the loop's final note, which says why the loop ended."""

    message: AssistantMessage | None = None
    note: UserMessage | None = None
    is_open: bool = False
    """whether `follow` has read the start of a loop, and not its end"""

    def follow(self, envelope: Envelope) -> WorkEnd | None:
        """Read the session's next entry, of `ENDING_KINDS` at least. Return how the work ended if this entry ends it.

        A loop ends the work unless another loop continues it. Some work ends while no loop is open, so the log has no
        `AgentEnded` for it, only an answer: an abort before the first loop or after a pause, the failure of an agent
        between loops, and each answer of an agent that is a function.
        """
        message = None if envelope.is_imported else envelope.message
        match message:
            case AssistantMessage():
                if is_cut(message):  # the next turn answers the same messages
                    return None
                self.add(message)
                is_whole = message.turn_id is None and not self.is_open and not wanted_calls(message)
                loop_id = None if message.turn_id is None else message.turn_id.loop_id
                return WorkEnd(message.stop_reason, loop_id) if message.is_failed or is_whole else None
            case UserMessage():
                self.add(message)
            case ExtensionMessage(kind=AgentStarted.KIND | AgentEnded.KIND):
                return self._follow_loop(message)
            case _:
                pass
        return None

    def _follow_loop(self, message: ExtensionMessage) -> WorkEnd | None:
        try:
            event = parse_event(message)
        except MessageError:  # any client can publish an event that cannot be read
            return None
        self.is_open = isinstance(event, AgentStarted)
        if not isinstance(event, AgentEnded) or event.stop_reason in CONTINUED:
            return None
        return WorkEnd(event.stop_reason, event.loop_id)

    def add(self, message: Publishable | Delta | DecodeFailure) -> None:
        """Read the session's next message. Messages other than answers and final notes are ignored."""
        match message:
            case AssistantMessage():
                self.message, self.note = message, None
            case UserMessage(turn_id=TurnId()):
                self.note = message
            case _:
                pass

    def fault(self, stop_reason: StopReason) -> str | None:
        """Return why a loop with this stop reason gave no answer; None if no reason is recorded.

        After `guardRail` or `maxTurns`, the reason is the loop's final note, otherwise the error of a failed answer.
        Note and error are in the LLM lane, so another model may see them.
        """
        if self.note is not None and stop_reason in _WITH_NOTE:
            return self.note.text_content()
        return self.message.error_message if self.message is not None and self.message.is_failed else None


_KINDS = STATUS_KINDS | ENDING_KINDS


async def ask(
    session: Session, said: str | UserMessage, *, key: str | None = None, seconds: float | None = None
) -> AssistantMessage:
    """Publish a user message, and wait for the end of the loop that answers it. A worker has to run.

    Cancelling `ask` leaves open whether the message was published. A published message is answered as usual. Ask again
    with the same `key` to get the answer either way.

    To see the answer while the model writes it, use `Session.publish` and `Session.follow(live=True)`.

    Args:
        session: the session.
        said: the message.
        key: idempotency key. A repeat with the same key publishes nothing. It returns the answer to the first message,
            and waits for that answer if necessary.
        seconds: longest time to wait for the answer. None means no limit.

    Returns:
        The loop's final answer. Its `stop_reason` is "length" if the answer reached its token limit.

    Raises:
        InvalidArgument: `said` is neither a text nor a user message. Nothing was published.
        LoopFailed: the model or the agent failed, a limit was reached, or a guard rejected the message.
        LoopAborted: a command aborted the loop, so the message is not answered.
        PersonNeeded: a tool call waits for approval, or the session is paused or handed off.
        AnswerTimeout: no answer within `seconds`. The error says why, such as that no worker serves the agent.
        SessionClosed: the session is closed, or was closed before an answer.
        SessionErased: the session was erased.
        LogRolledBack: the log lost its newest entries, which may include the message.
        BusError: as for `Session.publish` and `Session.follow`.
    """
    require_seconds("seconds", seconds, is_optional=True)
    asked = await session.publish(as_user_message(said), key=key)
    with anyio.move_on_after(seconds):
        return await _answer(session, asked)
    raise AnswerTimeout(session.id, asked.position, seconds or 0.0, await find_delay(session))


async def _answer(session: Session, asked: Receipt) -> AssistantMessage:
    # Read the status before following: at `caughtUp`, every entry that the status covers has then been followed.
    status = await look(session, STATUS)
    question, is_caught_up = _Question(session.id, asked.position, status), False
    async with aclosing(session.subscribe(kinds=_KINDS, after=asked.cursor)) as items:
        async for item in items:
            if isinstance(item, Notice):
                if item.kind == "closed":
                    raise SessionClosed(session.id)
                is_caught_up = is_caught_up or item.kind == "caughtUp"
            elif (answer := question.follow(item)) is not None:
                return answer
            if is_caught_up:
                question.check_person()
    raise AssertionError("subscribe ends only with an error")


class _Question:
    """A user message, and the state of its answer as of the entries followed so far."""

    def __init__(self, session: str, position: int, known: Projected[Status]) -> None:
        """
        Args:
            known: the session's status; it may be older than the message.
        """
        self._session, self._position = session, position
        self._status, self._known_up_to = known.state, known.position
        self._last = LastAnswer()
        """last answer of the loop that answers the message; empty until a model has read the message"""
        self._calls: set[str] = set()
        """ids of the tool calls that models made after the message"""

    def follow(self, envelope: Envelope) -> AssistantMessage | None:
        """Return the answer if this entry ends the loop that answers the message.

        Raises:
            LoopFailed: the loop ended without an answer.
            LoopAborted: the loop was aborted.
        """
        if envelope.position > self._known_up_to:
            self._status = STATUS.evolve(self._status, envelope)
        if envelope.is_imported:
            return None
        message = envelope.message
        if isinstance(message, AssistantMessage):
            self._calls |= {call.id for call in message.tool_calls()}
        # A user message that counts is the note that ends a loop.
        if isinstance(message, AssistantMessage | UserMessage) and not self._is_read(envelope):
            return None
        ended = self._last.follow(envelope)
        return None if ended is None else self._follow_end(ended.stop_reason)

    def check_person(self) -> None:
        """Raise if the answer waits for a person, unless a command is unanswered: the command may end the wait.

        Raises:
            PersonNeeded: a tool call waits for approval, or the session is paused or handed off.
        """
        status = self._status
        if status.commands:
            return
        waiting = () if status.loop is None or status.loop.ended is not None else self._waiting(status.loop)
        if waiting or status.halted is not None:
            raise PersonNeeded(self._session, self._position, waiting)

    def _waiting(self, loop: LoopStatus) -> tuple[ToolWaiting, ...]:
        """Return the calls that delay the answer until approval. The loop skips calls made before the message."""
        done = loop.calls_answered.keys() | loop.calls_ended.keys()
        return tuple(each for call, each in loop.calls_waiting.items() if call in self._calls - done)

    def _is_read(self, envelope: Envelope) -> bool:
        """Whether the model had read the message when it wrote this entry."""
        read_up_to = read_position(envelope)
        return (
            read_up_to is not None
            and self._position <= read_up_to
            and (self._position not in deferred_positions(envelope))
        )

    def _follow_end(self, stop_reason: StopReason) -> AssistantMessage | None:
        last = self._last
        if last.message is None and last.note is None:
            return None
        if stop_reason == "aborted":
            raise LoopAborted(self._session, self._position)
        fault = last.fault(stop_reason)
        if fault is None and last.message is not None and not last.message.is_failed:
            return last.message
        text = "the agent failed" if stop_reason == "error" else f"the loop ended with {stop_reason}"
        raise LoopFailed(self._session, self._position, stop_reason, fault or text)


async def find_delay(session: Session, *, bounds: RunBounds = DEFAULT_RUN_BOUNDS) -> Delay:
    """Return why the session's agent has not answered yet. An error of the bus, or a slow server, is "unknown"."""
    with anyio.move_on_after(bounds.delay_seconds):
        try:
            return await _find(session)
        except BusError:
            pass
    return UNKNOWN_DELAY


async def _find(session: Session) -> Delay:
    log, agent = session.resources.log, (await session.head()).agent
    if agent not in await read_live_workers(log, None):
        return Delay("unserved", f"no worker serves the agent {agent!r}")
    loop = (await look(session, STATUS)).state.loop
    if loop is None or loop.ended is not None or loop.loop_id.partition(".")[0] != session.id:
        return Delay("waiting", f"a worker serves the agent {agent!r}, but has not begun with it")
    running = await _running_tools(session, loop)
    if not running and loop.calls_waiting.keys() - loop.calls_answered.keys():
        return Delay("waiting", f"a worker serves the agent {agent!r}, and the running turn waits for a person")
    tools = f", in which {' and '.join(running)} {'runs' if len(running) == 1 else 'run'}" if running else ""
    return Delay("running", f"it waits for the running turn{tools}")


async def _running_tools(session: Session, loop: LoopStatus) -> list[str]:
    """Return the names of the turn's tools that were started and have not ended."""
    started = [at for call, at in loop.calls_started.items() if call not in loop.calls_ended]
    if not started:
        return []
    names: list[str] = []
    lanes, kinds = {Lane.EXTENSION}, {ToolStarted.KIND}
    async for envelope in session.read(lanes=lanes, kinds=kinds, after=Cursor(min(started) - 1), until=max(started)):
        if envelope.position in started and isinstance(envelope.message, ExtensionMessage):
            try:
                event = parse_event(envelope.message)
            except MessageError:
                continue
            if isinstance(event, ToolStarted):
                names.append(event.tool_name)
    return sorted({*names})


def as_user_message(said: object) -> UserMessage:
    """Return `said` as a user message.

    Raises:
        InvalidArgument: `said` is neither a text nor a user message. A message of another type would wake no worker.
    """
    if isinstance(said, str):
        return UserMessage.text(said)
    if not isinstance(said, UserMessage):
        raise InvalidArgument("said", said, "pass a text, or a UserMessage")
    return said


async def abort(
    session: Session,
    *,
    loop_id: str | None = None,
    when: Literal["now", "turn"] = "now",
    reason: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """End the running loop. Messages that were sent before this command are not answered.

    Args:
        session: the session.
        loop_id: abort only this loop; None aborts any open loop.
        when: "now" cuts the model's answer and cancels tools. "turn" lets the current turn finish first.
        reason: recorded in the log.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Returns:
        The command's position, for `answered`.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, make_control(Abort, loop_id=loop_id, when=when, reason=reason, by=by), key=key)


async def steer(
    session: Session,
    said: str | UserMessage,
    *,
    when: Literal["next", "now"] = "next",
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """Send a user message to the running loop. If no loop is running, the message is answered like any other.

    Args:
        session: the session.
        said: the message.
        when: "next" puts it into the next request to the model. "now" also cuts the current answer and skips tools that
            are still running.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Returns:
        The positions of the message and of the command.

    Raises:
        Conflict: other clients appended first, 1,000 times in a row.
        BusError: as for `Session.publish`.
    """
    return await send(
        session, make_control(Steer, position=UNKNOWN_POSITION, when=when, by=by), as_user_message(said), key=key
    )


async def follow_up(
    session: Session, said: str | UserMessage, *, key: str | None = None, agent: str | None = None
) -> Receipt:
    """Send a user message that waits until the running loop has ended.

    If no loop is running, the message is answered at once.

    Args:
        session: the session.
        said: the message.
        key: idempotency key; a repeat with the same key adds nothing. No other message of the session may have this
            key.
        agent: as for `Session.publish`.

    Raises:
        BusError: as for `Session.publish`.
    """
    message = as_user_message(said)
    follow_up = message.model_copy(update={"metadata": {**(message.metadata or {}), FOLLOW_UP: True}})
    return await session.publish(follow_up, key=key, agent=agent)


async def approve(
    session: Session,
    turn_id: TurnId | str,
    tool_call_id: str,
    *,
    call_hash: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """Approve a tool call that waits for a person, so that it runs.

    The call's `ToolWaiting` event contains `turn_id` and `tool_call_id`.

    Args:
        session: the session.
        turn_id: the turn of the call. A text such as "support-42.main.3#0" or "main.3#0" is accepted too.
        tool_call_id: the call's id.
        call_hash: `ToolCallBlock.call_hash` of the call that the person saw; a call with another hash is not approved.
            None approves the call unseen.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        InvalidArgument: `call_hash` is a text that is not a SHA-256 in hex.
        DecodeError: `turn_id` is a text that is not a turn id.
        BusError: as for `Session.publish`.
    """
    turn = read_turn_id(session, turn_id)
    return await send(
        session, make_control(Approve, turn_id=turn, tool_call_id=tool_call_id, call_hash=call_hash, by=by), key=key
    )


async def deny(
    session: Session,
    turn_id: TurnId | str,
    tool_call_id: str,
    *,
    reason: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """Refuse a tool call that waits for a person. The model reads that the call was denied, but not the reason.

    Args:
        session: the session.
        turn_id: the turn of the call. A text such as "support-42.main.3#0" or "main.3#0" is accepted too.
        tool_call_id: the call's id.
        reason: recorded in the log. To give the model a reason, send it a user message.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        DecodeError: `turn_id` is a text that is not a turn id.
        BusError: as for `Session.publish`.
    """
    turn = read_turn_id(session, turn_id)
    return await send(
        session, make_control(Deny, turn_id=turn, tool_call_id=tool_call_id, reason=reason, by=by), key=key
    )


async def decide_call(
    session: Session,
    control: Approve | Deny,
    *,
    key: str | None = None,
    agent: str | None = None,
    status: Callable[[], Awaitable[Projected[Status]]] | None = None,
) -> Receipt:
    """Publish an approval or denial if the log has none for this call yet.

    `approve` and `deny` publish in any case, and a worker answers a second command as late. This function is for
    people: a person who decides after another one is told so, even if no worker runs.

    Args:
        session: the session.
        control: the command.
        key: idempotency key; a repeat of this command with the same key adds nothing, and is not refused.
        agent: as for `Session.publish`.
        status: reads the session's `STATUS`, for example from a cache; None reads the log.

    Raises:
        CallDecided: another command has decided about the call, whether or not a worker has applied it.
        Conflict: other clients appended first, 1,000 times in a row.
        BusError: the log could not be read, or as for `Session.publish`.
    """
    require_instance("control", control, (Approve, Deny), "pass Approve(…) or Deny(…)")
    for attempt in range(DEFAULT_RUN_BOUNDS.publish_attempts):
        now = await (look(session, STATUS) if status is None else status())
        first = earlier_decision(now.state, control)
        try:
            if first is None:
                return await send(session, control, key=key, agent=agent, expected=now.cursor)
            if key is not None:  # before the first entry, only a repeat succeeds
                return await send(session, control, key=key, agent=agent, expected=START)
        except Conflict:
            if first is None and attempt == DEFAULT_RUN_BOUNDS.publish_attempts - 1:
                raise
        if first is not None:
            raise CallDecided(session.id, control.tool_call_id, first.decision, first.by, first.position)
    raise AssertionError


async def pause(
    session: Session, *, reason: str | None = None, by: str | None = None, key: str | None = None
) -> Receipt:
    """Stop after the current turn. User messages wait until `resume`.

    Args:
        session: the session.
        reason: recorded in the log.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, make_control(Pause, reason=reason, by=by), key=key)


async def handoff(
    session: Session,
    *,
    to: str | None = None,
    reason: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> Receipt:
    """Stop after the current turn and hand the session to a person until `resume`.

    Args:
        session: the session.
        to: name of the person.
        reason: recorded in the log.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, make_control(Handoff, to=to, reason=reason, by=by), key=key)


async def resume(session: Session, *, by: str | None = None, key: str | None = None) -> Receipt:
    """Continue after `pause` or `handoff`: run the open tool calls, then answer the user messages sent meanwhile.

    Args:
        session: the session.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, make_control(Resume, by=by), key=key)


async def request_compaction(session: Session, *, by: str | None = None, key: str | None = None) -> Receipt:
    """Ask the agent to compact its context before the next turn, even if the context is short.

    An agent without a compactor refuses the command. To publish a summary of your own, call `lanebus.context.compact`.

    Args:
        session: the session.
        by: name of the sender, recorded in the log.
        key: idempotency key; a repeat of this command with the same key adds nothing.

    Raises:
        BusError: as for `Session.publish`.
    """
    return await send(session, make_control(Compact, by=by), key=key)


async def send(
    session: Session,
    control: Control,
    said: str | UserMessage | None = None,
    *,
    key: str | None = None,
    agent: str | None = None,
    expected: Cursor | None = None,
) -> Receipt:
    """Publish a command. The functions for single commands, such as `abort`, call this function.

    Args:
        session: the session.
        control: the command, for example from `read_control`.
        said: the user message of a `Steer`. `send` sets `Steer.position` to the position of this message. Ignored for
            other commands.
        key: idempotency key; a repeat of this command with the same key adds nothing.
        agent: as for `Session.publish`.
        expected: as for `Session.publish`. A `Steer` with a message has a cursor of its own instead.

    Returns:
        The positions of the published messages; the last position is the command's.

    Raises:
        Conflict: the session has moved on from `expected`; or, for a `Steer`, other clients appended first, 1,000 times
            in a row.
        BusError: as for `Session.publish`.
    """
    require_instance("control", control, Control, "pass a command, such as Abort()")
    require_text("key", key, is_optional=True, is_filled=True)
    check_key(key)
    message = as_user_message(said) if isinstance(control, Steer) and said is not None else None
    # In the log, messages and commands share one space of keys.
    prefix = ReservedKey(f"{control.KIND}:")
    try:
        stored = None if key is None else ReservedKey(f"{control.KIND}:{key}")
        return await _publish(session, control, message, key=stored, agent=agent, expected=expected)
    except KeyTooLong as error:
        raise KeyTooLong(error.size_bytes - len(prefix), error.limit_bytes - len(prefix)) from None


async def _publish(
    session: Session,
    control: Control,
    message: UserMessage | None,
    *,
    key: ReservedKey | None,
    agent: str | None,
    expected: Cursor | None,
) -> Receipt:
    """Publish a command under a stored key. A command with a message gets the message's position."""
    if message is None or not isinstance(control, Steer):
        return await session.publish(control.as_extension(), key=key, agent=agent, expected=expected)
    last = (await session.head()).cursor
    for attempt in range(DEFAULT_RUN_BOUNDS.publish_attempts):
        placed = control.model_copy(update={"position": last.position + 1})
        try:
            return await session.publish(message, placed.as_extension(), key=key, expected=last, agent=agent)
        except Conflict as conflict:
            if attempt == DEFAULT_RUN_BOUNDS.publish_attempts - 1:
                raise
            last = Cursor(conflict.found)
    raise AssertionError


async def answered(session: Session, command: Receipt, *, seconds: float | None = None) -> ControlAnswered:
    """Wait until a worker has answered a command, and return the answer with its outcome and reason.

    Args:
        session: the session.
        command: the receipt that sending the command returned.
        seconds: longest time to wait. None waits until a worker runs and answers.

    Raises:
        InvalidArgument: the receipt is of a message and not of a command. No worker answers it as a command.
        AnswerTimeout: no worker answered within `seconds`. The command stays in the log. The error says why, such as
            that the command waits for a running turn.
        SessionClosed: the session was closed before a worker answered.
        LogRolledBack: the log lost its newest entries, and the command with them.
        StreamError: as for `Session.follow`.
        Unavailable: as for `Session.follow`.
        Closed: as for `Session.follow`.
    """
    require_seconds("seconds", seconds, is_optional=True)
    lanes, kinds = {Lane.EXTENSION}, {ControlAnswered.KIND}
    with anyio.move_on_after(seconds):
        await _require_command(session, command)
        async for envelope in session.follow(lanes=lanes, kinds=kinds, after=command.cursor, until_closed=True):
            message = envelope.message
            if envelope.is_imported or not isinstance(message, ExtensionMessage):
                continue
            with suppress(MessageError):  # any client can publish an event that cannot be read
                event = parse_event(message)
                if isinstance(event, ControlAnswered) and event.control == command.position:
                    return event
        raise SessionClosed(session.id)
    delay = await find_delay(session)
    raise AnswerTimeout(session.id, command.position, seconds or 0.0, delay, what="command")


async def _require_command(session: Session, receipt: Receipt) -> None:
    """Raise InvalidArgument unless the receipt's last entry is a command. An entry that was trimmed is not checked."""
    before = Cursor(receipt.position - 1, 0, receipt.incarnation)
    with suppress(CursorTrimmed):
        async for envelope in session.read(lanes={Lane.EXTENSION}, after=before, until=receipt.position):
            if isinstance(envelope.message, ExtensionMessage) and envelope.message.is_control:
                return
        advice = "pass the receipt of a command, such as abort(…); to wait for the answer to a message, call ask(…)"
        raise InvalidArgument("command", receipt, advice)


# The commands to a running agent by name, for the command line and the web page, which read commands as text.

UNKNOWN_POSITION = 1
"""the position of a `Steer` until `send` has published its message"""


class CommandSpec(NamedTuple):
    """What one command does, and which arguments it takes."""

    help: str
    control: type[Control] | None
    """class of the command's message; None for `follow-up`, which sends a user message instead of a command"""
    arguments: tuple[str, ...] = ()
    """required arguments: TEXT is the user's message, TURN and CALL name a tool call"""

    @property
    def options(self) -> frozenset[str]:
        """Names of the optional fields of the command's message."""
        fields = {} if self.control is None else self.control.model_fields
        return frozenset(name for name, field in fields.items() if not field.is_required())

    @property
    def when_choices(self) -> tuple[str, ...]:
        """Values of the field `when`, the default first; empty if the command has no such field."""
        field = None if self.control is None else self.control.model_fields.get("when")
        return () if field is None else tuple(map(str, get_args(field.annotation)))


_TOOL_CALL = ("TURN", "CALL")

_SPECS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "abort": ("end the running loop; earlier messages are not answered", ()),
    "steer": ("send a message to the running loop", ("TEXT",)),
    "follow-up": ("send a message that waits until the loop has ended", ("TEXT",)),
    "approve": ("run a tool call that waits for approval", _TOOL_CALL),
    "deny": ("refuse a tool call that waits for approval", _TOOL_CALL),
    "pause": ("stop after the current turn", ()),
    "handoff": ("stop after the current turn and hand the session to a person", ()),
    "resume": ("continue after pause or handoff", ()),
    "compact": ("summarize the context before the next turn", ()),
}

COMMAND_SPECS: Mapping[str, CommandSpec] = {
    name: CommandSpec(text, CONTROLS.get(name), arguments) for name, (text, arguments) in _SPECS.items()
}
"""specs by command name, in the order in which `lanebus control --help` lists them"""


def read_control(name: str, data: Mapping[str, JsonValue]) -> Control:
    """Return the message of a command.

    Args:
        name: the command's name, such as "abort". "follow-up" is not valid, because it sends a user message.
        data: the message's fields. A `Steer` needs no position: `send` sets it.

    Raises:
        UnknownKind: there is no command with this name.
        DecodeError: the fields do not fit the message.
    """
    control = CONTROLS.get(name)
    if control is None:
        raise UnknownKind(f"control.{name}", tuple(CONTROLS))
    try:
        return control.read({**data, "position": UNKNOWN_POSITION} if control is Steer else dict(data))
    except DecodeError as error:  # the caller wrote the fields without `data`
        raise DecodeError(error.path.removeprefix("data").removeprefix("."), error.reason) from None


# Check the arguments of the functions that send commands.

_ControlT = TypeVar("_ControlT", bound=Control)


def make_control(kind: type[_ControlT], **fields: object) -> _ControlT:
    """Return a command. Raise InvalidArgument for a field of a wrong type."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = to_snake(str(first["loc"][0]))
        raise InvalidArgument(name, fields.get(name), first["msg"].replace("Input", "it", 1)) from None


def read_turn_id(session: Session, turn_id: TurnId | str) -> TurnId:
    """Return a turn id that a caller passed, either as a `TurnId` or as text. Raise DecodeError for another text."""
    return TurnId.from_text(turn_id, session.id) if isinstance(turn_id, str) else turn_id
