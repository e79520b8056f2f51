"""A session that was begun for a tool call of another one: how it begins, what came of it, how it is ended."""

from contextlib import aclosing, suppress
from hashlib import blake2b
from typing import NamedTuple

from lanebus.bus.errors import MessageError, SessionClosed
from lanebus.bus.messages.control import Abort
from lanebus.bus.messages.events import AgentEnded, SessionLinked
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.message import AssistantMessage, StopReason, UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.session.session import Session
from lanebus.bus.wire.notice import CLOSED

__all__ = ("ChildOutcome", "abort_child", "begin_child", "child_id", "wait_child")

_KEY = "session.linked"
_PARENT_CHARACTERS = 43
_DIGEST_BYTES = 10

_GOES_ON = frozenset({"paused", "handoff", "contextCompacted"})
"""a loop that ended so is gone on with by the next one"""

_NOTED = frozenset({"guardRail", "maxTurns"})
"""the loop's own last word says why"""

_TOLD = frozenset({"assistant", "user", AgentEnded.KIND, CLOSED})


class ChildOutcome(NamedTuple):
    """What came of a child's work."""

    stop_reason: StopReason
    text: str
    """its last answer"""
    loop_id: str | None
    """the loop that gave it; None where none came to an end"""
    fault: str | None = None
    """what went wrong, if it is known"""


def child_id(parent: str, key: str) -> str:
    """The child's id, the same whoever asks: what of the parent's fits, and a digest of both.

    Args:
        key: of the call, unique in the parent.
    """
    digest = blake2b(f"{parent}\n{key}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{parent[:_PARENT_CHARACTERS]}-{digest}"


async def begin_child(child: Session, link: SessionLinked, task: str) -> None:
    """Give a child its task, once: in one step with the link that says for whom it works.

    Raises:
        SessionErased: somebody has erased it.
        BusError: as for `Session.publish`.
    """
    with suppress(SessionClosed):  # what it said before that is in its log
        await child.publish(link.as_extension(), UserMessage.text(task), key=_KEY)


async def wait_child(child: Session) -> ChildOutcome:
    """Wait until a child's loop has ended for good. A session that was closed says no more.

    Raises:
        SessionErased: somebody has erased it.
        LogRolledBack: its log has lost its end; look again.
        StreamError, Unavailable: as for `Session.follow`.
    """
    said: AssistantMessage | None = None
    note: UserMessage | None = None
    async with aclosing(child.follow(kinds=_TOLD)) as entries:
        async for envelope in entries:
            match envelope.message:
                case AssistantMessage(turn_id=None, stop_reason="error", error_message=fault):
                    # No loop's: its worker's word that the agent failed.
                    return ChildOutcome("error", "", None, fault)
                case AssistantMessage() as answer:
                    said, note = answer, None
                case UserMessage(turn_id=TurnId()) as told:
                    note = told
                case ExtensionMessage(kind=AgentEnded.KIND, data=data):
                    try:
                        ended = AgentEnded.read(data)
                    except MessageError:
                        continue
                    if ended.stop_reason not in _GOES_ON:
                        return _outcome(ended, said, note)
                case ExtensionMessage(kind=kind) if kind == CLOSED:
                    return ChildOutcome("error", "", None, "its session was closed")
                case _:
                    pass
    raise AssertionError("a follower ends by an error alone")


async def abort_child(child: Session, link: SessionLinked, reason: str) -> None:
    """Command a child to end, once in its life. One that has ended answers that it is late.

    Raises:
        BusError: as for `Session.publish`, but for sessions that take no word any more.
    """
    with suppress(SessionClosed):
        await child.publish(Abort(by=link.parent, reason=reason).as_extension(), key=f"{_KEY}.abort")


def _outcome(ended: AgentEnded, said: AssistantMessage | None, note: UserMessage | None) -> ChildOutcome:
    # In the words of the LLM lane: the parent's model is told, and it is told nothing that an extension message says.
    fault = said.error_message if said is not None and said.is_failed else None
    if note is not None and ended.stop_reason in _NOTED:
        fault = note.text_content()
    return ChildOutcome(ended.stop_reason, said.text_content() if said is not None else "", ended.loop_id, fault)
