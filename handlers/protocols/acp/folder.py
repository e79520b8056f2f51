"""The project's folder of a session: a note in the extension lane, at the session's own first entry."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from lanebus.bus.errors import StreamError
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.session.session import Session

__all__ = ("OPENED", "folder_note", "folder_of")

OPENED = "editor.opened"
"""the kind of the note. Its data is `{"cwd": <absolute path>}`"""


def folder_note(cwd: str) -> ExtensionMessage:
    """Return the note that an editor opened a session in this folder."""
    return ExtensionMessage.of(OPENED, {"cwd": cwd})


async def folder_of(session: Session, head: SessionHead) -> str | None:
    """Return the folder of a session; None if no editor made the session or its fork, or its first entry was trimmed.

    An imported note is not believed: an editor lists sessions by their folders.

    Raises:
        Unavailable: the server cannot be reached.
    """
    for first in dict.fromkeys((head.own_start.position, 0)):
        try:
            entries = session.read(lanes={Lane.EXTENSION}, kinds={OPENED}, after=Cursor(first), until=first + 1)
            async with aclosing(entries) as envelopes:
                async for envelope in envelopes:
                    message = None if envelope.is_imported else envelope.message
                    data = message.data if isinstance(message, ExtensionMessage) else None
                    cwd = data.get("cwd") if isinstance(data, dict) else None
                    if isinstance(cwd, str):
                        return cwd
        except StreamError:  # trimmed or erased meanwhile
            return None
    return None
