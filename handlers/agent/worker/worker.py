"""A worker: takes sessions that have something to do, one loop a session, many sessions side by side."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from secrets import token_urlsafe

import anyio
from anyio.abc import TaskGroup

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError
from lanebus.bus.groups.consumer import Start, Work
from lanebus.bus.groups.retry_policy import RetryPolicy
from lanebus.handlers.agent.bounds import DEFAULT_WORKER_BOUNDS, WorkerBounds
from lanebus.handlers.agent.load import load_agent
from lanebus.handlers.agent.run import Agent
from lanebus.handlers.agent.session_cache import SessionCache
from lanebus.handlers.agent.worker.ack_batches import AckBatcher
from lanebus.handlers.agent.worker.agent_registry import AgentRegistry, agents_below
from lanebus.handlers.agent.worker.concurrency import ConcurrencyLimiter
from lanebus.handlers.agent.worker.heartbeat import Heartbeat
from lanebus.handlers.agent.worker.services import WorkerServices
from lanebus.handlers.agent.worker.session_task import SessionTask
from lanebus.handlers.agent.worker.worker_counts import WorkerCounts

__all__ = ("DRAIN_SECONDS", "HEARTBEAT_SECONDS", "RETRY", "Worker", "run_worker")

HEARTBEAT_SECONDS = 5.0
"""how long a silent worker counts as alive"""

DRAIN_SECONDS = 30.0
"""how long a worker that was told to stop finishes what it has"""

RETRY = RetryPolicy(attempts=3, base=0.5, longest=60.0)
"""Model calls count their own attempts; what comes here are an agent's other errors."""

_log = logging.getLogger(__name__)


class Worker:
    """Runs an agent on the sessions of a bus that have something to do."""

    def __init__(
        self,
        bus: Bus,
        agent: Agent,
        *,
        agents: Mapping[str, Agent] | None = None,
        group: str = "agents",
        name: str | None = None,
        start: Start = "beginning",
        concurrency: int = 32,
        heartbeat: float = HEARTBEAT_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
        retry: RetryPolicy = RETRY,
        bounds: WorkerBounds = DEFAULT_WORKER_BOUNDS,
    ) -> None:
        """
        Args:
            agents: by name, for sessions that were begun for one of them. One that is begun for another is left alone.
            group: workers of one group share the work; an agent of its own needs a group of its own.
            name: of this worker in its group, no other one's; after a restart it gets its unfinished work at once.
                None makes one of host and process.
            start: where the group begins if it is new: with every session that ever woke a worker, or "now".
            concurrency: most sessions at a time.
            heartbeat: seconds without a sign of life after which other workers go on with its sessions.
            drain_seconds: how long `stop` lets it finish what it has; the rest is handed back.
            retry: what is done where the agent raises.
            bounds: limits and periods that seldom need another value.
        """
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.counts = WorkerCounts()
        """what became of its sessions so far"""
        self._drain_seconds, self._bounds = drain_seconds, bounds
        # Not the name alone: two processes that were given the same one would take each other's leases.
        owner = f"{self.name}.{token_urlsafe(6)}"
        cache = SessionCache(partial(bus.session, grouped=True), bounds)
        self._consumer = bus.consumer(
            group, self.name, heartbeat=heartbeat, start=start, owner=owner, first_page=cache.first_page
        )
        self._heartbeat = Heartbeat(bus.leases, self._consumer, heartbeat, self._drop, beats=bounds.beats)
        self._acks = AckBatcher(bus.leases, self._consumer, self._note_done)
        self._services = WorkerServices(
            owner=owner,
            heartbeat_seconds=heartbeat,
            agents=AgentRegistry(agent, {**agents_below(agent), **(agents or {})}),
            retry=retry,
            leases=bus.leases,
            consumer=self._consumer,
            heartbeat=self._heartbeat,
            acks=self._acks,
            cache=cache,
            counts=self.counts,
            bounds=bounds,
        )
        self._slots = ConcurrencyLimiter(concurrency)
        self._tasks: dict[str, SessionTask] = {}
        self._done: Sequence[Work] = ()
        """acknowledged last, with no other session at work"""
        self._is_idle = anyio.Event()
        self._fetching: anyio.CancelScope | None = None
        self._stopping, self._handing_back = anyio.Event(), anyio.Event()

    async def run(self) -> None:
        """Work until `stop`. Cancelled, it hands back what it is at: what was said so far is recorded, another goes on.

        A session that fails never ends the worker: it is tried again as `retry` says, then gets an entry that says so,
        and a dead letter.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._heartbeat.run)
                tasks.start_soon(self._acks.run)
                tasks.start_soon(self._keep_warm)
                tasks.start_soon(self._drain)
                async with anyio.create_task_group() as group:
                    await self._fetch_forever(group)
                await self._acks.flush()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(self._bounds.nack, shield=True):
                await self._leave()

    def stop(self) -> None:
        """Take nothing new, and finish what was taken; `run` ends then. Called again, it is handed back at once."""
        if self._stopping.is_set():
            self._handing_back.set()
        self._stopping.set()
        if self._fetching is not None:
            self._fetching.cancel()

    async def _fetch_forever(self, group: TaskGroup) -> None:
        with anyio.CancelScope() as self._fetching:
            if self._stopping.is_set():
                return
            while True:
                # Back-pressure: while no place is free nothing is read that another worker could do.
                await self._slots.wait_free()
                for work in await self._consumer.fetch(max(self._slots.free, 1)):
                    self._give(work, group)
                await asyncio.sleep(0)  # the tasks begin before more is waited for, so turns start sooner

    def _give(self, work: Work, group: TaskGroup) -> None:
        task = self._tasks.get(work.session)
        if task is None:
            task = self._tasks[work.session] = SessionTask(work.session, self._services, self._slots.slot(), self._end)
            group.start_soon(task.serve)
        task.add(work)

    def _end(self, task: SessionTask) -> None:
        if self._tasks.get(task.session) is task:
            del self._tasks[task.session]

    def _drop(self, works: Sequence[Work]) -> None:
        for work in works:
            if (task := self._tasks.get(work.session)) is not None:
                task.drop(work)

    def _note_done(self, works: Sequence[Work]) -> None:
        if not self._tasks:
            self._done = works
            self._is_idle.set()

    async def _keep_warm(self) -> None:
        """While nothing else is to be done, read what was said in sessions as they were worked on: their next turn has
        only what is new to read, and starts sooner."""
        while True:
            await self._is_idle.wait()
            self._is_idle = anyio.Event()
            for work in self._done:
                if not self._tasks:
                    await self._services.cache.catch_up(work.session)

    async def _drain(self) -> None:
        """Once it is to stop: end what only waits, and after a while what is still being worked on."""
        await self._stopping.wait()
        for task in tuple(self._tasks.values()):
            task.stop()
        with anyio.move_on_after(self._drain_seconds):
            await self._handing_back.wait()
        for task in tuple(self._tasks.values()):
            task.nack()

    async def _leave(self) -> None:
        """Leave nothing with this worker's name that others would have to wait for."""
        _log.info("worker %s ends: %s", self.name, self.counts)
        try:
            await self._acks.flush()
            await self._consumer.deregister()
        except BusError as error:
            _log.info("worker %s leaves its work to be claimed: %s", self.name, error)


async def run_worker(
    bus: Bus, target: str, *, group: str = "agents", name: str | None = None, concurrency: int = 32
) -> None:
    """Run the agent at `module:attribute` on a bus, until cancelled.

    Raises:
        AgentNotFound: there is no agent at `target`.
    """
    await Worker(bus, load_agent(target), group=group, name=name, concurrency=concurrency).run()
