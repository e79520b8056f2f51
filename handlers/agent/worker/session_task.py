"""The task of one session at a worker, from the delivery of its work until nothing is left to do.

A session is delivered to one worker of a group at a time. Its task reads the log until nothing is left to do, and acks
the position up to which it read. A message after this position makes the group deliver the session again, so no message
is lost.

Another owner may still have the lease: a worker that died or seems dead, another group, or a program of the user. The
task then nacks the work until the lease expires. The server stores the refused request with the lease. When the owner
releases the lease, the session is woken and delivered at once.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from random import random

import anyio

from lanebus.bus import NO_TRACING, FirstPage, Lease, LeaseAnswer, Retry, Work
from lanebus.bus.errors import (
    ArchiveDamaged,
    BusError,
    CursorTrimmed,
    Fenced,
    InvalidArgument,
    LogEmptied,
    LogRolledBack,
    Refused,
    SessionClosed,
    SessionErased,
    Unavailable,
    WrongAgent,
)
from lanebus.bus.messages import AssistantMessage, ControlAnswered, Delta, Lane, now_ms
from lanebus.bus.text import describe_error, logged, without_secrets
from lanebus.bus.wire import DecodeFailure, Envelope, ReservedKey, encode
from lanebus.handlers.agent.errors import TryAgain
from lanebus.handlers.agent.health import (
    WORK,
    LeaseLost,
    LogContext,
    WorkerCounts,
    log_context,
    trace_id,
    within,
    write_event,
)
from lanebus.handlers.agent.run import Agent, Run, RunObserver, SnapshotAgent, loop_messages
from lanebus.handlers.agent.tools.tool_call import LOOP_ENDED
from lanebus.handlers.agent.tools.tool_executor import fail_calls
from lanebus.handlers.agent.turn.loop_state import REDRIVEN, CachedSession, SessionSnapshot, is_cut
from lanebus.handlers.agent.turn.record import fail_loop, reading_metadata, refuse, refused
from lanebus.handlers.agent.worker.services import Assignment, Done, Later, Left, WorkerServices, WorkOutcome
from lanebus.handlers.context import deferred_positions, read_position
from lanebus.handlers.projections import STATUS, Command, Status

# The limit on the number of sessions that a worker runs concurrently.


class ConcurrencyLimiter:
    """Slots for running sessions. A session that only waits, for a person or another session, holds no slot."""

    def __init__(self, limit: int) -> None:
        self._semaphore = anyio.Semaphore(limit, fast_acquire=True)

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self._semaphore.value

    async def wait_free(self) -> None:
        """Wait until a slot is free, without taking the slot. Waiters are served in order."""
        if not self._semaphore.value:
            await self._semaphore.acquire()
            self._semaphore.release()

    def slot(self) -> "Slot":
        """Return a `Slot` for a session. It takes a place at once if the worker has one free; see
        `Slot.take`."""
        return Slot(self._semaphore)


class Slot:
    """The slot of one session, which can be released and taken again."""

    def __init__(self, semaphore: anyio.Semaphore) -> None:
        self._semaphore = semaphore
        self._blocks = 0
        """number of open `lent` blocks"""
        self._is_taken = semaphore.value > 0
        if self._is_taken:
            semaphore.acquire_nowait()

    async def take(self) -> None:
        """Wait for a free slot and take it."""
        if not self._is_taken:
            await self._semaphore.acquire()
            self._is_taken = True

    def give_back(self) -> None:
        """Release the slot. Repeated calls do nothing."""
        if self._is_taken:
            self._is_taken = False
            self._semaphore.release()

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[None, None]:
        """Release the slot for the length of the block.

        Blocks may overlap; the slot is taken again at the end of the last block. A block that is cancelled or raises
        does not take it again, so that clean-up does not wait for other sessions.
        """
        self._blocks += 1
        self.give_back()
        try:
            yield
        finally:
            self._blocks -= 1
        if not self._blocks:
            await self.take()


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
            self.session,
            services.owner,
            services.heartbeat_seconds,
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
                    cache.session,
                    lease,
                    cache,
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


class SessionRun:
    """Calls the agent until nothing is left to do. The agent also processes messages that arrive meanwhile."""

    def __init__(
        self,
        services: WorkerServices,
        assignment: Assignment,
        run: Run,
        cache: CachedSession,
        observer: RunObserver,
    ) -> None:
        """
        Args:
            cache: the session's folds; `run.refresh` updates these.
            observer: the observer of `run`.
        """
        self._services, self._assignment, self._run, self._cache = services, assignment, run, cache
        self._observer = observer

    async def work_off(self, *, is_read: bool) -> WorkOutcome:
        """Call the agent until the session has nothing left to do, or must be retried or returned.

        Args:
            is_read: whether the run's snapshot was read after the lease was acquired. False reads the session first.

        Returns:
            What to do with the session's work in the consumer group.

        Raises:
            Fenced: the lease was lost.
            LogRolledBack: the log has lost entries that were read.
            SessionClosed: the session is closed.
            SessionErased: the session was erased.
            Unavailable: the server cannot be reached.
        """
        try:
            return await self._work_off(self._run.snapshot if is_read else await self._run.refresh())
        except (CursorTrimmed, ArchiveDamaged) as error:
            _log.error("session %s cannot be read: %s", self._run.session.id, error)
            return await give_up_unreadable(self._run, error, self._assignment, self._services.counts)

    async def _work_off(self, snapshot: SessionSnapshot) -> WorkOutcome:
        run, assignment = self._run, self._assignment
        if assignment.attempt > self._max_attempts:
            error = RuntimeError(f"{assignment.attempt - 1} attempts ended without an outcome")
            return await self._give_up(snapshot, error)
        last_position, ignored = -1, 0  # position of the last call; calls in a row that ignored the oldest command
        oldest: tuple[Command, ...] = ()
        while True:
            agent = self._services.agents.of(run.lease.agent) if snapshot.loop_state.has_work else None
            commands = snapshot.status.commands
            if agent is None:
                if assignment.woken.is_set():
                    assignment.woken = asyncio.Event()
                elif not await self._reopen(snapshot):
                    return await self._done()
                snapshot = await run.refresh()
                continue
            ignored = ignored + 1 if commands and commands[:1] == oldest else 0
            oldest = commands[:1]
            if commands and (run.position == last_position or ignored >= self._services.bounds.ignored_commands):
                # An agent that is a function may not handle commands, and would be called for the same commands
                # forever.
                await refuse(run, commands, "this agent answers no commands")
            elif run.position == last_position:
                return await self._give_up(snapshot, RuntimeError("the agent appended nothing"))
            else:
                last_position = run.position
                if (outcome := await self._call(agent, snapshot)) is not None:
                    return outcome
            snapshot = await run.refresh()

    @property
    def _max_attempts(self) -> int:
        """Maximum number of attempts of a session that kills its workers. If the work was retried after an error, the
        attempts of the retry policy are added, as those killed no worker."""
        work, deaths = self._assignment.work, self._services.bounds.lost_attempts
        return deaths + (self._services.retry.attempts if work is not None and work.error else 0)

    async def _call(self, agent: Agent, snapshot: SessionSnapshot) -> WorkOutcome | None:
        """Call the agent once. Return None if the session has to be read again."""
        services, assignment, run = self._services, self._assignment, self._run
        services.counts.runs += 1
        log_context().agent = run.lease.agent
        services.calls[run.session.id] = run.lease.agent, time.monotonic()
        if (loop_id := snapshot.loop_state.loop_id) is not None:
            self._observer.continues(loop_id, run.position)
        looked_at: int | None = None
        try:
            with self._recorded(snapshot) as assignment.trace:
                log_context().trace_id = trace_id()
                if isinstance(agent, SnapshotAgent):
                    looked_at = await agent.work_from(run, snapshot)
                else:
                    began: object = agent(run)
                    if not inspect.isawaitable(began):
                        raise InvalidArgument("agent", agent, "define it with `async def`: a worker awaits its agent")
                    await began
        except (Unavailable, LogEmptied, LogRolledBack, CursorTrimmed, ArchiveDamaged, Fenced):
            raise
        except (SessionClosed, SessionErased):
            raise
        except TryAgain as error:
            return await assignment.reschedule(
                run.lease, error.delay, error, without_secrets(error.reason), attempts=assignment.attempt - 1
            )
        except Exception as error:  # noqa: BLE001  # other sessions continue
            attempt = assignment.attempt
            _log.error("session %s: the agent failed, attempt %d", run.session.id, attempt, exc_info=logged(error))
            decision = services.retry.decide(error, attempt, random())  # noqa: S311  # no secret
            if isinstance(decision, Retry):
                return await assignment.reschedule(
                    run.lease, decision.delay, error, describe_error(error), attempts=attempt
                )
            return await self._give_up(snapshot, error)
        finally:
            del services.calls[run.session.id]
        if run.is_lease_lost:
            raise Fenced(run.session.id, run.lease.epoch, run.lease.epoch + 1)
        assignment.attempt = 1
        if looked_at is None or not run.is_unchanged_since(looked_at) or assignment.woken.is_set():
            return None
        return await self._done()

    def _recorded(self, snapshot: SessionSnapshot) -> AbstractContextManager[str]:
        tracing, session = self._services.tracing, self._run.session.id
        if tracing is NO_TRACING:
            return nullcontext("")
        group, attempt = self._services.consumer.group, self._assignment.attempt
        return tracing.processing(session, loop_messages(snapshot), group=group, attempt=attempt)

    async def _done(self) -> WorkOutcome:
        position = self._run.position
        await self._cache.store()
        return self._assignment.done(self._run.lease, position)

    async def _give_up(self, snapshot: SessionSnapshot, error: Exception) -> WorkOutcome:
        return await give_up(self._run, snapshot, error, self._assignment, self._services.counts)

    async def _reopen(self, snapshot: SessionSnapshot) -> bool:
        """If the work is a redriven dead letter, make the session's prompts unanswered again. Return whether that was
        done."""
        work = self._assignment.work
        if work is None or not work.is_retry or work.attempt > 1:
            return False
        if (found := reopening(snapshot.context.path, work.error)) is None:
            return False
        answer, position = found
        await self._run.publish(answer, key=ReservedKey(f"redriven.{position}"))
        return True


# Give up a session: record the failure in its log, and make its work a dead letter.


async def give_up(
    run: Run, snapshot: SessionSnapshot, error: Exception, assignment: Assignment, counts: WorkerCounts
) -> Done:
    """Record that the agent failed. The messages at which it failed count as answered and are not retried.

    The session stops even if work is left, such as another command that the agent cannot handle. A later wake-up, or a
    wake-up since the session was last read, starts the agent again.

    Args:
        run: the session's run, whose lease is released.
        snapshot: the session's state with which the agent was called.
        error: the agent's error.
        assignment: the session's work, which becomes a dead letter.
        counts: the worker's counters; `given_up` is increased.
    """
    prompts = snapshot.loop_state.prompts
    raw = b""
    for envelope in snapshot.context.path:
        if prompts and envelope.position == prompts[-1] and not isinstance(envelope.message, DecodeFailure | Delta):
            raw = encode(envelope.message)
    current = await run.refresh()  # includes the answers and the loop that the agent has added
    text, answer = describe_error(error), current.loop_state.answer
    if answer is not None and answer.open_calls and answer.turn_id.session == run.session.id:
        # No loop continues these calls, and a call that was started must not look as if it had not run.
        cause = f"{LOOP_ENDED}: {text}"
        await fail_calls(run, answer, current, f"Not finished: {text}", since=snapshot, cause=cause)
        current = await run.refresh()
    read_up_to = max(snapshot.context.position, current.loop_state.read_up_to)
    left = [command for command in snapshot.status.commands if command in current.status.commands]
    also = refused(left, "the agent failed")
    key = ReservedKey(f"failed.{read_up_to}.{run.position}")
    await fail_loop(run, current, text, read_up_to=read_up_to, key=key, also=also)
    counts.given_up += 1
    await assignment.dead_letter(error, raw, read_up_to)
    assignment.attempt = 1
    return Done(run.lease)


async def give_up_unreadable(run: Run, error: Exception, assignment: Assignment, counts: WorkerCounts) -> Done:
    """Record that the session can no longer be read. The session's prompts count as answered, its commands are refused.

    No worker can build a context from the rest of the log. Without this record, the user would see no failure.
    """
    at = await run.session.head()
    head, status = at.position, Status()
    kinds = {"control.*", ControlAnswered.KIND}
    kept = run.session.read(lanes={Lane.EXTENSION}, kinds=kinds, after=at.cursor_at(at.trimmed), until=head)
    async with aclosing(kept) as entries:
        async for envelope in entries:
            status = STATUS.evolve(status, envelope)
    refusals = refused(status.commands, "the session can no longer be read")
    failed = AssistantMessage(
        stop_reason="error", error_message=describe_error(error), metadata=reading_metadata(head), timestamp=now_ms()
    )
    # The key has the position that woke the session and not the head: if this append is repeated, the head has moved.
    woken = head if assignment.work is None else assignment.work.position
    await run.publish(failed, *(each.as_extension() for each in refusals), key=ReservedKey(f"unreadable.{woken}"))
    counts.given_up += 1
    await assignment.dead_letter(error, read_up_to=head)
    return Done(run.lease)


AGAIN_TEXT = "sent on its way again"

SHORTEST_CUT = 64
"""minimum number of characters of a stored reason that may have been truncated"""

Reopening = tuple[AssistantMessage, int]
"""An empty answer, which no model reads, and the position of the failed answer that the empty answer reverts."""


def reopening(path: Sequence[Envelope], reason: str) -> Reopening | None:
    """Return a message that makes the messages of a failed run unread again, and the position of the failed answer.

    Pure.

    Args:
        path: the session's context path.
        reason: the dead letter's reason, which may be truncated.

    Returns:
        None if the session has continued since, or its last failure has another reason.
    """
    own = (each for each in reversed(path) if not each.is_imported)
    answers = (each for each in own if read_position(each) is not None and not _is_cut(each))
    failed, previous = next(answers, None), next(answers, None)
    if failed is None or not isinstance(failed.message, AssistantMessage) or failed.message.stop_reason != "error":
        return None
    if not _is_same(failed.message.error_message or "", reason):
        return None
    read_up_to = (read_position(previous) or 0) if previous is not None else 0
    metadata = reading_metadata(read_up_to, sorted(deferred_positions(previous)) if previous is not None else ())
    metadata[REDRIVEN] = True
    answer = AssistantMessage(stop_reason="aborted", error_message=AGAIN_TEXT, metadata=metadata, timestamp=now_ms())
    return answer, failed.position


def _is_same(reason: str, stored: str) -> bool:
    """Whether `stored` is `reason`, or a truncated form of it."""
    beginning = stored.rstrip("\ufffd")
    return bool(beginning) and (reason == stored or (len(stored) >= SHORTEST_CUT and reason.startswith(beginning)))


def _is_cut(envelope: Envelope) -> bool:
    return isinstance(envelope.message, AssistantMessage) and is_cut(envelope.message)
