"""Which sessions hang together: what a session was begun for, and what its tool calls have begun."""

from contextlib import aclosing
from typing import NamedTuple

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.events import SessionLinked
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import START

__all__ = ("Links", "read_links")


class Links(NamedTuple):
    """What a session's log says of others."""

    parent: SessionLinked | None
    """None: no tool call began it"""
    children: tuple[SessionLinked, ...]
    """in the order of the log. Of a fork only its own: what it shares began children of its parent"""


async def read_links(session: Session) -> Links:
    """The links in what is left of a session's log.

    Whoever closes, archives or erases a session with all that it has begun goes along these.

    Raises:
        BusError: the log could not be read.
    """
    head = await session.head()
    after = max(head.own_start, head.cursor_at(head.trimmed) if head.trimmed else START)
    parent: SessionLinked | None = None
    children: dict[str, SessionLinked] = {}
    async with aclosing(session.read(kinds={SessionLinked.KIND}, after=after)) as entries:
        async for envelope in entries:
            link = _link(envelope.message)
            if link is not None and link.child == session.id:
                parent = parent or link
            elif link is not None and link.parent == session.id:
                children.setdefault(link.child, link)
    return Links(parent, tuple(children.values()))


def _link(message: object) -> SessionLinked | None:
    try:
        return SessionLinked.read(message.data) if isinstance(message, ExtensionMessage) else None
    except MessageError:
        return None
