"""The links between sessions: the tool call that created a session, and the sessions that its tool calls created."""

from contextlib import aclosing
from typing import NamedTuple

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.events import SessionLinked
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.session.session import Session, require_session
from lanebus.bus.wire.envelope import START

__all__ = ("Links", "read_links")


class Links(NamedTuple):
    """The links of one session."""

    parent: SessionLinked | None
    """the link to the tool call that created the session; None if no tool call did"""
    children: tuple[SessionLinked, ...]
    """links to the sessions that the session's tool calls created, in order of position. Links in entries that a fork
    shares are left out, because they link children of the fork's parent."""


async def read_links(session: Session) -> Links:
    """Return the links in the session's remaining entries, except for imported entries.

    Use these links to close, archive or erase a session together with the sessions that its tool calls created.

    Args:
        session: the session to read.

    Raises:
        BusError: the log could not be read.
    """
    require_session(session)
    head = await session.head()
    after = max(head.own_start, head.cursor_at(head.trimmed) if head.trimmed else START)
    parent: SessionLinked | None = None
    children: dict[str, SessionLinked] = {}
    async with aclosing(session.read(kinds={SessionLinked.KIND}, after=after)) as entries:
        async for envelope in entries:
            link = None if envelope.is_imported else _link(envelope.message)
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
