"""The child session of a tool call: begin it, wait for its outcome, abort it."""

from contextlib import aclosing, suppress
from hashlib import blake2b
from typing import NamedTuple

from lanebus.bus.errors import Conflict, SessionClosed
from lanebus.bus.messages.assistant import StopReason
from lanebus.bus.messages.control import Abort
from lanebus.bus.messages.events import SessionLinked
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.notice import CLOSED
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.errors import ChildTaken
from lanebus.handlers.agent.last_answer import ENDING_KINDS, LastAnswer, WorkEnd

__all__ = ("ChildOutcome", "abort_child", "begin_child", "child_id", "wait_child")

_KEY = "session.linked"
_PARENT_CHARACTERS = 43
_DIGEST_BYTES = 10

_KINDS = ENDING_KINDS | {CLOSED}


class ChildOutcome(NamedTuple):
    """How a child session ended, and its last answer."""

    stop_reason: StopReason
    text: str
    """text of the child's last answer"""
    loop_id: str | None
    """id of the child's last loop; None if no loop began"""
    fault: str | None = None
    """why the child gave no answer; None if it gave one, or if no reason is recorded"""


def child_id(parent: str, key: str) -> str:
    """Return the id of a child session: the beginning of the parent's id, and a digest of `parent` and `key`.

    Args:
        key: identifies the tool call; unique in the parent.
    """
    digest = blake2b(f"{parent}\n{key}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{parent[:_PARENT_CHARACTERS]}-{digest}"


async def begin_child(child: Session, link: SessionLinked, task: str) -> None:
    """Publish a child's task and its link to the parent, once and in one step.

    The child's id can be predicted. So the link and the task must be its first entries: in a session that another
    client began, a foreign task would take the place of this one.

    Raises:
        ChildTaken: the session has entries that this call has not published. Nothing was published.
        SessionErased: the child was erased.
        BusError: as for `Session.publish`.
    """
    try:
        # The server finds a repeat by its key first, also in a child that has grown or was closed since.
        await child.publish(link.as_extension(), UserMessage.text(task), key=ReservedKey(_KEY), expected=0)
    except (Conflict, SessionClosed):
        raise ChildTaken(child.id) from None


async def wait_child(child: Session) -> ChildOutcome:
    """Wait for the outcome of a child session, and return it.

    A child that is paused or handed off is waited for, until it goes on or is aborted. The outcome of a child whose
    agent failed is an error.

    Raises:
        SessionClosed: the child was closed before its loop ended.
        SessionErased: the child was erased.
        LogRolledBack: the child's log has lost its newest entries. Call `wait_child` again.
        StreamError: as for `Session.follow`.
        Unavailable: as for `Session.follow`.
    """
    answer = LastAnswer()
    async with aclosing(child.follow(kinds=_KINDS)) as entries:
        async for envelope in entries:
            if (ended := answer.follow(envelope)) is not None:
                return _outcome(ended, answer)
            message = envelope.message
            if isinstance(message, ExtensionMessage) and message.kind == CLOSED and not envelope.is_imported:
                raise SessionClosed(child.id)
    raise AssertionError("follow ends only with an error")


async def abort_child(child: Session, link: SessionLinked, reason: str) -> None:
    """Publish an abort to a child, once. If the child has already ended, the abort is answered with the outcome "late".

    Raises:
        BusError: as for `Session.publish`, except for a closed session.
    """
    with suppress(SessionClosed):
        await child.publish(Abort(by=link.parent, reason=reason).as_extension(), key=ReservedKey(f"{_KEY}.abort"))


def _outcome(ended: WorkEnd, answer: LastAnswer) -> ChildOutcome:
    text = answer.message.text_content() if answer.message is not None else ""
    return ChildOutcome(ended.stop_reason, text, ended.loop_id, answer.fault(ended.stop_reason))
