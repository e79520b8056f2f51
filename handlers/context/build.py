"""From a session's log to its context: once, or again and again with only what is new."""

from collections.abc import AsyncIterator
from typing import Protocol

import anyio

from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import START, Cursor, Envelope
from lanebus.handlers.context.errors import UnknownLeaf
from lanebus.handlers.context.fold import Context, evolve

__all__ = ("LaneReader", "WarmContext", "build_context")

_LLM = frozenset({Lane.LLM})


class LaneReader(Protocol):
    """The part of a session that a context is built from."""

    @property
    def id(self) -> str: ...

    def read(
        self, *, lanes: frozenset[Lane], after: Cursor = START, until: int | None = None
    ) -> AsyncIterator[Envelope]:
        """The lanes' entries after a cursor, up to and with `until`, in the order of their positions."""
        ...


async def build_context(session: LaneReader, *, at: int | None = None, leaf: int | None = None) -> Context:
    """What the model sees now, or what it saw once the entry at position `at` was there. Nothing is written.

    Args:
        leaf: stand at this entry of the LLM lane, whichever branch it is on; 0 is the place before the first. What an
            entry continues is settled when it is appended, so nothing behind it in the log is read.

    Raises:
        UnknownLeaf: there is no entry `leaf`, or it is of the extension lane, or only comes after `at`.
        StreamError, Unavailable: as reading the session does.
    """
    context = Context(session.id)
    if leaf == 0:
        return context
    if leaf is not None and (leaf < 0 or (at is not None and leaf > at)):
        raise UnknownLeaf(session.id, leaf)
    async for envelope in session.read(lanes=_LLM, until=at if leaf is None else leaf):
        context = evolve(context, envelope)
    if leaf is not None and context.position != leaf:
        raise UnknownLeaf(session.id, leaf)
    return context


class WarmContext:
    """A session's context kept between turns, so that the next one reads only what is new."""

    def __init__(self, session: LaneReader) -> None:
        self._session = session
        self._context = Context(session.id)
        self._cursor = START  # of the last entry in it; it names the log that was read, where a position is in any
        # Two refreshes at a time would each read and fold the same entries.
        self._one_at_a_time = anyio.Lock()

    @property
    def context(self) -> Context:
        """As of the last refresh; empty before the first."""
        return self._context

    async def refresh(self) -> Context:
        """The context as of now. May be cancelled at any point: what was folded stays, the next call goes on there.

        Raises:
            LogRolledBack: the log has lost what this context holds. It is of no use any more: build another.
            StreamError, Unavailable: as reading the session does.
        """
        async with self._one_at_a_time:
            async for envelope in self._session.read(lanes=_LLM, after=self._cursor):
                self._context, self._cursor = evolve(self._context, envelope), envelope.cursor
            return self._context
