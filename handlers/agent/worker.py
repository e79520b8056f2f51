"""A worker: takes sessions that have something to do, one loop a session, many sessions side by side.

Who answers a message that comes while its session's lease is held? The holder, A, looks into the log until it finds
nothing to do, and then releases the lease; the message may come after that last look. If its pointer goes to A, A
looks again. If it goes to another worker, B, that one cannot tell whether A will read so far: A may be past its last
look, may die, or may be no worker at all. So B does not acknowledge the pointer on A's account. It tries the lease
again until it has it, and acknowledges once a look of its own finds nothing to do; if B dies, others claim its pointer.
"""

import logging
import os
import socket
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from secrets import token_urlsafe

import anyio
from anyio.abc import TaskGroup

from bus.bus import Bus
from bus.consumer import Work
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
from bus.log import Lease
from bus.messages.extension import ExtensionMessage
from bus.messages.message import AssistantMessage, now_ms
from bus.session import Session
from handlers.agent.load import load_agent
from handlers.agent.marks import SEEN
from handlers.agent.run import Agent, Run
from handlers.agent.standing import read_standing
from handlers.context.build import WarmContext

__all__ = ("Worker", "run_worker")

LEASE_SECONDS = 15.0
"""how long a dead worker's session waits at most for another one"""

RETRY_SECONDS = 0.25
LONGEST_RETRY_SECONDS = 5.0
"""between two tries for a session that another holds, or that could not be read; the pause doubles"""

HAND_BACK_SECONDS = 3.0

WARM_SESSIONS = 256
"""contexts kept between the turns of their sessions"""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    """A session that this worker looks after, and the pointers that asked for it."""

    session: Session
    works: list[Work] = field(default_factory=list[Work])
    is_rung: bool = False
    """a pointer came since the last look"""


class Worker:
    """Runs an agent on the sessions of a bus that have something to do."""

    def __init__(
        self,
        bus: Bus,
        agent: Agent,
        *,
        group: str = "agents",
        name: str | None = None,
        concurrency: int = 32,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """
        Args:
            group: workers of one group share the work; an agent of its own needs a group of its own.
            name: of this worker in its group, no other one's; after a restart it gets its unfinished work at once.
                None makes one of host and process.
            concurrency: most sessions at a time.
            lease_seconds: after so long without a sign of life another worker takes a session over.
        """
        self._bus, self._agent, self._seconds = bus, agent, lease_seconds
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        # Not the name alone: two processes that were given the same one would take each other's leases.
        self._owner = f"{self.name}.{token_urlsafe(6)}"
        self._consumer = bus.consumer(group, self.name, heartbeat=lease_seconds * 2)
        self._slots = anyio.Semaphore(concurrency)
        self._jobs: dict[str, _Job] = {}
        self._warm: OrderedDict[str, WarmContext] = OrderedDict()
        self._taking: anyio.CancelScope | None = None
        self._stopping = anyio.Event()

    async def run(self) -> None:
        """Work until `stop`. Cancelled, it hands back what it is at: what was said so far is recorded, another goes on.

        A session that fails is logged, gets an entry that says so, and never ends the worker.
        """
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as self._taking:
                if self._stopping.is_set():
                    return
                async with aclosing(self._consumer.work()) as works:
                    async for work in works:
                        await self._take(work, tasks)

    def stop(self) -> None:
        """Take nothing new; `run` ends when what was taken is finished."""
        self._stopping.set()
        if self._taking is not None:
            self._taking.cancel()

    async def _take(self, work: Work, tasks: TaskGroup) -> None:
        job = self._jobs.get(work.session)
        if job is None:
            # Back-pressure: while no slot is free nothing more is taken.
            await self._slots.acquire()
            job = self._jobs[work.session] = _Job(self._bus.session(work.session))
            tasks.start_soon(self._serve, job)
        if work not in job.works:  # one that was pending for long comes again
            job.works.append(work)
        job.is_rung = True

    # --- one session ----------------------------------------------------------------------------------------------

    async def _serve(self, job: _Job) -> None:
        """Look after a session until there is nothing to do in it, then acknowledge its pointers."""
        pause = RETRY_SECONDS
        has_slot = True
        is_done = False
        try:
            while not is_done:
                if await self._try(job):
                    is_done = not job.is_rung
                    continue
                # No slot is held while waiting: those who hold the lease have one of their own.
                self._slots.release()
                has_slot = False
                with anyio.move_on_after(pause):
                    await self._stopping.wait()
                    return  # its pointers stay pending, for others to claim
                pause = min(pause * 2, LONGEST_RETRY_SECONDS)
                await self._slots.acquire()
                has_slot = True
        finally:
            # Without an await in between: a pointer that comes now starts a job of its own.
            del self._jobs[job.session.id]
            if has_slot:
                self._slots.release()
        if is_done:
            await self._ack(job.works)

    async def _try(self, job: _Job) -> bool:
        """Take the lease and work the session off; False if it has to be tried again later."""
        session = job.session
        try:
            # Whatever rang until now is in the log, and is seen by the looks that follow.
            job.is_rung = False
            lease = await session.acquire_lease(self._owner, self._seconds)
            return lease is not None and await self._hold(job, lease)
        except (SessionClosed, SessionErased):
            return True  # nothing can be said in it any more
        except LogRolledBack as error:
            _log.warning("session %s is read again from its start: %s", session.id, error)
            self._warm.pop(session.id, None)
        except Unavailable as error:
            _log.warning("session %s is tried again: %s", session.id, error)
        except Exception:  # noqa: BLE001  # other sessions go on, and this one is tried again
            _log.exception("session %s could not be worked on", session.id)
        return False

    async def _hold(self, job: _Job, lease: Lease) -> bool:
        """Work with the lease in hand, and give it back; False if it was lost."""
        is_done = False
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._beat, job, lease, tasks.cancel_scope)
                try:
                    is_done = await self._work_off(job, lease)
                except Exception as error:  # noqa: BLE001  # raised below: out of the group it would come in another
                    failure = error
                tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(HAND_BACK_SECONDS, shield=True):
                await self._hand_back(job, lease)
            raise
        await job.session.release_lease(lease)
        if failure is not None:
            raise failure
        return is_done

    async def _beat(self, job: _Job, lease: Lease, scope: anyio.CancelScope) -> None:
        """Hold lease and pointers while the session is worked on; end the work once the lease is lost."""
        period = self._seconds / 3
        renewed = anyio.current_time()
        while True:
            await anyio.sleep(period)
            try:
                with anyio.fail_after(period):
                    if not await job.session.renew_lease(lease, self._seconds):
                        break
                    renewed = anyio.current_time()
                    await self._consumer.keep(*job.works)
            except SessionErased:
                break
            except (Unavailable, TimeoutError):
                if anyio.current_time() - renewed > self._seconds:
                    break
        _log.warning("session %s: the lease was lost", job.session.id)
        scope.cancel()

    async def _work_off(self, job: _Job, lease: Lease) -> bool:
        """Run the agent until nothing is left to do, also what comes meanwhile; False if the lease is lost."""
        run = Run(job.session, lease, self._context(job.session))
        try:
            while True:
                context = await run.context.refresh()
                if not read_standing(context).has_work:
                    return True
                try:
                    await self._agent(run)
                except (Unavailable, LogRolledBack, CursorTrimmed, ArchiveDamaged):
                    raise
                except (Fenced, SessionClosed, SessionErased):
                    raise
                except Exception as error:  # noqa: BLE001  # a session's poison is its own
                    _log.exception("session %s: the agent failed", job.session.id)
                    await self._record(run, error, context.position)
                    continue
                if (await run.context.refresh()).position == context.position:
                    if not await job.session.renew_lease(lease, self._seconds):
                        return False
                    await self._record(run, RuntimeError("the agent did nothing"), context.position)
        except Fenced:
            return False
        except (CursorTrimmed, ArchiveDamaged) as error:
            # No context can be made of what is left, by nobody: the user is told, as nothing else would come.
            self._warm.pop(job.session.id, None)
            _log.error("session %s cannot be worked on: %s", job.session.id, error)
            await self._record(run, error, (await job.session.head()).position)
            return True

    async def _record(self, run: Run, error: Exception, seen: int) -> None:
        """Say in the log that the session's agent failed. What it failed at counts as answered, and is not repeated."""
        failed = AssistantMessage(
            stop_reason="error",
            error_message=f"{type(error).__name__}: {error}",
            metadata={SEEN: seen},
            timestamp=now_ms(),
        )
        await run.publish(failed)

    async def _hand_back(self, job: _Job, lease: Lease) -> None:
        """Give an unfinished session to another worker at once, rather than when our pointer has grown old."""
        try:
            await job.session.release_lease(lease)
            note = ExtensionMessage.of("worker.stopped", {"worker": self.name})
            await job.session.publish(note, wake=True, seconds=HAND_BACK_SECONDS)
            await self._ack(job.works)
        except BusError as error:
            _log.info("session %s is left to be claimed: %s", job.session.id, error)

    async def _ack(self, works: Sequence[Work]) -> None:
        for work in works:
            try:
                await self._consumer.ack(work)
            except Unavailable as error:  # it comes again, and then nothing is to be done
                _log.info("session %s: a pointer was not acknowledged: %s", work.session, error)

    def _context(self, session: Session) -> WarmContext:
        warm = self._warm.pop(session.id, None) or WarmContext(session)
        self._warm[session.id] = warm
        while len(self._warm) > WARM_SESSIONS:
            self._warm.popitem(last=False)
        return warm


async def run_worker(
    bus: Bus, target: str, *, group: str = "agents", name: str | None = None, concurrency: int = 32
) -> None:
    """Run the agent at `module:attribute` on a bus, until cancelled.

    Raises:
        AgentNotFound: there is no agent at `target`.
    """
    await Worker(bus, load_agent(target), group=group, name=name, concurrency=concurrency).run()
