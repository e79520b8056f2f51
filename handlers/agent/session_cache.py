"""The sessions that a worker keeps in memory between turns."""

from collections.abc import Generator
from contextlib import contextmanager

from lanebus.bus.errors import Unavailable
from lanebus.bus.log.first_page import FirstPage
from lanebus.bus.log.log import Log
from lanebus.bus.session.session import OpenSession
from lanebus.handlers.agent.bounds import DEFAULT_WORKER_BOUNDS, WorkerBounds
from lanebus.handlers.agent.cached_session import CachedSession
from lanebus.handlers.recent import ENTRY_BYTES, RecentSessions

__all__ = ("SessionCache",)


class SessionCache:
    """The most recently used sessions.

    A session with a running task belongs to the task and is not in the cache, so it is never evicted. At the bound the
    least recently used sessions are evicted; they are read again when needed.
    """

    def __init__(self, open_session: OpenSession, bounds: WorkerBounds = DEFAULT_WORKER_BOUNDS) -> None:
        self._open, self._bounds = open_session, bounds
        self._idle = RecentSessions[CachedSession](
            bounds.warm_sessions, bounds.warm_bytes, sweep_seconds=bounds.warm_sweep_seconds
        )

    def __len__(self) -> int:
        return len(self._idle)

    @property
    def sessions(self) -> list[str]:
        """The ids of the cached sessions."""
        return list(self._idle)

    @contextmanager
    def held(self, session: str, agent: str | None = None) -> Generator[CachedSession]:
        """Take a session out of the cache for the length of the block, and put it back afterwards.

        `agent` is used only for a session that is not in the cache: the agent that the session belongs to if it is new.
        None means the default agent.

        If the block ends with an error other than `Unavailable`, the session is discarded and read from its start next
        time. If two blocks hold the same session, each block has its own copy, and the copy of the block that ends last
        is kept.
        """
        idle = self._idle.pop(session)
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
        warm = self._idle.get(session)
        return None if warm is None else warm.first_page()

    async def catch_up(self, session: str) -> None:
        """Read the new entries of a cached session. Errors are ignored: the next `held` block reads again and raises
        them."""
        warm = self._idle.get(session)
        if warm is None:
            return
        try:
            await warm.refresh()
        except Exception as error:  # noqa: BLE001  # other sessions continue
            is_good = isinstance(error, Unavailable)
        else:
            is_good = True
        if self._idle.get(session) is warm:  # `held` has not removed it meanwhile
            self._idle.pop(session)
            if is_good:
                self._keep(session, warm)

    async def sweep(self, log: Log) -> None:
        """Drop the sessions that were erased. Raises the errors of `RecentSessions.sweep`."""
        await self._idle.sweep(log)

    def _keep(self, session: str, warm: CachedSession) -> None:
        self._idle.keep(session, warm, warm.size_bytes + ENTRY_BYTES * len(warm.snapshot.context.entries))
