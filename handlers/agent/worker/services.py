"""What all session tasks of a worker share: its agents, its heartbeat, its batches of acks, and its assignments."""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import anyio

from lanebus.bus import Consumer, Lease, Leases, RetryPolicy, Tracing, Work
from lanebus.bus.errors import Refused, Unavailable
from lanebus.bus.servers import Backoff
from lanebus.bus.text import describe_error
from lanebus.bus.wire import check_agent
from lanebus.handlers.agent.bounds import DEFAULT_WORKER_BOUNDS, WorkerBounds
from lanebus.handlers.agent.errors import DuplicateAgent
from lanebus.handlers.agent.health import ACK, ServerHealth, WorkDead, WorkerCounts, WorkRetried, write_event
from lanebus.handlers.agent.run import Agent
from lanebus.handlers.agent.tasks import SyncCalls
from lanebus.handlers.agent.turn.loop_state import SessionCache

# The agents that a worker knows by name, and which of them runs a session.


def agents_below(agent: Agent) -> Mapping[str, Agent]:
    """Return the sub-agents of an `AgentLoop` by name; empty for an agent that is a function."""
    return cast("Mapping[str, Agent]", getattr(agent, "agents", {}))


def name_of(agent: Agent, default: str) -> str:
    """Return the name of an agent: its attribute `name`, else `default`.

    Raises:
        InvalidName: the name does not match `[A-Za-z0-9_.-]{1,64}`.
    """
    name: object = getattr(agent, "name", None)
    return check_agent(name if isinstance(name, str) else default)


class AgentRegistry:
    """Finds the agent that runs a session, by the agent name of the session."""

    def __init__(self, own: Agent, named: Mapping[str, Agent], default: str) -> None:
        """
        Args:
            own: the worker's agent. Its sub-agents are known too.
            named: more agents, by name.
            default: the name of `own` if it has none.

        Raises:
            InvalidName: a name does not match `[A-Za-z0-9_.-]{1,64}`.
            DuplicateAgent: two agents have the same name.
        """
        self._own = own
        self._agents: dict[str, Agent] = {name_of(own, default): own}
        for name, agent in (*agents_below(own).items(), *named.items()):
            known = self._agents.setdefault(check_agent(name, "agents"), agent)
            if known is not agent and (known is own or name not in named):
                raise DuplicateAgent(name)
            self._agents[name] = agent

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all agents, the worker's own first."""
        return tuple(self._agents)

    def of(self, name: str) -> Agent:
        """Return the agent with this name. If there is none, return the worker's own agent."""
        return self._agents.get(name, self._own)


@dataclass(slots=True)
class _Held:
    lease: Lease
    renewed: float
    """time at which the last successful renewal was sent, by the local clock; on the server the lease lasts a little
    longer"""
    lost: Callable[[], None]


class Heartbeat:
    """Renews the leases and the work that this worker holds.

    The server's clock decides when a session can be taken over, and the lease's epoch fences appends. The local clock
    only ends work that another worker has probably taken over.
    """

    def __init__(
        self,
        leases: Leases,
        consumer: Consumer,
        seconds: float,
        gone: Callable[[Sequence[Work]], None],
        *,
        beats: int = DEFAULT_WORKER_BOUNDS.renewals,
        health: ServerHealth | None = None,
    ) -> None:
        """
        Args:
            seconds: if this worker is silent for so long, other workers take its sessions over.
            gone: called with work that another worker has claimed.
            beats: renewals in each period of `seconds`.
            health: gets the outcomes of "heartbeat", "leases" and "fetch"; None makes a new `ServerHealth`.
        """
        self._leases, self._consumer, self._seconds, self._gone = leases, consumer, seconds, gone
        self._pause = seconds / beats
        self.health = health or ServerHealth()
        """whether the server answers"""
        self._held: dict[str, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def holding(self, lease: Lease, asked: float, lost: Callable[[], None]) -> Generator[None, None, None]:
        """Renew a lease for the length of the block.

        Args:
            asked: time at which the lease was requested, by the event loop's clock.
            lost: called once if the lease expired, or if the server was unreachable for longer than the lease.
        """
        held = self._held[lease.session] = _Held(lease, asked, lost)
        try:
            yield
        finally:
            if self._held.get(lease.session) is held:
                del self._held[lease.session]

    def end(self, lease: Lease) -> None:
        """Renew a lease no longer. Call this before the lease is released, or its end is reported as a loss."""
        if (held := self._held.get(lease.session)) is not None and held.lease == lease:
            del self._held[lease.session]

    async def begin(self) -> None:
        """Send the first heartbeat, which registers the worker. `run` reports and retries all errors but a missing
        right.

        Raises:
            Refused: the server's user lacks a right (code NOPERM).
        """
        try:
            with anyio.move_on_after(self._pause):
                await self._consumer.heartbeat()
        except Unavailable as error:
            if isinstance(error, Refused) and error.code == "NOPERM":
                raise

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            await anyio.sleep(self._pause)
            await self._renew()
            try:
                with anyio.fail_after(self._pause):
                    self._gone(await self._consumer.heartbeat())
            except (Unavailable, TimeoutError) as error:
                self.health.note("heartbeat", error)
            else:
                if self._consumer.is_answered:  # else another task has a request under way, and this one sent nothing
                    self.health.note("heartbeat", None)
            self.health.note("fetch", self._consumer.fetch_fault)

    async def _renew(self) -> None:
        held, asked = tuple(self._held.values()), anyio.current_time()
        if not held:
            self.health.note("leases", None)
            return
        try:
            with anyio.fail_after(self._pause):
                lost = {*await self._leases.renew([each.lease for each in held], self._seconds)}
        except (Unavailable, TimeoutError) as error:
            self.health.note("leases", error)
            # End only leases that were not renewed for `seconds`. After a pause of this process, the server knows
            # better.
            late = anyio.current_time() - self._seconds
            self._end([each for each in held if each.renewed < late])
            return
        self.health.note("leases", None)
        for each in held:
            each.renewed = asked
        self._end([each for each in held if each.lease in lost])

    def _end(self, ended: Sequence[_Held]) -> None:
        for each in ended:
            if self._held.get(each.lease.session) is each:
                del self._held[each.lease.session]
                each.lost()


_log = logging.getLogger(__name__)


class AckBatcher:
    """Releases leases and acks work in the background, so that sessions do not wait.

    A lease that is not released expires. If the server does not answer an ack, the work is delivered again, but its
    session has nothing left to do. If the server refuses an ack, the ack is repeated: a new delivery would count as an
    attempt.
    """

    def __init__(
        self,
        leases: Leases,
        consumer: Consumer,
        acknowledged: Callable[[Sequence[Work]], None] | None = None,
        *,
        health: ServerHealth | None = None,
        pause: float = 1.0,
    ) -> None:
        """
        Args:
            acknowledged: called by `run` with each batch that `flush` returns.
            health: gets the outcomes of "ack"; None makes a new `ServerHealth`.
            pause: seconds between two acks that the server refuses.
        """
        self._health, self._pause = health or ServerHealth(), pause
        self._leases, self._consumer, self._acknowledged = leases, consumer, acknowledged
        self._released: list[Lease] = []
        self._done: list[Work] = []
        self._read_up_to: dict[str, int] = {}
        self._traces: dict[str, str] = {}
        self._some = asyncio.Event()
        self._one_at_a_time = anyio.Lock()

    def release(self, lease: Lease) -> None:
        """Release a lease with the next batch."""
        self._released.append(lease)
        self._some.set()

    def ack(self, work: Work, read_up_to: int, trace: str = "") -> None:
        """Ack work with the next batch.

        Args:
            read_up_to: position up to which the work's session was read.
            trace: trace context in which the work was processed; "" if there is none.
        """
        self._done.append(work)
        self._read_up_to[work.session] = read_up_to
        if trace:
            self._traces[work.session] = trace
        self._some.set()

    async def run(self) -> None:
        """Send batches until cancelled."""
        while True:
            await self._some.wait()
            works = await self.flush()
            if ACK in self._health.faults:
                await anyio.sleep(self._pause)
                self._some.set()
            elif self._acknowledged is not None:
                self._acknowledged(works)

    async def flush(self) -> Sequence[Work]:
        """Send everything now. If `flush` is cancelled, the batch is kept for the next call.

        Returns:
            The work that was sent. If the server was unreachable, this work is delivered again. Empty if the server
            refused the acks; the work is then kept for the next call.
        """
        async with self._one_at_a_time:
            leases, works, read_up_to, traces = self._released, self._done, self._read_up_to, self._traces
            self._released, self._done, self._read_up_to, self._traces = [], [], {}, {}
            self._some = asyncio.Event()
            try:
                # Release first: a worker that then gets the session for a new message finds its lease free.
                if leases:
                    await self._release(leases)
                # Ack even if the release failed: otherwise the work stays with this worker for as long as the worker
                # lives.
                await self._consumer.ack(*works, seen=read_up_to, traces=traces, is_repeated=True)
            except Unavailable as error:
                if isinstance(error, Refused) and error.is_of_server:
                    self._health.note(ACK, error)
                    self._put_back([], works, read_up_to, traces)
                    return ()
                _log.info("%d units of work were not acked: %s", len(works), error)
            except BaseException:
                self._put_back(leases, works, read_up_to, traces)
                self._some.set()
                raise
            # No refused ack is left to repeat, so the worker may fetch: the lost work is delivered to those that do.
            self._health.note(ACK, None)
            return works

    def _put_back(
        self, leases: list[Lease], works: list[Work], read_up_to: dict[str, int], traces: dict[str, str]
    ) -> None:
        self._released, self._done = leases + self._released, works + self._done
        self._read_up_to = read_up_to | self._read_up_to
        self._traces = traces | self._traces

    async def _release(self, leases: Sequence[Lease]) -> None:
        try:
            await self._leases.release(leases)
        except Unavailable as error:
            _log.info("%d leases were not released: %s", len(leases), error)


@dataclass(frozen=True, slots=True)
class WorkerServices:
    """The objects and settings that all sessions of one worker share."""

    worker: str
    """the worker's name, for logs"""
    owner: str
    """the name under which the worker takes leases"""
    heartbeat_seconds: float
    agents: AgentRegistry
    retry: RetryPolicy
    leases: Leases
    consumer: Consumer
    heartbeat: Heartbeat
    acks: AckBatcher
    cache: SessionCache
    counts: WorkerCounts
    bounds: WorkerBounds
    tracing: Tracing
    health: ServerHealth
    sync_calls: SyncCalls
    calls: dict[str, tuple[str, float]] = field(default_factory=dict[str, "tuple[str, float]"])
    """the calls of agents that run now, by session: the agent's name, and when the call began on the monotonic clock"""


# The work of one session at a worker, which acks the work, retries it later, or returns it to the group.


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
