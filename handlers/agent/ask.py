"""Ask an agent a question, and wait for its answer."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple

import anyio

from lanebus.bus import Session, read_live_workers
from lanebus.bus.errors import BusError, InvalidArgument, MessageError, SessionClosed, require_seconds
from lanebus.bus.messages import (
    AgentEnded,
    AgentStarted,
    AssistantMessage,
    Delta,
    ExtensionMessage,
    Lane,
    Publishable,
    StopReason,
    ToolStarted,
    ToolWaiting,
    TurnId,
    UserMessage,
    parse_event,
)
from lanebus.bus.wire import Cursor, DecodeFailure, Envelope, Notice, Receipt
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds
from lanebus.handlers.agent.errors import UNKNOWN_DELAY, AnswerTimeout, Delay, LoopAborted, LoopFailed, PersonNeeded
from lanebus.handlers.agent.turn.loop_state import is_cut, wanted_calls
from lanebus.handlers.context import deferred_positions, read_position
from lanebus.handlers.projections import STATUS, STATUS_KINDS, LoopStatus, Projected, Status, look

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
