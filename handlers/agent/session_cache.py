"""The sessions that a worker keeps in memory between turns."""

from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from lanebus.bus.errors import Unavailable
from lanebus.bus.log.first_page import FirstPage
from lanebus.bus.session.session import OpenSession
from lanebus.handlers.agent.bounds import DEFAULT_WORKER_BOUNDS, WorkerBounds
from lanebus.handlers.agent.cached_session import CachedSession

__all__ = ("SessionCache",)


class SessionCache:
    """The most recently used sessions.

    A session with a running task belongs to the task and is not in the cache, so it is never evicted. At the bound the
    least recently used sessions are evicted; they are read again when needed.
    """

    def __init__(self, open_session: OpenSession, bounds: WorkerBounds = DEFAULT_WORKER_BOUNDS) -> None:
        self._open, self._bounds = open_session, bounds
        self._idle: OrderedDict[str, _Idle] = OrderedDict()
        self._entries = 0

    def __len__(self) -> int:
        return len(self._idle)

    @contextmanager
    def held(self, session: str, agent: str | None = None) -> Generator[CachedSession]:
        """Take a session out of the cache for the length of the block, and put it back afterwards.

        `agent` is used only for a session that is not in the cache: the agent that the session belongs to if it is new.
        None means the default agent.

        If the block ends with an error other than `Unavailable`, the session is discarded and read from its start next
        time. If two blocks hold the same session, each block has its own copy, and the copy of the block that ends last
        is kept.
        """
        idle = self._remove(session)
        warm = idle or CachedSession(self._open(session, agent=agent), store_every=self._bounds.store_every)
        is_good = True
        try:
            yield warm
        except Exception as error:
            is_good = isinstance(error, Unavailable)
            raise
        finally:  # also if cancelled: entries read so far are kept
            if is_good and not warm.is_stale:
                self._keep(session, warm)

    def first_page(self, session: str) -> FirstPage | None:
        """Return `CachedSession.first_page` of a cached session; None if the session is not in the cache."""
        idle = self._idle.get(session)
        return None if idle is None else idle.warm.first_page()

    async def catch_up(self, session: str) -> None:
        """Read the new entries of a cached session. Errors are ignored: the next `held` block reads again and raises
        them."""
        idle = self._idle.get(session)
        if idle is None:
            return
        try:
            await idle.warm.refresh()
        except Exception as error:  # noqa: BLE001  # other sessions continue
            is_good = isinstance(error, Unavailable)
        else:
            is_good = True
        if self._idle.get(session) is idle:  # `held` has not removed it meanwhile
            self._remove(session)
            if is_good:
                self._keep(session, idle.warm)

    def _keep(self, session: str, warm: CachedSession) -> None:
        self._remove(session)
        idle = self._idle[session] = _Idle(warm, len(warm.snapshot.context.entries))
        self._entries += idle.entries
        bounds = self._bounds
        # Keep one session even above the bound: otherwise this session would be read from its start at each turn.
        while len(self._idle) > 1 and (len(self._idle) > bounds.warm_sessions or self._entries > bounds.warm_entries):
            self._remove(next(iter(self._idle)))

    def _remove(self, session: str) -> CachedSession | None:
        idle = self._idle.pop(session, None)
        if idle is None:
            return None
        self._entries -= idle.entries
        return idle.warm


class _Idle(NamedTuple):
    warm: CachedSession
    entries: int
    """number of entries of the LLM lane"""
