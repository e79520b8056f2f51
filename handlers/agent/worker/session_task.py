"""One session in a worker's hands: from when it is given until there is nothing to do in it.

A session is given to one worker of a group at a time. Its task reads the log until it finds nothing to do, and
acknowledges up to where it read: a message behind that has the session given again, so none is lost in between.

The lease may be another owner's all the same: of a worker that died or is taken for dead, of another group, of a
program of its own. The task then gives the work back until the lease expires. That it asked is stored with the lease,
whose release wakes the session, and it is given at once.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from random import random

import anyio

from lanebus.bus.errors import (
    ArchiveDamaged,
    BusError,
    CursorTrimmed,
    Fenced,
    LogRolledBack,
    SessionClosed,
    SessionErased,
    Unavailable,
)
from lanebus.bus.groups.consumer import Work
from lanebus.bus.groups.retry_policy import Retry
from lanebus.bus.log.first_page import FirstPage
from lanebus.bus.log.lease import Lease, LeaseAnswer
from lanebus.handlers.agent.cached_session import CachedSession
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.worker.assignment import Assignment, Done, Later, Left, WorkOutcome
from lanebus.handlers.agent.worker.concurrency import Slot
from lanebus.handlers.agent.worker.services import WorkerServices
from lanebus.handlers.agent.worker.session_run import SessionRun

__all__ = ("SessionTask",)

_log = logging.getLogger(__name__)


class SessionTask:
    """Looks after a session: fetch its lease, run the agent, be done. `serve` is its task."""

    def __init__(
        self, session: str, services: WorkerServices, slot: Slot, ended: Callable[["SessionTask"], None]
    ) -> None:
        """
        Args:
            ended: called as soon as no work may be added any more.
        """
        self.session = session
        self._services, self._slot, self._ended = services, slot, ended
        self._assignment = Assignment(services)
        self._lease: Lease | None = None
        """in use"""
        self._scope: anyio.CancelScope | None = None
        """of the work under the lease"""
        self._all = anyio.CancelScope()
        self._is_stopping = False

    def add(self, work: Work) -> None:
        """Take the session's work; again, if it was another worker's meanwhile."""
        self._assignment.add(work)

    def drop(self, work: Work) -> None:
        """Forget a work that is another worker's by now."""
        self._assignment.drop(work)

    def stop(self) -> None:
        """Wait for nothing any more: what is not being worked on is handed back."""
        self._is_stopping = True
        self._assignment.woken.set()

    def nack(self) -> None:
        """End what is being done, and let another worker go on with it."""
        self._all.cancel()

    async def serve(self) -> None:
        """Work on the session until there is nothing to do, then acknowledge its work. Cancelled, it hands back."""
        is_ended = False
        try:
            with self._all:
                is_ended = await self._serve()
        finally:
            self._ended(self)
            if not is_ended:
                with anyio.CancelScope(shield=True), anyio.move_on_after(self._services.bounds.nack):
                    await self._nack()
            self._slot.give_back()

    async def _serve(self) -> bool:
        """Returns False if the session has to be handed back."""
        assignment, acks = self._assignment, self._services.acks
        await self._slot.take()
        while True:
            match await self._try():
                case Done(lease):
                    is_done = not assignment.woken.is_set()
                    if is_done:
                        # No await from here on: work that comes later starts a task of its own.
                        self._ended(self)
                    if lease is not None:
                        acks.release(lease)
                    if is_done:
                        if assignment.work is not None:
                            acks.ack(assignment.work, assignment.read_up_to)
                        return True
                case Left():
                    if assignment.work is None:
                        self._ended(self)
                        return True
                case Later(seconds):
                    self._slot.give_back()  # none is held while waiting
                    if not self._is_stopping and assignment.work is not None:
                        with anyio.move_on_after(seconds):
                            await assignment.woken.wait()
                    if self._is_stopping or assignment.work is None:
                        return assignment.work is None  # it is another worker's by now
                    await self._slot.take()

    async def _try(self) -> WorkOutcome:
        """Fetch the lease and work on the session."""
        try:
            with self._services.cache.held(self.session) as cache:
                return await self._try_with(cache)
        except (SessionClosed, SessionErased):
            return Done()  # it takes no messages any more
        except LogRolledBack as error:
            _log.warning("session %s is read again from its start: %s", self.session, error)
        except Unavailable as error:
            _log.warning("session %s is tried again: %s", self.session, error)
        except Exception as error:  # noqa: BLE001  # other sessions go on
            _log.exception("session %s could not be worked on", self.session)
            return await self._failed(error)
        return self._assignment.later()

    async def _try_with(self, cache: CachedSession) -> WorkOutcome:
        assignment = self._assignment
        # What woke the session until now is in the log, and is seen when the log is read below.
        assignment.woken, assignment.read_up_to = asyncio.Event(), 0
        if assignment.granted is not None and assignment.work is not None:
            lease, assignment.granted = assignment.granted, None  # good for one try: the next takes one anew
            return await self._hold(lease, assignment.work.asked, assignment.work.page, cache)
        asked = anyio.current_time()
        taking, page = await self._take(cache, also_resting=False)
        if taking.rests_seconds:
            if not (await cache.refresh()).status.commands:
                return await assignment.postpone(taking.rests_seconds)
            taking, page = await self._take(cache, also_resting=True)
        if taking.lease is None:
            return await assignment.postpone(max(taking.held_seconds, assignment.backoff.next_pause))
        return await self._hold(taking.lease, asked, page, cache)

    async def _take(self, cache: CachedSession, *, also_resting: bool) -> tuple[LeaseAnswer, FirstPage | None]:
        """Take the lease, and read the next page in the same step: the first refresh under the lease is then free."""
        services, page = self._services, cache.first_page()
        if page is None:  # everything is read before: the lease could expire meanwhile
            with suppress(CursorTrimmed, ArchiveDamaged):
                await cache.refresh()
            page = cache.first_page()
        taking = await services.leases.take(
            self.session, services.owner, services.heartbeat_seconds, also_resting=also_resting, page=page
        )
        return taking, page

    async def _hold(self, lease: Lease, asked: float, page: FirstPage | None, cache: CachedSession) -> WorkOutcome:
        """Read and work under a lease. It is released when the task ends, or here after an error.

        Args:
            asked: when the lease was asked for, on the event loop's clock.
            page: read in the same step.
        """
        services, assignment = self._services, self._assignment
        assignment.attempt = 1 if assignment.work is None else assignment.work.attempt
        outcome: WorkOutcome | None = None
        self._lease = lease
        try:
            # The scope lies inside: a lost lease cancels the work, and what follows it goes on.
            with services.heartbeat.holding(lease, asked, self._lose_lease), anyio.CancelScope() as self._scope:
                is_read = False
                with suppress(CursorTrimmed, ArchiveDamaged):  # the run meets them again, and tells the user
                    await cache.refresh(page)
                    is_read = True
                waiting, bounds = self._slot.lent, services.bounds.run
                run = Run(cache.session, lease, cache, is_read=is_read, waiting=waiting, bounds=bounds)
                outcome = await SessionRun(services, assignment, run, cache).work_off(is_read=is_read)
        except Fenced:
            self._lose_lease()
        except Exception:
            self._lease = None
            services.acks.release(lease)
            raise
        self._lease = None
        return outcome or assignment.later()  # another worker has the lease, or that cannot be known

    def _lose_lease(self) -> None:
        self._services.counts.leases_lost += 1
        _log.warning("session %s: the lease was lost", self.session)
        if self._scope is not None:
            self._scope.cancel()

    async def _failed(self, error: Exception) -> WorkOutcome:
        """Try again after an error outside of the agent, or make the work a dead letter."""
        decision = self._services.retry.decide(error, self._assignment.next_failure(), random())  # noqa: S311  # no secret
        if isinstance(decision, Retry):
            return Later(decision.delay)
        try:
            await self._assignment.dead_letter(error)
        except Unavailable:
            return self._assignment.later()
        return Done()

    async def _nack(self) -> None:
        """Give an unfinished session to another worker at once, rather than when this worker's silence is noticed."""
        services, work = self._services, self._assignment.work
        lease = self._lease or self._assignment.granted
        try:
            if lease is not None:
                services.counts.handed_back += 1
                await services.leases.release((lease,))
            if work is not None:
                await services.consumer.nack(work)
        except BusError as error:
            _log.info("session %s is left to be claimed: %s", self.session, error)
