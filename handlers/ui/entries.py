"""The answer of the route that returns stored entries: a JSON object, made while it is sent."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from lanebus.bus.errors import BusError, SessionErased
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.handlers.ui.bounds import UiBounds
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.history import History
from lanebus.handlers.ui.replies import envelope_json

__all__ = ("EntriesQuery", "entries_json")


class EntriesQuery(NamedTuple):
    """The entries that a client requests."""

    after: Cursor
    until: int | None
    """last position; None means the end"""
    lanes: frozenset[Lane]


async def entries_json(
    session: Session, query: EntriesQuery, share: Share, history: History, bounds: UiBounds
) -> AsyncGenerator[bytes]:
    """Yield the parts of the answer `{"entries": […], "cursor": …, "more": …}`.

    Args:
        session: the session.
        query: the entries to return.
        share: holds the memory of a part while it is sent.
        history: reads the entries.
        bounds: limits of the answer.

    Raises:
        BusError: the first entries cannot be read. If later ones cannot, the answer ends before them with `more`, and
            the next request gets the error.
    """
    head = await session.head()
    if head.is_erased:
        raise SessionErased(session.id)
    end = head.position
    end = end if query.until is None else min(query.until, end)
    last, size = min(query.after.position + bounds.page_entries, end), 0
    cursor = query.after
    pieces = history.pieces(session, cursor, last, share, _entry_json, lanes=query.lanes, seconds=bounds.wait_seconds)
    opened = b'{"entries":['
    async with aclosing(pieces):
        while size < bounds.answer_bytes:
            try:
                piece = await anext(pieces, None)
            except BusError:
                if not size and cursor == query.after:
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
    rest = json.dumps({"cursor": str(cursor), "more": cursor.position < end})
    yield (b"" if size else opened) + b"]," + rest[1:].encode()


def _entry_json(envelope: Envelope) -> bytes:
    return envelope_json(envelope).encode()
