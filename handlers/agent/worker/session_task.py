"""The task of one session at a worker, from the delivery of its work until nothing is left to do.

A session is delivered to one worker of a group at a time. Its task reads the log until nothing is left to do, and acks
the position up to which it read. A message after this position makes the group deliver the session again, so no message
is lost.

Another owner may still have the lease: a worker that died or seems dead, another group, or a program of the user. The
task then nacks the work until the lease expires. The server stores the refused request with the lease. When the owner
releases the lease, the session is woken and delivered at once.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from random import random

import anyio

from lanebus.bus.error_text import logged
from lanebus.bus.errors import (
    ArchiveDamaged,
    BusError,
    CursorTrimmed,
    Fenced,
    LogEmptied,
    LogRolledBack,
    Refused,
    SessionClosed,
    SessionErased,
    Unavailable,
    WrongAgent,
)
from lanebus.bus.groups.retry_policy import Retry
from lanebus.bus.groups.work import Work
from lanebus.bus.log.first_page import FirstPage
from lanebus.bus.log.lease import Lease, LeaseAnswer
from lanebus.handlers.agent.cached_session import CachedSession
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.run_observer import RunObserver
from lanebus.handlers.agent.worker.assignment import Assignment, Done, Later, Left, WorkOutcome
from lanebus.handlers.agent.worker.concurrency import Slot
from lanebus.handlers.agent.worker.services import WorkerServices
from lanebus.handlers.agent.worker.session_run import SessionRun
from lanebus.handlers.monitoring.log_context import LogContext, within
from lanebus.handlers.monitoring.log_events import LeaseLost, write_event
from lanebus.handlers.monitoring.server_health import WORK

__all__ = ("SessionTask",)

_log = logging.getLogger(__name__)


class SessionTask:
    """Serves one session: takes the lease, runs the agent, acks the work. `serve` is the task's function."""

    def __init__(
        self, session: str, services: WorkerServices, slot: Slot, ended: Callable[["SessionTask"], None]
    ) -> None:
        """
        Args:
            ended: called when no more work may be added to this task.
        """
        self.session = session
        self._services, self._slot, self._ended = services, slot, ended
        self._assignment = Assignment(services)
        self._context = LogContext(session=session, worker=services.worker)
        self._lease: Lease | None = None
        """the lease under which the session runs"""
        self._scope: anyio.CancelScope | None = None
        """cancels the work under the lease"""
        self._all = anyio.CancelScope()
        """cancels the task, except for the return of its work to the group"""
        self._is_stopping = False
        self.is_waiting = False
        """whether it waits until a fault of the server is over"""
        self.is_refused = False
        """whether the server refused its last attempt. An attempt under way has not shown yet that the fault is over"""

    def add(self, work: Work) -> None:
        """Replace the session's work by newer work."""
        self._assignment.add(work)

    def drop(self, work: Work) -> None:
        """Forget work that another worker has claimed."""
        self._assignment.drop(work)

    def stop(self) -> None:
        """If the task still waits, hand its work back to the group and end. A running session continues."""
        self._is_stopping = True
        self._assignment.woken.set()

    def retry(self) -> None:
        """Try again at once if the task waits after an error of the server."""
        if self.is_waiting:
            self._assignment.woken.set()

    def nack(self) -> None:
        """Cancel the session's work and return it to the group."""
        self._all.cancel()

    async def serve(self) -> None:
        """Work on the session until nothing is left to do, then ack its work. If cancelled, return the work to the
        group."""
        is_ended = False
        with within(self._context):
            try:
                with self._all:
                    is_ended = await self._serve()
            finally:
                self._ended(self)
                if not is_ended:
                    with anyio.CancelScope(shield=True), anyio.move_on_after(self._services.bounds.nack_seconds):
                        await self._nack()
                self._slot.give_back()

    async def _serve(self) -> bool:
        """Return False if the work has to be returned to the group."""
        assignment, acks = self._assignment, self._services.acks
        await self._slot.take()
        while True:
            match await self._try():
                case Done(lease):
                    is_done = not assignment.woken.is_set()
                    if is_done:
                        # No await after this: later work starts a new task.
                        self._ended(self)
                    if lease is not None:
                        acks.release(lease)
                    if is_done:
                        if assignment.work is not None:
                            acks.ack(assignment.work, assignment.read_up_to, assignment.trace)
                        return True
                case Left():
                    if assignment.work is None:
                        self._ended(self)
                        return True
                case Later(seconds):
                    self._slot.give_back()  # a waiting session holds no slot
                    if not self._is_stopping and assignment.work is not None:
                        with anyio.move_on_after(seconds):
                            await assignment.woken.wait()
                    if self._is_stopping or assignment.work is None:
                        return assignment.work is None  # without work, another worker has claimed it
                    await self._slot.take()

    async def _try(self) -> WorkOutcome:
        """Take the lease and work on the session."""
        self.is_waiting = False
        try:
            with self._services.cache.held(self.session, self._assignment.agent or None) as cache:
                outcome = await self._try_with(cache)
            self.is_refused = False
            if not isinstance(outcome, Later):
                self._note_work()
            return outcome
        except (SessionClosed, SessionErased):
            return Done()  # no more messages can follow
        except WrongAgent as error:
            _log.info("session %s is left to the agent %s, which it was handed over to", self.session, error.actual)
            return Done()
        except LogRolledBack as error:
            _log.warning("session %s is read again from its start: %s", self.session, error)
        except (Unavailable, LogEmptied) as error:  # neither is a failure of the agent
            if isinstance(error, Refused) and error.is_of_server:
                self._services.health.note(WORK, error)
                self.is_refused = True
            self.is_waiting = True
            later = self._assignment.later()
            self._assignment.log_retry(error, later.seconds)
            return later
        except Exception as error:  # noqa: BLE001  # other sessions continue
            _log.error("session %s could not be worked on", self.session, exc_info=logged(error))
            return await self._failed(error)
        return self._assignment.later()

    async def _try_with(self, cache: CachedSession) -> WorkOutcome:
        assignment = self._assignment
        # The log, which is read below, already contains everything that has woken the session so far.
        assignment.woken, assignment.read_up_to = asyncio.Event(), 0
        if assignment.granted is not None and assignment.work is not None:
            lease, assignment.granted = (
                assignment.granted,
                None,
            )  # use the granted lease for one attempt
            return await self._hold(lease, assignment.work.asked, assignment.work.page, cache)
        asked = anyio.current_time()
        answer, page = await self._take(cache, also_resting=False)
        if answer.rests_seconds:
            if not (await cache.refresh()).status.commands:
                return await assignment.postpone(answer.rests_seconds)
            answer, page = await self._take(cache, also_resting=True)
        if answer.lease is None:
            return await assignment.postpone(max(answer.held_seconds, assignment.backoff.next_pause))
        return await self._hold(answer.lease, asked, page, cache)

    async def _take(self, cache: CachedSession, *, also_resting: bool) -> tuple[LeaseAnswer, FirstPage | None]:
        """Take the lease and read the next page in one step, so the first refresh needs no round trip."""
        services, page = self._services, cache.first_page()
        if page is None:  # read everything first, as the lease could expire during a long read
            with suppress(CursorTrimmed, ArchiveDamaged):
                await cache.refresh()
            page = cache.first_page()
        answer = await services.leases.take(
            *(self.session, services.owner, services.heartbeat_seconds),
            also_resting=also_resting,
            page=page,
            agent=self._assignment.agent,
        )
        return answer, page

    async def _hold(self, lease: Lease, asked: float, page: FirstPage | None, cache: CachedSession) -> WorkOutcome:
        """Read and work under a lease. The lease is released when the task ends, or after an error at once.

        Args:
            asked: time at which the lease was requested, by the event loop's clock.
            page: the first page of the next refresh, read in the same step.
        """
        services, assignment = self._services, self._assignment
        assignment.attempt = 1 if assignment.work is None else assignment.work.attempt
        outcome: WorkOutcome | None = None
        observer = RunObserver(self._context, services.counts, self._note_work, loop_id=cache.loop_id)
        self._lease = lease
        try:
            # The scope is the inner block: a lost lease cancels the work in it, but not the code after it.
            with services.heartbeat.holding(lease, asked, self._lose_lease), anyio.CancelScope() as self._scope:
                is_read = False
                with suppress(CursorTrimmed, ArchiveDamaged):  # the run gets the same error and records it for the user
                    await cache.refresh(page)
                    is_read = True
                waiting, bounds = self._slot.lent, services.bounds.run
                run = Run(
                    *(cache.session, lease, cache),
                    is_read=is_read,
                    waiting=waiting,
                    bounds=bounds,
                    observer=observer,
                    sync_calls=services.sync_calls,
                )
                outcome = await SessionRun(services, assignment, run, cache, observer).work_off(is_read=is_read)
        except Fenced:
            self._lose_lease()
        except Exception:
            self._lease = None
            services.acks.release(lease)
            raise
        finally:
            cache.loop_id = observer.loop_id
        if outcome is None:
            cache.loop_id = ""  # another worker may continue the loop
        self._lease = None
        return outcome or assignment.later()  # another worker has the lease, or may have the lease

    def _note_work(self) -> None:
        self.is_refused = False
        self._services.health.note(WORK, None)

    def _lose_lease(self) -> None:
        self._services.counts.leases_lost += 1
        write_event(_log, LeaseLost(), self._context)
        if self._scope is not None:
            self._scope.cancel()

    async def _failed(self, error: Exception) -> WorkOutcome:
        """Retry after an error outside the agent, or make the work a dead letter."""
        decision = self._services.retry.decide(error, self._assignment.next_failure(), random())  # noqa: S311  # no secret
        if isinstance(decision, Retry):
            self._assignment.log_retry(error, decision.delay)
            return Later(decision.delay)
        try:
            await self._assignment.dead_letter(error)
        except Unavailable:
            return self._assignment.later()
        return Done()

    async def _nack(self) -> None:
        """Return unfinished work at once, so other workers need not wait until this worker counts as dead."""
        services, work = self._services, self._assignment.work
        lease = self._lease or self._assignment.granted
        try:
            if lease is not None:
                services.counts.handed_back += 1
                await services.leases.release((lease,))
            if work is not None:
                await services.consumer.nack(work)
        except BusError as error:
            _log.info("session %s was not returned and has to be claimed: %s", self.session, error)
