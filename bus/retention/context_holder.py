"""What the workers of a session's agent still need: the LLM lane, from which they build the agent's context."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from lanebus.bus.errors import CursorTrimmed, EntriesMissing, LogRolledBack
from lanebus.bus.messages.events import AgentStarted
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.reading.reader import read_pages
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanebus.bus.log.log import Log
    from lanebus.bus.wire.envelope import Envelope

__all__ = ("context_holder",)

_CONTEXT = Selection.of({Lane.LLM})
_LOOPS = Selection.of({Lane.EXTENSION}, {AgentStarted.KIND})


async def context_holder(log: Log, session: str, before: int) -> Mapping[str, int]:
    """Return the entries that the workers of a session's agent still need, as `{"a:<agent>": position}`.

    The workers need the entries after this position. The mapping is empty if they need no entries.

    A worker without the session in memory reads the LLM lane from its first entry. The workers need no entry if no
    worker has run a loop in the session, or if the context is already incomplete.

    Args:
        log: the log.
        session: id of the session.
        before: first position to keep.

    Raises:
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached.
    """
    while True:
        head = await log.head(session)
        own = head.own_start.position
        # A worker takes the lease before it runs a loop. Sessions without one are not searched.
        if not head.epoch or head.trimmed_llm > max(head.archived, own):
            return {}
        start = max(head.trimmed, own)
        try:
            first = await _first(log, session, _CONTEXT, start, before - 1)
            if first is None:
                return {}
            # The start of a loop may be in the archive alone. The archive is not searched: a loop is assumed.
            is_assumed = head.trimmed > own and head.archived > own
            if not is_assumed and await _first(log, session, _LOOPS, start, None) is None:
                return {}
        except EntriesMissing:  # the context is incomplete, and stays so
            return {}
        except (CursorTrimmed, LogRolledBack):  # another client trimmed meanwhile
            continue
        return {f"a:{head.agent}": first.position - 1}


async def _first(log: Log, session: str, selection: Selection, start: int, until: int | None) -> Envelope | None:
    """Return the first selected entry after one position and up to another position; None if no entry is selected."""
    async with aclosing(read_pages(log, session, selection, Cursor(start), until)) as pages:
        async for page in pages:
            if page.envelopes:
                return page.envelopes[0]
    return None
