"""The work of one session at a worker, which acks the work, retries it later, or returns it to the group."""

import asyncio
import logging
from typing import NamedTuple

from lanebus.bus.error_text import describe_error
from lanebus.bus.errors import Refused
from lanebus.bus.groups.work import Work
from lanebus.bus.log.lease import Lease
from lanebus.bus.servers.backoff import Backoff
from lanebus.handlers.agent.worker.services import WorkerServices
from lanebus.handlers.monitoring.log_events import WorkDead, WorkRetried, write_event

__all__ = ("Assignment", "Done", "Later", "Left", "WorkOutcome")

_log = logging.getLogger(__name__)


class Done(NamedTuple):
    """This worker has nothing left to do in the session.

    The caller releases the lease, and acks the work unless the session was woken meanwhile.
    """

    lease: Lease | None = None
    """the lease to release; None if none is held"""


class Left(NamedTuple):
    """The work was returned to the group; another worker gets it, or the same worker later."""


class Later(NamedTuple):
    """This worker tries again later."""

    seconds: float


WorkOutcome = Done | Left | Later


def _error_kind(error: Exception) -> str:
    """Return the kind of an error for a line of the log, without its text, which may quote a message."""
    return error.code if isinstance(error, Refused) else type(error).__name__


class Assignment:
    """The current work of a session.

    The work changes while the task runs: the session may be delivered again, or another worker may claim it.
    """

    def __init__(self, services: WorkerServices) -> None:
        self._services = services
        self.work: Work | None = None
        self.agent = ""
        """the agent that the session belonged to when it was delivered"""
        self.granted: Lease | None = None
        """the lease that was delivered with the work and is not used yet"""
        self.woken = asyncio.Event()
        """set when the session is delivered again, or when the worker stops"""
        self.read_up_to = 0
        """position up to which the session was read and left nothing to do"""
        self.attempt = 1
        self.trace = ""
        """trace context of the agent's last run; "" before the first, and without tracing"""
        self._failures = 0
        self.backoff = Backoff(services.bounds.first_pause_seconds, services.bounds.longest_pause_seconds)

    def add(self, work: Work) -> None:
        """Replace the session's work by newer work."""
        self.work, self.granted, self.agent = work, work.lease, work.agent
        self.backoff.reset()
        self.woken.set()

    def drop(self, work: Work) -> None:
        """Forget work that another worker has claimed."""
        if self.work == work:
            self.work = None

    def done(self, lease: Lease, read_up_to: int) -> Done:
        """Record that nothing is left to do up to `read_up_to`, and return the outcome."""
        self.backoff.reset()
        self.read_up_to = read_up_to
        return Done(lease)

    def later(self) -> Later:
        """Return the outcome that makes this worker try again after the next pause of the backoff."""
        return Later(self.backoff.advance())

    def next_failure(self) -> int:
        """Count a failure that the agent did not raise, and return the number of such failures so far."""
        self._failures += 1
        return self._failures

    def _traces_of(self, work: Work) -> dict[str, str]:
        return {work.session: self.trace} if self.trace else {}

    async def dead_letter(self, error: Exception, raw: bytes = b"", read_up_to: int = 0) -> None:
        """Make the work a dead letter.

        Args:
            error: why the work is given up.
            raw: the message at which the agent failed, encoded.
            read_up_to: messages up to this position need no more work.
        """
        if (work := self.work) is not None:
            reason, attempts, services = describe_error(error), self.attempt, self._services
            letter = await services.consumer.dead_letter(
                work, reason=reason, attempts=attempts, raw=raw, seen=read_up_to, traces=self._traces_of(work)
            )
            services.counts.dead_letters += bool(letter)
            write_event(_log, WorkDead(letter=letter, attempts=attempts, error=_error_kind(error)))
            self.drop(work)

    def log_retry(self, error: Exception, seconds: float) -> None:
        """Log that the session is tried again in `seconds`, because of an error."""
        self._services.counts.retries += 1
        write_event(_log, WorkRetried(attempt=self.attempt, seconds=round(seconds, 3), error=_error_kind(error)))

    async def reschedule(self, lease: Lease, delay: float, error: Exception, reason: str, *, attempts: int) -> Left:
        """Nack the work with a delay. The session is not due until the delay has passed.

        Args:
            lease: the session's lease, which is released.
            delay: seconds until the next attempt.
            error: the error that ended this attempt.
            reason: recorded with the work.
            attempts: failed attempts so far.
        """
        self._services.heartbeat.end(lease)
        # Release first, so that the work is due only after the rest has ended.
        await self._services.leases.release((lease,), rest=delay)
        work, self.work = self.work, None
        if work is not None:
            await self._services.consumer.nack(
                work, delay=delay, error=reason, attempts=attempts, traces=self._traces_of(work)
            )
        self._services.counts.rescheduled += 1
        self.log_retry(error, delay)
        return Left()

    async def postpone(self, seconds: float) -> Left:
        """Nack the work without counting an attempt: another worker has the lease, or the session is not due yet.

        Args:
            seconds: delay until the next attempt.
        """
        work, self.work = self.work, None
        if work is not None:
            await self._services.consumer.nack(work, delay=seconds, error=work.error, attempts=work.attempt - 1)
        return Left()
