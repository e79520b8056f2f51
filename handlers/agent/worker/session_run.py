"""Call the agent in one session, under one lease, until nothing is left to do."""

import asyncio
import inspect
import logging
import time
from contextlib import AbstractContextManager, nullcontext
from random import random

from lanebus.bus.error_text import describe_error, logged, without_secrets
from lanebus.bus.errors import (
    ArchiveDamaged,
    CursorTrimmed,
    Fenced,
    InvalidArgument,
    LogEmptied,
    LogRolledBack,
    SessionClosed,
    SessionErased,
    Unavailable,
)
from lanebus.bus.groups.retry_policy import Retry
from lanebus.bus.tracing import NO_TRACING
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.apply_command import refuse
from lanebus.handlers.agent.cached_session import CachedSession
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.errors import TryAgain
from lanebus.handlers.agent.run import Agent, Run, SnapshotAgent
from lanebus.handlers.agent.run_observer import RunObserver
from lanebus.handlers.agent.worker.assignment import Assignment, WorkOutcome
from lanebus.handlers.agent.worker.failed_session import give_up, give_up_unreadable
from lanebus.handlers.agent.worker.loop_messages import loop_messages
from lanebus.handlers.agent.worker.redrive import reopening
from lanebus.handlers.agent.worker.services import WorkerServices
from lanebus.handlers.monitoring.log_context import log_context
from lanebus.handlers.projections.agent_status import Command
from lanebus.handlers.trace_id import trace_id

__all__ = ("SessionRun",)

_log = logging.getLogger(__name__)


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
