"""Ask an agent a question, and wait for its answer."""

from contextlib import aclosing

import anyio

from lanebus.bus.errors import SessionClosed, require_seconds
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.events import ToolWaiting
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session, require_session
from lanebus.bus.wire.envelope import Envelope
from lanebus.bus.wire.notice import Notice
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.agent.delay import find_delay
from lanebus.handlers.agent.errors import AnswerTimeout, LoopAborted, LoopFailed, PersonNeeded
from lanebus.handlers.agent.last_answer import ENDING_KINDS, LastAnswer
from lanebus.handlers.agent.user_message import as_user_message
from lanebus.handlers.context.read_marks import deferred_positions, read_position
from lanebus.handlers.projections.agent_status import STATUS, STATUS_KINDS, LoopStatus, Status
from lanebus.handlers.projections.projection import Projected, look

__all__ = ("ask",)

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
    require_session(session)
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
