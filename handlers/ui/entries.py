"""The answer of the route that returns stored entries: a JSON object, made while it is sent."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from lanebus.bus.errors import BusError, LogRolledBack, SessionErased
from lanebus.bus.log.incarnations import common_position
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.ui.bounds import UiBounds
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.entry_range import EntriesQuery, find_range
from lanebus.handlers.ui.gate import SessionRight
from lanebus.handlers.ui.history import History
from lanebus.handlers.ui.replies import AccessDenied, envelope_json

__all__ = ("entries_json",)


async def entries_json(
    session: Session,
    query: EntriesQuery,
    share: Share,
    history: History,
    *,
    right: SessionRight | None,
    is_valid: Callable[[], bool] = lambda: True,
    bounds: UiBounds,
) -> AsyncGenerator[bytes]:
    """Yield the parts of the answer `{"entries": […], "cursor": …, "more": …, "previous": …}`.

    Args:
        session: the session.
        query: the entries to return.
        share: holds the memory of a part while it is sent.
        history: reads the entries.
        right: the client's right to the session; None means that it lasts as long as the token.
        is_valid: returns whether the token is valid. If not, the answer ends with `more`.
        bounds: limits of the answer.

    Raises:
        AccessDenied: as for BusError, if the right has ended.
        LogRolledBack: the log does not reach the cursor, or has lost its entry.
        BusError: the first entries cannot be read. If later ones cannot, the answer ends before them with `more`, and
            the next request gets the error.
    """
    head = await session.head()
    if head.is_erased:
        raise SessionErased(session.id)
    # The reader of an empty range checks no cursor. A client whose cursor is beyond the end would wait for nothing.
    found = head.common_position(query.after)
    if found is None and query.after.position >= head.position:
        found = await common_position(session.resources.log, head, query.after, session.resources.archive)
    if found is not None and found < query.after.position:
        raise LogRolledBack(session.id, query.after.position, found)
    after, last, end, previous = await find_range(session, head, query, limit=bounds.page_entries)
    cursor, size = after, 0
    pieces = history.pieces(
        session,
        after,
        last,
        share,
        _entry_json,
        lanes=query.lanes,
        kinds=query.kinds,
        seconds=bounds.wait_seconds,
        right=right,
    )
    opened = b'{"entries":['
    async with aclosing(pieces):
        while size < bounds.answer_bytes and is_valid():
            try:
                piece = await anext(pieces, None)
            except (BusError, AccessDenied):
                if not size and cursor == after:
                    raise
                break
            if piece is None:
                break
            rendered, cursor = piece
            if not rendered:
                continue
            yield opened
            size, opened = size + sum(map(len, rendered)), b","
            joined = b",".join(rendered)
            rendered.clear()
            yield joined
            del joined, piece
    rest = json.dumps({"cursor": str(cursor), "more": cursor.position < end, "previous": previous})
    yield (b"" if size else opened) + b"]," + rest[1:].encode()


def _entry_json(envelope: Envelope) -> bytes:
    return envelope_json(envelope).encode()
