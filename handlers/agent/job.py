"""One session in a worker's hands: from when it is given until there is nothing to do in it.

A session is given to one worker of a group at a time. It looks into the log until it finds nothing to do, and
acknowledges up to where it looked: a message that comes behind that has the session given again, and none is lost in
between.

The lease may be another's all the same: of a worker that died or is taken for dead, of another group, of no worker at
all. Whoever is given such a session puts it off until the lease runs out. That it asked is noted with the lease,
whose release then wakes the session, and it is given at once.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import random
from typing import NamedTuple, cast

import anyio

from bus.codec import encode
from bus.consumer import Consumer, Work
from bus.envelope import Unreadable
from bus.errors import (
    ArchiveDamaged,
    BusError,
    CursorTrimmed,
    Fenced,
    LogRolledBack,
    SessionClosed,
    SessionErased,
    Unavailable,
)
from bus.leases import Leases, Taking
from bus.log import FirstPage, Lease
from bus.messages.delta import Delta
from bus.messages.message import AssistantMessage, now_ms
from bus.retry_policy import Retry, RetryPolicy
from handlers.agent.bounds import WorkerBounds
from handlers.agent.ending import fail_loop
from handlers.agent.errors import TryAgain
from handlers.agent.finishing import Finishing
from handlers.agent.heartbeat import Heartbeat
from handlers.agent.marks import SEEN
from handlers.agent.obeying import refuse, refused
from handlers.agent.redriven import reopening
from handlers.agent.run import Agent, Run
from handlers.agent.slots import Place
from handlers.agent.standing import read_standing
from handlers.agent.status import Command, Status
from handlers.agent.warm import View, WarmSession, WarmSessions
from handlers.agent.worker_counts import WorkerCounts

__all__ = ("Agents", "Job", "Shared", "agents_below")

_log = logging.getLogger(__name__)


def agents_below(agent: Agent) -> Mapping[str, Agent]:
    """The sub-agents of a loop by name; none of an agent that is a function."""
    return cast("Mapping[str, Agent]", getattr(agent, "agents", {}))


class Agents:
    """Which agent works a session: the one that it was begun for, else the worker's own."""

    def __init__(self, own: Agent, named: Mapping[str, Agent]) -> None:
        self._own, self._named = own, named
        self._unknown: set[str] = set()

    def of(self, status: Status) -> Agent | None:
        """None: another group's workers know it. The process's log tells of each name once."""
        if status.link is None:
            return self._own
        name = status.link.agent
        agent = self._named.get(name)
        if agent is None and name not in self._unknown:
            self._unknown.add(name)
            _log.warning("sessions for the agent %r are left alone: this worker does not know it", name)
        return agent


@dataclass(frozen=True, slots=True)
class Shared:
    """What all jobs of a worker use."""

    owner: str
    heartbeat_seconds: float
    agents: Agents
    retry: RetryPolicy
    leases: Leases
    consumer: Consumer
    heartbeat: Heartbeat
    finishing: Finishing
    warm: WarmSessions
    tally: WorkerCounts
    bounds: WorkerBounds


class _Over(NamedTuple):
    """There is nothing to do, or it is no longer ours to do: the work that is left is done with."""

    lease: Lease | None = None
    """to be given back"""


class _Left(NamedTuple):
    """What there is to do is another one's, now or later; and so was the work."""


class _Wait(NamedTuple):
    """To be tried again here."""

    seconds: float


_Step = _Over | _Left | _Wait


class Job:
    """Looks after a session. `serve` is its task."""

    def __init__(self, session: str, shared: Shared, place: Place, ended: Callable[["Job"], None]) -> None:
        """`ended` is called as soon as no work may be added any more."""
        self.session = session
        self._shared, self._place, self._ended = shared, place, ended
        self._work: Work | None = None
        self._granted: Lease | None = None
        """taken with the work, and not used yet"""
        self._seen = 0
        """up to which position the session was looked at"""
        self._rung = asyncio.Event()
        self._scope: anyio.CancelScope | None = None
        self._all = anyio.CancelScope()
        self._lease: Lease | None = None
        self._pause = self._shared.bounds.pause
        self._attempt, self._failures = 1, 0
        self._is_stopping = False
        self._is_read = False
        """what is known of the session was read under the lease"""

    def add(self, work: Work) -> None:
        """The session was given to us; again, if it was another's meanwhile."""
        self._work, self._granted = work, work.lease
        self._pause = self._shared.bounds.pause
        self._rung.set()

    def drop(self, work: Work) -> None:
        """A work is another worker's by now."""
        if self._work == work:
            self._work = None

    def stop(self) -> None:
        """Wait for nothing any more: what is not being worked on is handed back."""
        self._is_stopping = True
        self._rung.set()

    def hand_back(self) -> None:
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
                with anyio.CancelScope(shield=True), anyio.move_on_after(self._shared.bounds.hand_back):
                    await self._hand_back()
            self._place.give_back()

    async def _serve(self) -> bool:
        """Gives False where it has to hand back."""
        await self._place.take()
        while True:
            match await self._try():
                case _Over(lease):
                    if not self._rung.is_set():
                        # Without an await: work that comes from now on starts a job of its own.
                        self._ended(self)
                        if lease is not None:
                            self._shared.finishing.release(lease)
                        if self._work is not None:
                            self._shared.finishing.ack(self._work, self._seen)
                        return True
                    if lease is not None:
                        self._shared.finishing.release(lease)
                case _Left():
                    if self._work is None:
                        self._ended(self)
                        return True
                case _Wait(seconds):
                    self._place.give_back()  # none is held while waiting
                    if not self._is_stopping and self._work is not None:
                        with anyio.move_on_after(seconds):
                            await self._rung.wait()
                    if self._is_stopping or self._work is None:
                        return self._work is None  # it is another worker's by now
                    await self._place.take()

    async def _try(self) -> _Step:
        """Take the lease and work the session off."""
        shared = self._shared
        try:
            with shared.warm.held(self.session) as warm:
                return await self._try_with(warm)
        except (SessionClosed, SessionErased):
            return _Over()  # nothing can be said in it any more
        except LogRolledBack as error:
            _log.warning("session %s is read again from its start: %s", self.session, error)
        except Unavailable as error:
            _log.warning("session %s is tried again: %s", self.session, error)
        except Exception as error:  # noqa: BLE001  # other sessions go on
            _log.exception("session %s could not be worked on", self.session)
            return await self._cannot(error)
        return self._wait()

    async def _try_with(self, warm: WarmSession) -> _Step:
        # Whatever woke the session until now is in the log, and is seen by the looks that follow.
        self._rung, self._seen = asyncio.Event(), 0
        if (lease := self._granted) is not None and self._work is not None:
            return await self._begin(lease, self._work, warm)
        taken = anyio.current_time()
        taking = await self._take(warm, also_resting=False)
        if taking.rests_seconds:
            if not (await warm.refresh()).status.commands:
                return await self._leave_for(taking.rests_seconds)
            taking = await self._take(warm, also_resting=True)
        if taking.lease is None:
            return await self._leave_for(max(taking.held_seconds, self._pause))
        self._attempt = 1 if self._work is None else self._work.attempt
        return await self._hold(taking.lease, taken, warm)

    async def _begin(self, lease: Lease, work: Work, warm: WarmSession) -> _Step:
        """Work with the lease that was taken with the work."""
        self._attempt = work.attempt
        heartbeat = self._shared.heartbeat
        heartbeat.hold(lease, work.asked, self._depose)  # reading a long session may take longer than a lease lasts
        try:
            await self._read(warm, work.page)
        except BaseException:
            heartbeat.let_go(lease)
            raise
        self._granted = None  # good for one try: the next takes one anew
        return await self._hold(lease, work.asked, warm)

    async def _take(self, warm: WarmSession, *, also_resting: bool) -> Taking:
        """Take the lease, and read what is new in the same step: the first look is then free."""
        shared, page = self._shared, warm.first_page()
        if page is None:  # all of it is read before: a lease could run out meanwhile
            with suppress(CursorTrimmed, ArchiveDamaged):
                await warm.refresh()
            page = warm.first_page()
        taking = await shared.leases.take(
            self.session, shared.owner, shared.heartbeat_seconds, also_resting=also_resting, page=page
        )
        if taking.lease is not None:
            await self._read(warm, page)
        return taking

    async def _read(self, warm: WarmSession, page: FirstPage | None) -> None:
        """Read what is new under the lease."""
        self._is_read = False
        with suppress(CursorTrimmed, ArchiveDamaged):  # who works with the lease tells the user
            await warm.refresh(page)
            self._is_read = True

    async def _cannot(self, error: Exception) -> _Step:
        """Something is wrong with the session, or with us, before or after its agent runs."""
        self._failures += 1
        decision = self._shared.retry.decide(error, self._failures, random())  # noqa: S311  # to come apart
        if isinstance(decision, Retry):
            return _Wait(decision.delay)
        try:
            await self._set_aside(error, b"", 0)
        except Unavailable:
            return self._wait()
        return _Over()

    def _wait(self) -> _Wait:
        seconds, self._pause = self._pause, min(self._pause * 2, self._shared.bounds.longest_pause)
        return _Wait(seconds)

    async def _hold(self, lease: Lease, taken: float, warm: WarmSession) -> _Step:
        """Work with the lease in hand. It is given back by whoever ends the job, or here after an error."""
        shared = self._shared
        step: _Step | None = None
        self._lease = lease
        shared.heartbeat.hold(lease, taken, self._depose)
        try:
            with anyio.CancelScope() as self._scope:
                step = await self._work_off(lease, warm)
        except Exception:
            shared.heartbeat.let_go(lease)
            self._lease = None
            shared.finishing.release(lease)
            raise
        shared.heartbeat.let_go(lease)
        self._lease = None
        return step or self._wait()  # another one has it, or it cannot be known

    def _depose(self) -> None:
        self._shared.tally.deposed += 1
        _log.warning("session %s: the lease was lost", self.session)
        if self._scope is not None:
            self._scope.cancel()

    async def _work_off(self, lease: Lease, warm: WarmSession) -> _Step:
        """Run the agent until nothing is left to do, also what comes meanwhile."""
        shared = self._shared
        run = Run(warm.session, lease, warm, place=self._place, bounds=shared.bounds.run)
        if self._is_read:
            run.prime()
        try:
            if self._attempt > self._deaths:
                view = await run.refresh()
                error = RuntimeError(f"given {self._attempt - 1} times without an outcome")
                return await self._give_up(run, view, error)
            at, ignored = -1, 0
            oldest: tuple[Command, ...] = ()
            while True:
                view = await run.refresh()
                agent = shared.agents.of(view.status) if read_standing(*view).has_work else None
                if agent is None and self._rung.is_set():
                    self._rung = asyncio.Event()
                    continue
                if agent is None and await self._reopen(run, view):
                    continue
                if agent is None:
                    self._pause, self._seen = self._shared.bounds.pause, run.position
                    await warm.store()
                    return _Over(lease)
                commands = view.status.commands
                ignored = ignored + 1 if commands and commands[:1] == oldest else 0
                oldest = commands[:1]
                if commands and (run.position == at or ignored >= shared.bounds.ignored):
                    # An agent that is a function may know none. They would keep it busy for ever.
                    await refuse(run, commands, "this agent answers no commands")
                    continue
                if run.position == at:
                    return await self._give_up(run, view, RuntimeError("the agent did nothing"))
                at = run.position
                if (step := await self._call(agent, run, view)) is not None:
                    return step
                if run.is_finished and not self._rung.is_set():
                    self._pause, self._seen = self._shared.bounds.pause, run.position
                    await warm.store()
                    return _Over(lease)
        except Fenced:
            self._depose()
            return self._wait()
        except (CursorTrimmed, ArchiveDamaged) as error:
            # No context can be made of what is left, by nobody: the user is told, as nothing else would come.
            _log.error("session %s cannot be worked on: %s", self.session, error)
            seen = (await run.session.head()).position
            try:
                await self._record(run, error, seen)
            except Fenced:  # another worker has the session, and tells of it
                self._depose()
                return self._wait()
            await self._set_aside(error, b"", seen)
            return _Over(lease)

    @property
    def _deaths(self) -> int:
        """After how many attempts it counts as deadly. Those of work that was put off after errors count for its policy
        first, which ends those that nobody died of."""
        deaths = self._shared.bounds.deaths
        return deaths + (self._shared.retry.attempts if self._work is not None and self._work.error else 0)

    async def _call(self, agent: Agent, run: Run, view: View) -> _Step | None:
        """Run the agent once; None if it has to be looked again."""
        shared = self._shared
        shared.tally.runs += 1
        run.prime()
        try:
            await agent(run)
        except (Unavailable, LogRolledBack, CursorTrimmed, ArchiveDamaged, Fenced, SessionClosed, SessionErased):
            raise
        except TryAgain as error:
            return await self._put_off(run.lease, error.delay, error.reason, tried=self._attempt - 1)
        except Exception as error:  # noqa: BLE001  # a session's poison is its own
            _log.exception("session %s: the agent failed, attempt %d", self.session, self._attempt)
            decision = shared.retry.decide(error, self._attempt, random())  # noqa: S311  # to come apart, not to hide
            if isinstance(decision, Retry):
                return await self._put_off(run.lease, decision.delay, _text(error), tried=self._attempt)
            return await self._give_up(run, view, error)
        if run.is_deposed:
            raise Fenced(self.session, run.lease.epoch, run.lease.epoch + 1)
        self._attempt = 1
        return None

    async def _reopen(self, run: Run, view: View) -> bool:
        """Have answered what a dead letter was set aside for, if one was sent on its way again."""
        work = self._work
        if work is None or not work.is_retry or work.attempt > 1:
            return False
        if (found := reopening(view.context.path, work.error)) is None:
            return False
        answer, position = found
        await run.publish(answer, key=f"redriven.{position}")
        return True

    # --- what cannot be done now, or not at all -------------------------------------------------------------------

    async def _give_up(self, run: Run, view: View, error: Exception) -> _Step:
        """Say in the log that the agent failed, and set aside what it failed at: that is not tried again.

        It stops here, even if there is more to do, such as a command that the agent cannot obey either: whoever wakes
        the session next, or has since it was looked at, has it tried again.
        """
        prompts = read_standing(*view).prompts
        raw = b""
        for envelope in view.context.path:
            if prompts and envelope.position == prompts[-1] and not isinstance(envelope.message, Unreadable | Delta):
                raw = encode(envelope.message)
        now = await run.refresh()  # what the agent has said, and the loop it began, if it got so far
        seen = max(view.context.position, read_standing(*now).seen)
        left = [command for command in view.status.commands if command in now.status.commands]
        also = refused(left, "the agent failed")
        await fail_loop(run, now, _text(error), seen=seen, key=f"failed.{seen}.{run.position}", also=also)
        self._shared.tally.given_up += 1
        await self._set_aside(error, raw, seen)
        self._attempt = 1
        return _Over(run.lease)

    async def _record(self, run: Run, error: Exception, seen: int) -> None:
        """Say in the log that nobody can read the session any more: what cannot be answered counts as answered.

        It has a key by what woke the session, as its answer may be lost, and the end of the log has then moved on.
        """
        failed = AssistantMessage(
            stop_reason="error", error_message=_text(error), metadata={SEEN: seen}, timestamp=now_ms()
        )
        await run.publish(failed, key=f"unreadable.{seen if self._work is None else self._work.position}")
        self._shared.tally.given_up += 1

    async def _set_aside(self, error: Exception, raw: bytes, seen: int) -> None:
        """Make the work a dead letter."""
        if (work := self._work) is not None:
            consumer = self._shared.consumer
            await consumer.set_aside(work, reason=_text(error), attempts=self._attempt, raw=raw, seen=seen)
            self.drop(work)

    async def _put_off(self, lease: Lease, delay: float, reason: str, *, tried: int) -> _Step:
        """Leave the session for later, and let it rest until then."""
        shared = self._shared
        # In this order: the work is due once the rest is over.
        await shared.leases.release((lease,), rest=delay)
        work, self._work = self._work, None
        if work is not None:
            await shared.consumer.retry(work, delay=delay, error=reason, attempts=tried)
        shared.tally.put_off += 1
        return _Left()

    async def _leave_for(self, seconds: float) -> _Step:
        """Put it off without having tried: another one has the lease, or a new message came for a session that waits
        for its next attempt, and waits with it."""
        work, self._work = self._work, None
        if work is not None:
            await self._shared.consumer.retry(work, delay=seconds, error=work.error, attempts=work.attempt - 1)
        return _Left()

    async def _hand_back(self) -> None:
        """Give an unfinished session to another worker at once, rather than when our silence is noticed."""
        shared, lease, work = self._shared, self._lease or self._granted, self._work
        try:
            if lease is not None:
                shared.heartbeat.let_go(lease)
                shared.tally.handed_back += 1
                await shared.leases.release((lease,))
            if work is not None:
                await shared.consumer.hand_back(work)
        except BusError as error:
            _log.info("session %s is left to be claimed: %s", self.session, error)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
