"""A worker, which fetches sessions that have work and runs their loops concurrently. It loads agents by name."""

import asyncio
import gc
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from secrets import token_urlsafe
from types import TracebackType
from typing import NamedTuple, Self, Unpack, cast

import anyio
from anyio.abc import TaskGroup

from lanebus.bus import Bus, RetryPolicy, Start, Work, first_error
from lanebus.bus.errors import BusError, SetupError, require_count, require_instance, require_seconds, require_text
from lanebus.handlers.agent.bounds import DEFAULT_WORKER_BOUNDS, WorkerBounds
from lanebus.handlers.agent.errors import AgentNotFound, ModelNotFound
from lanebus.handlers.agent.health import (
    ACK,
    WORK,
    DrainBegun,
    DrainEnded,
    KeysMany,
    LogContext,
    LogWatch,
    ServerHealth,
    WorkerBegun,
    WorkerCounts,
    WorkerEnded,
    WorkerStatus,
    write_event,
)
from lanebus.handlers.agent.models.model import Model
from lanebus.handlers.agent.models.offline import OfflineModel
from lanebus.handlers.agent.models.provider_model import ModelOptions
from lanebus.handlers.agent.run import Agent
from lanebus.handlers.agent.settings import check_runnable, is_sync
from lanebus.handlers.agent.tasks import SyncCalls, in_background
from lanebus.handlers.agent.turn.loop_state import SessionCache
from lanebus.handlers.agent.worker.services import AckBatcher, AgentRegistry, Heartbeat, WorkerServices
from lanebus.handlers.agent.worker.session_task import ConcurrencyLimiter, SessionTask
from lanebus.handlers.projections import TargetNotFound, load_object

HEARTBEAT_SECONDS = 5.0
"""seconds after which a silent worker counts as dead"""

DRAIN_SECONDS = 30.0
"""seconds that a stopping worker waits for its running sessions to end"""

RETRY = RetryPolicy(attempts=3, base=0.5, longest=60.0)
"""Retry policy for errors that an agent raises. `AgentLoop` itself retries failed model calls."""

_log = logging.getLogger(__name__)


class Worker:
    """Runs an agent on the sessions of a bus that have work.

    `async with Worker(bus, agent):` runs the worker in the background of a block. A program that does nothing else
    awaits `run`.
    """

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
            bus: the bus.
            agent: the agent that runs the sessions of its name, `agent.name`; without a name those of the bus's default
                agent. Its sub-agents run the sessions of their names.
            agents: more agents by name. Sessions of other names are left to other workers.
            group: consumer group. Its workers share the sessions of each agent that they serve.
            name: the worker's name, unique in its group. A restarted worker with the same name gets the unfinished work
                of that name at once. None makes a name from host and process id.
            start: where a new group begins: "beginning" with every session that ever woke a worker, or "now".
            concurrency: maximum number of sessions that run at a time.
            heartbeat: seconds without a heartbeat after which other workers take over the sessions of this worker.
            drain_seconds: longest time that running sessions have to finish after `stop`; unfinished sessions are
                returned to the group.
            retry: retry policy for a session whose agent raised an error.
            bounds: limits and periods that rarely need another value.

        Raises:
            InvalidArgument: an argument has a wrong type, or a number is too small.
            InvalidName: the name of the group, of the worker or of an agent has other characters, or is too long.
            DuplicateAgent: two agents have the same name.
        """
        WorkerArguments(bus, agent, agents, name, concurrency, drain_seconds, retry, bounds).check()
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.counts = WorkerCounts()
        """counters for monitoring"""
        self._context = LogContext(worker=self.name)
        self.health = ServerHealth(self._context, self._note_found)
        """whether the server answers this worker"""
        self._group, self._concurrency, self._is_running, self._log = group, concurrency, False, bus.log
        self._drain_seconds, self._bounds = drain_seconds, bounds
        # Not the name alone: two processes of the same name would take each other's leases.
        owner = f"{self.name}.{token_urlsafe(6)}"
        cache = SessionCache(partial(bus.session, grouped=True), bounds)
        registry = AgentRegistry(agent, agents or {}, bus.default_agent)
        self.agents = registry.names
        """the names of the agents whose sessions it runs"""
        self._consumer = bus.consumer(
            group,
            self.name,
            agents=self.agents,
            heartbeat=heartbeat,
            start=start,
            owner=owner,
            first_page=cache.first_page,
        )
        self.log_watch = LogWatch(
            bus.namespace, self._context, pause=bounds.look_seconds, seconds=heartbeat / bounds.renewals
        )
        """whether the server still has the log that this worker knew"""
        self._heartbeat = Heartbeat(
            bus.leases, self._consumer, heartbeat, self._drop, beats=bounds.renewals, health=self.health
        )
        self._acks = AckBatcher(
            bus.leases, self._consumer, self._note_done, health=self.health, pause=heartbeat / bounds.renewals
        )
        self._services = WorkerServices(
            worker=self.name,
            owner=owner,
            heartbeat_seconds=heartbeat,
            agents=registry,
            retry=retry,
            leases=bus.leases,
            consumer=self._consumer,
            heartbeat=self._heartbeat,
            acks=self._acks,
            cache=cache,
            counts=self.counts,
            bounds=bounds,
            tracing=bus.tracing,
            health=self.health,
            sync_calls=SyncCalls(bounds.run),
        )
        self._slots = ConcurrencyLimiter(concurrency)
        self._tasks: dict[str, SessionTask] = {}
        self._done: Sequence[Work] = ()
        """the last acked work; set while no session was running"""
        self._is_idle = anyio.Event()
        self._beat, self._found = heartbeat / bounds.renewals, anyio.Event()
        self._fetching: anyio.CancelScope | None = None
        self.begun = anyio.Event()
        """set once the worker has sent its first heartbeat, so that other programs know it"""
        self._stopping, self._handing_back = anyio.Event(), anyio.Event()
        self._stopping_at = 0.0
        self._block: AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> Self:
        """Start `run` in the background of the block.

        The end of the block cancels `run` and waits for it: partial answers are recorded, and the sessions are returned
        to the group.

        An error of `run` cancels the block and is raised at its end. An error of the block is raised as it is, never in
        an exception group.
        """
        self._block = in_background(self.run)
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        block, self._block = self._block, None
        return None if block is None else await block.__aexit__(kind, error, traceback)

    async def run(self) -> None:
        """Run sessions until `stop` is called.

        If `run` is cancelled, partial answers are recorded and the sessions are returned to the group.

        A session that fails never ends the worker. The session is retried according to `retry`. After the last attempt,
        the failure is recorded in the session's log, and the session's work becomes a dead letter.

        Raises:
            SetupError: the worker runs already.
            Refused: the server's user may not send the first heartbeat (code NOPERM). A right that is taken away later
                ends nothing: the worker retries until the user has it again.
            Closed: the bus was closed.
        """
        if self._is_running:
            raise SetupError(f"worker {self.name!r} runs already", "make another Worker for a second run at a time")
        self._is_running, has_begun = True, False
        try:
            if not self._stopping.is_set():
                await self._heartbeat.begin()
            has_begun = True
            self.begun.set()
            begun = WorkerBegun(group=self._group, concurrency=self._concurrency, agents=tuple(self.agents))
            write_event(_log, begun, self._context)
            async with in_background(
                self._heartbeat.run,
                self._acks.run,
                self._keep_warm,
                self._sweep,
                self._drain,
                self._probe,
                self.log_watch.run,
            ):
                async with anyio.create_task_group() as group:
                    await self._fetch_forever(group)
                await self._acks.flush()
                self._note_drained()
        except BaseExceptionGroup as group:
            raise first_error(group) from None
        finally:
            self._is_running = False
            with anyio.move_on_after(self._bounds.nack_seconds, shield=True):
                await self._leave(has_begun=has_begun)

    def stop(self) -> None:
        """Fetch no more work, finish the running sessions, and end `run`. A second call returns the running sessions to
        the group at once."""
        if self._stopping.is_set():
            self._handing_back.set()
        else:
            self._stopping_at = time.monotonic()
            begun = DrainBegun(sessions=len(self._tasks), seconds=self._drain_seconds)
            write_event(_log, begun, self._context)
        self._stopping.set()
        if self._fetching is not None:
            self._fetching.cancel()

    @property
    def status(self) -> WorkerStatus:
        """The present state, for monitoring."""
        return WorkerStatus(
            name=self.name,
            group=self._group,
            concurrency=self._concurrency,
            sessions=len(self._tasks),
            leases=len(self._heartbeat),
            calls=self._call_ages(),
            abandoned_threads=self._services.sync_calls.abandoned,
            is_running=self._is_running,
            is_draining=self._stopping.is_set(),
        )

    def _call_ages(self) -> dict[str, float]:
        ages, now = dict.fromkeys(self.agents, 0.0), time.monotonic()
        for agent, began in self._services.calls.values():
            ages[agent] = max(ages.get(agent, 0.0), now - began)
        return ages

    def _note_drained(self) -> None:
        seconds = round(time.monotonic() - self._stopping_at, 3)
        write_event(_log, DrainEnded(handed_back=self.counts.handed_back, seconds=seconds), self._context)

    async def _fetch_forever(self, group: TaskGroup) -> None:
        with anyio.CancelScope() as self._fetching:
            if self._stopping.is_set():
                return
            while True:
                # Back-pressure: a worker without a free slot leaves work to other workers.
                await self._slots.wait_free()
                await self.log_watch.wait_trusted()
                while {ACK, WORK} & self.health.faults.keys():  # other workers may have the rights that this one lacks
                    await self._found.wait()
                works = await self._consumer.fetch(max(self._slots.free, 1))
                await self.log_watch.wait_trusted()  # the log may have been emptied while the fetch waited
                for work in works:
                    self._give(work, group)
                await asyncio.sleep(0)  # let the tasks start before the next fetch, so turns start sooner

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

    def _note_found(self) -> None:
        """After a fault of the server, retry the sessions that wait for its end, and fetch again. The server may have
        come back without its log."""
        self.log_watch.look_soon()
        self._found.set()
        self._found = anyio.Event()
        for task in tuple(self._tasks.values()):
            task.retry()

    async def _probe(self) -> None:
        """While the server refuses what sessions ask for, retry one of them at each beat, so that the end is noticed
        soon."""
        probed: SessionTask | None = None
        while True:
            await anyio.sleep(self._beat)
            if WORK not in self.health.faults:
                continue
            if probed is not None and not probed.is_waiting and self._tasks.get(probed.session) is probed:
                continue  # its attempt is under way
            probed = next((task for task in self._tasks.values() if task.is_waiting), None)
            if probed is not None:
                self._tasks[probed.session] = self._tasks.pop(probed.session)  # the next beat retries another one
                probed.retry()
            elif not any(task.is_refused for task in self._tasks.values()):
                self.health.note(WORK, None)  # the next session shows whether the server still refuses

    async def _keep_warm(self) -> None:
        """While idle, read the entries that the last sessions appended, so their next turn starts sooner."""
        while True:
            await self._is_idle.wait()
            self._is_idle = anyio.Event()
            for work in self._done:
                if not self._tasks:
                    await self._services.cache.catch_up(work.session)

    async def _sweep(self) -> None:
        """Drop what the worker remembers of erased sessions, and count the publish keys of the others."""
        warned = set[str]()
        while True:
            await anyio.sleep(self._bounds.warm_sweep_seconds)
            with suppress(BusError):  # the next sweep tries again
                await self._services.cache.sweep(self._log)
                counts = await self._log.key_counts(self._services.cache.sessions)
                self.counts.most_keys = max(counts.values(), default=0)
                many = {session: count for session, count in counts.items() if count >= self._bounds.most_keys}
                for session in many.keys() - warned:
                    write_event(_log, KeysMany(keys=many[session]), LogContext(worker=self.name, session=session))
                warned = {*many}

    async def _drain(self) -> None:
        """After `stop`, end waiting tasks at once, and running tasks after `drain_seconds`."""
        await self._stopping.wait()
        for task in tuple(self._tasks.values()):
            task.stop()
        with anyio.move_on_after(self._drain_seconds):
            await self._handing_back.wait()
        for task in tuple(self._tasks.values()):
            task.nack()

    async def _leave(self, *, has_begun: bool) -> None:
        """Send the last acks and leave the group, so that other workers need not wait until this worker counts as
        dead."""
        has_left = False
        try:
            await self._acks.flush()
            await self._consumer.deregister()
            has_left = True
        except BusError as error:
            _log.debug("the worker did not leave its group: %s", error)
        finally:
            if has_begun:
                ended = WorkerEnded(group=self._group, runs=self.counts.runs, has_left=has_left)
                write_event(_log, ended, self._context)


async def run_worker(
    bus: Bus, target: str, *, group: str = "agents", name: str | None = None, concurrency: int = 32
) -> None:
    """Run the agent at `module:attribute` on a bus, until cancelled.

    Args:
        bus: the bus.
        target: see `load_agent`.
        group, name, concurrency: see `Worker`.

    Raises:
        AgentNotFound: there is no agent at `target`.
    """
    await Worker(bus, load_agent(target), group=group, name=name, concurrency=concurrency).run()


class WorkerArguments(NamedTuple):
    """The arguments of `Worker` that `check` checks. The other arguments are checked where they are used."""

    bus: object
    agent: object
    agents: object
    name: object
    concurrency: object
    drain_seconds: object
    retry: object
    bounds: object

    def check(self) -> None:
        """Raise InvalidArgument if an argument has a wrong type, or a number is too small."""
        check_runnable("agent", self.agent)
        require_instance("agents", self.agents, Mapping, "pass a dict of agents by name", is_optional=True)
        for agent in cast("Mapping[object, object]", self.agents or {}).values():
            check_runnable("agents", agent)
        require_text("name", self.name, is_optional=True, is_filled=True)
        require_count("concurrency", self.concurrency, least=1)
        require_seconds("drain_seconds", self.drain_seconds)
        require_instance("retry", self.retry, RetryPolicy, "pass RetryPolicy(…)")


def collect_rarely() -> None:
    """Run the cyclic garbage collector less often. A worker then runs a third more turns per second.

    A worker keeps the histories of many sessions. These contain no cycles, but by default the collector scans them
    again and again. The function changes the whole process, so call it only in a process that only runs a
    worker.
    """
    gc.set_threshold(20_000, 50, 100)


# Find an agent or a model by name, for settings and the command line.


def load_agent(target: str) -> Agent:
    """Return the agent at `module:attribute` or `path/to/file.py:attribute`.

    For a module, the current directory is added to `sys.path`; for a file, the file's own directory is added.

    Args:
        target: such as "my_package.agents:support". The attribute may be dotted.

    Raises:
        AgentNotFound: the text has another form, there is no such module, file or attribute, or the object is not
            an agent: a plain `def`, for example.
        Exception: any error that the module raises while it is imported.
    """
    try:
        found = load_object(target, example="lanebus.handlers.agent.demo:agent")
    except TargetNotFound as error:
        raise AgentNotFound(target, error.reason) from None
    if not callable(found) or isinstance(found, type) or is_sync(found):
        name = target.rpartition(":")[2]
        raise AgentNotFound(target, f"{name!r} is no agent: use an AgentLoop or an async function of a Run")
    return cast("Agent", found)


def load_model(target: str, **options: Unpack[ModelOptions]) -> Model:
    """Return the model at `api/name`. API keys are read from the environment.

    Args:
        target: such as "anthropic/claude-sonnet-4-5", "openai/gpt-5", "openai-chat/gpt-5" or "gemini/gemini-2.5-pro".
            "offline/offline-1" needs no provider.
        options: see `ModelOptions`. The offline model ignores them.

    Raises:
        OptionUnknown: an option is not one of `ModelOptions`.
        ModelNotFound: the text has another form, or names an unknown API.
        MissingExtra: the API's SDK is not installed.
    """
    require_instance("target", target, str, 'pass a text such as "anthropic/claude-sonnet-4-5"')
    api, _, name = target.partition("/")
    if api not in _MAKERS or not name:
        raise ModelNotFound(target, tuple(_MAKERS))
    return _MAKERS[api](name, options)


def _anthropic(name: str, options: ModelOptions) -> Model:
    from lanebus.handlers.agent.models.provider_model import AnthropicModel  # noqa: PLC0415  # import only the SDK that is used

    return AnthropicModel(name, **options)


def _responses(name: str, options: ModelOptions) -> Model:
    from lanebus.handlers.agent.models.provider_model import OpenAIResponsesModel  # noqa: PLC0415

    return OpenAIResponsesModel(name, **options)


def _chat(name: str, options: ModelOptions) -> Model:
    from lanebus.handlers.agent.models.provider_model import OpenAIChatModel  # noqa: PLC0415

    return OpenAIChatModel(name, **options)


def _gemini(name: str, options: ModelOptions) -> Model:
    from lanebus.handlers.agent.models.provider_model import GeminiModel  # noqa: PLC0415

    return GeminiModel(name, **options)


_MAKERS: dict[str, Callable[[str, ModelOptions], Model]] = {
    "anthropic": _anthropic,
    "openai": _responses,
    "openai-chat": _chat,
    "gemini": _gemini,
    "offline": lambda name, _: OfflineModel(name=name),
}
