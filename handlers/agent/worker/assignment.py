"""A session's work in a worker's hands, and what becomes of it when it is not simply done."""

import asyncio
from typing import NamedTuple

from lanebus.bus.groups.consumer import Work
from lanebus.bus.log.lease import Lease
from lanebus.bus.servers.backoff import Backoff
from lanebus.handlers.agent.worker.services import WorkerServices

__all__ = ("Assignment", "Done", "Later", "Left", "WorkOutcome", "error_text")


class Done(NamedTuple):
    """Nothing is left to do, or it is not this worker's to do any more: the work is acknowledged."""

    lease: Lease | None = None
    """to be released"""


class Left(NamedTuple):
    """What is left to do is another worker's, now or later, and the work was given back."""


class Later(NamedTuple):
    """Try again here."""

    seconds: float


WorkOutcome = Done | Left | Later


def error_text(error: Exception) -> str:
    """Return an error as the log and the dead letter have it."""
    return f"{type(error).__name__}: {error}"


class Assignment:
    """The work that a session came with. It changes while the session is worked on: the session may come again, or
    become another worker's."""

    def __init__(self, services: WorkerServices) -> None:
        self._services = services
        self.work: Work | None = None
        self.granted: Lease | None = None
        """came with the work, and is not used yet"""
        self.woken = asyncio.Event()
        """set when the session came again, and when the worker stops"""
        self.read_up_to = 0
        """the session was looked at up to here"""
        self.attempt = 1
        self._failures = 0
        self.backoff = Backoff(services.bounds.pause, services.bounds.longest_pause)

    def add(self, work: Work) -> None:
        """Take the session's newest work."""
        self.work, self.granted = work, work.lease
        self.backoff.reset()
        self.woken.set()

    def drop(self, work: Work) -> None:
        """Forget a work that is another worker's by now."""
        if self.work == work:
            self.work = None

    def done(self, lease: Lease, read_up_to: int) -> Done:
        """Nothing is left to do as of a position."""
        self.backoff.reset()
        self.read_up_to = read_up_to
        return Done(lease)

    def later(self) -> Later:
        """Try again after a pause, which doubles each time."""
        return Later(self.backoff.advance())

    def next_failure(self) -> int:
        """Count a failure outside of the agent; returns how many there were."""
        self._failures += 1
        return self._failures

    async def dead_letter(self, error: Exception, raw: bytes = b"", read_up_to: int = 0) -> None:
        """Make the work a dead letter.

        Args:
            raw: the message that the agent failed at, encoded.
            read_up_to: everything up to here counts as done.
        """
        if (work := self.work) is not None:
            reason, attempts = error_text(error), self.attempt
            await self._services.consumer.dead_letter(work, reason=reason, attempts=attempts, raw=raw, seen=read_up_to)
            self.drop(work)

    async def reschedule(self, lease: Lease, delay: float, reason: str, *, attempts: int) -> Left:
        """Give the session back for later, and let it rest until then.

        Args:
            attempts: how many have failed.
        """
        # In this order: the work is due once the rest is over.
        await self._services.leases.release((lease,), rest=delay)
        work, self.work = self.work, None
        if work is not None:
            await self._services.consumer.nack(work, delay=delay, error=reason, attempts=attempts)
        self._services.counts.rescheduled += 1
        return Left()

    async def postpone(self, seconds: float) -> Left:
        """Give the session back untried: another worker has the lease, or the session rests until its next attempt.

        Args:
            seconds: until it may be tried.
        """
        work, self.work = self.work, None
        if work is not None:
            await self._services.consumer.nack(work, delay=seconds, error=work.error, attempts=work.attempt - 1)
        return Left()
