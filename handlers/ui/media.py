"""Serve stored media of a session. A client gets only media that an entry of the session refers to.

The client names the entry. So the check reads one position of the session, whatever the length of its log, and a
client that may read one session cannot read the media of another by their SHA-256.
"""

from contextlib import aclosing

from starlette.exceptions import HTTPException
from starlette.responses import Response

from lanebus.bus.errors import MediaDamaged, MediaMissing, SessionErased
from lanebus.bus.media.resolve import media_of
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.media import sniff
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.ui.bounds import UiBounds
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.history import History
from lanebus.handlers.ui.replies import refuse

__all__ = ("refers_to_media", "stored_media")

_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""the types that a browser may show; other media are sent as bytes of no type"""


async def refers_to_media(session: Session, position: int, sha256: str) -> bool:
    """Return whether the entry at a position of a session refers to stored media.

    Reads only the session's head and this position, so the cost does not depend on the length of the session.
    Entries of the extension lane and undecodable entries refer to none. Entries that a fork shares are its own too.

    Args:
        session: the session.
        position: position of the entry, from 1.
        sha256: SHA-256 of the media.

    Raises:
        StreamError: the entry cannot be read: it was trimmed, or the session was erased.
        Unavailable: the server or the archive cannot be reached.
    """
    head = await session.head()
    if head.is_erased:
        raise SessionErased(session.id)
    if not 1 <= position <= head.position:
        return False
    async with aclosing(session.read(lanes=(Lane.LLM,), after=Cursor(position - 1), until=position)) as envelopes:
        async for envelope in envelopes:
            if isinstance(message := envelope.message, LlmMessage):
                return any(media.kind == "sha256" and media.sha256 == sha256 for media in media_of(message))
    return False


async def stored_media(
    session: Session, position: int, sha256: str, *, share: Share, history: History, bounds: UiBounds
) -> Response:
    """Return a response with stored media to which the entry at a position refers.

    Browsers save the media, or show them as a picture of a page. They never render them as a page.

    Args:
        session: the session.
        position: position of the entry, from 1.
        sha256: SHA-256 of the media.
        share: holds the memory of the media while they are sent.
        history: gives the turn to read the entry.
        bounds: limits. Media over `UiBounds.media_bytes` are refused with 413 before they are read.

    Raises:
        HTTPException: 404, if the entry does not refer to the media, or the media are not stored.
        StreamError: as for `refers_to_media`.
        Unavailable: the server, the archive or the media store cannot be reached.
        SetupError: the media store refused access.
        ServerBusy: the memory was not free in time, or the turn to read did not come.
    """
    async with history.reads.turn(share.owner):
        if not await refers_to_media(session, position, sha256):
            raise HTTPException(404)
    head = await session.media.head(sha256)
    if head is None:
        raise HTTPException(404)
    size, limit = head.size_bytes, bounds.media_bytes
    if size > limit:
        return refuse(413, "media_too_large", f"media of {size} bytes: at most {limit} are served")
    await share.take(size, seconds=bounds.wait_seconds)
    try:
        data = await session.media.get(sha256)
    except MediaMissing:
        raise HTTPException(404) from None
    except MediaDamaged as error:
        return refuse(500, "media_damaged", str(error))
    media_type = sniff(data)
    return Response(
        data,
        headers={"Content-Disposition": "attachment"},
        media_type=media_type if media_type in _PICTURES else "application/octet-stream",
    )
