"""The loop of a recorder: decides the next step like a worker, and carries out steps that need no model or tool."""

import logging
from contextlib import aclosing

import anyio

from lanebus.bus.errors import BusError, Fenced, SessionClosed
from lanebus.bus.groups.recorded_work import finish_recorded
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session_lease import SessionLease
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.notice import CLOSED
from lanebus.handlers.agent.apply_command import apply_command
from lanebus.handlers.agent.decide.decision import (
    CloseImportedCalls,
    Decision,
    FailToolCalls,
    HandleCommand,
    Idle,
    RunTools,
    StopAtLimit,
    next_decision,
)
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.decide.tool_decision import AnswerCall, ToolRules, decide_calls
from lanebus.handlers.agent.limits import loop_usage
from lanebus.handlers.agent.recording.named_model import NamedTool
from lanebus.handlers.agent.recording.run_lease import RunLease
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.settings import LoopSettings
from lanebus.handlers.agent.tools.imported_calls import close_imported
from lanebus.handlers.agent.tools.results import Results
from lanebus.handlers.agent.tools.tool_executor import fail_calls
from lanebus.handlers.agent.turn.end_loop import stop_loop
from lanebus.handlers.agent.worker.background import in_background
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = ("RecordedLoop",)

_log = logging.getLogger(__name__)


class RecordedLoop:
    """Answers the commands of one session and decides the next step of its loop, under one lease."""

    def __init__(self, run: Run, lease: SessionLease | RunLease, settings: LoopSettings) -> None:
        """
        Args:
            run: the session's run under `lease`.
            lease: the session's lease.
            settings: the settings that all turns share. Each turn sets its own model and tools.
        """
        self.run, self.lease, self.settings = run, lease, settings
        self.writing = anyio.Lock()
        """held by the task that reads the log and appends the next step, so that only one task does so at a time"""
        self._finished = 0
        """position up to which this object has recorded that the work is done"""

    async def next_step(self) -> tuple[Decision, SessionSnapshot]:
        """Answer the commands that are due, and return the next decision.

        The decision is `CallModel`, `RunTools`, `AdoptToolCalls`, or `Idle` if there is no work. If the call is
        cancelled, the next call continues with the remaining commands.

        Raises:
            Fenced: the lease is lost.
            BusError: the log cannot be read, or refuses an append.
        """
        async with self.writing:
            while True:
                decision, snapshot = await self._decide()
                match decision:
                    case HandleCommand(command=command):
                        await apply_command(self.run, snapshot, command)
                    case FailToolCalls(answer=answer, text=text):
                        await fail_calls(self.run, answer, snapshot, text)
                    case CloseImportedCalls(answer=imported):
                        await close_imported(self.run, imported)
                    case StopAtLimit():
                        await stop_loop(self.run, snapshot, decision)
                    case RunTools(answer=answer) if await self._answer_lost(answer, snapshot):
                        pass
                    case _:
                        if isinstance(decision, Idle):
                            await self._finish()
                        return decision, snapshot

    async def leave(self) -> None:
        """If nothing is left to do, record that. Otherwise the session waits for the next recorder or worker."""
        if self.lease.is_lost:
            return
        async with self.writing:
            try:
                decision, _ = await self._decide()
            except BusError as error:  # the caller has its results, and the next recorder finds the same
                _log.info("session %s: not read at the end: %s", self.run.session.id, error)
                return
            if isinstance(decision, Idle):
                await self._finish()

    async def answer_commands(self) -> SessionSnapshot:
        """Answer the commands that are due, and return the session's state. Raises the errors of `next_step`."""
        async with self.writing:
            while True:
                decision, snapshot = await self._decide()
                if not isinstance(decision, HandleCommand):
                    return snapshot
                await apply_command(self.run, snapshot, decision.command)

    async def wait(self) -> None:
        """Wait until a user or a command writes to the session after the last refresh. Spurious wake-ups are possible.

        Raises:
            SessionClosed: the session is closed, so nothing can be written to it.
            BusError: the log cannot be read.
        """
        session, after = self.run.session, Cursor(self.run.position)

        async def watch_close() -> None:  # a close wakes no worker
            entries = session.follow(lanes={Lane.EXTENSION}, kinds={CLOSED}, after=after, until_closed=True)
            async with aclosing(entries):
                async for _ in entries:
                    pass
            raise SessionClosed(session.id)

        async with in_background(watch_close):
            await self.run.wait_for_wake_up()

    def rules(self, name: str) -> ToolRules:
        """Return the rules of a tool. For an unknown tool, return rules under which a started call does not run
        again."""
        return self.settings.tools.get(name) or NamedTool(ToolSpec(name, "", {}))

    def check_lease(self) -> None:
        """Raise Fenced if this process has noticed that the lease is lost."""
        if self.lease.is_lost:
            raise Fenced(self.run.session.id, self.run.lease.epoch, self.run.lease.epoch + 1)

    async def _decide(self) -> tuple[Decision, SessionSnapshot]:
        self.check_lease()
        snapshot = await self.run.refresh()
        return next_decision(snapshot, self.settings, self.settings.clock.time()), snapshot

    async def _finish(self) -> None:
        """Record that the session waits for no worker. Errors are only logged: a worker would find nothing to do."""
        run, lease = self.run, self.run.lease
        if run.position == self._finished:
            return
        try:
            agent = lease.agent or (await run.session.head()).agent  # "" in the lease of a session that was empty
            await finish_recorded(run.session.resources.log, lease._replace(agent=agent), run.position)
        except BusError as error:
            _log.info("session %s: counted as waiting: %s", run.session.id, error)
            return
        self._finished = run.position

    async def _answer_lost(self, answer: OpenAnswer, snapshot: SessionSnapshot) -> bool:
        """Record results for calls that must not run: calls that were denied, and calls that a lost process had
        started."""
        rules = {call.name: self.rules(call.name) for call in answer.calls}
        decided = decide_calls(answer, rules, snapshot.status)
        found = [decision.result for _, decision in decided.values() if isinstance(decision, AnswerCall)]
        if found:
            await Results(self.run, answer, loop_usage(snapshot.context, answer.turn_id.loop_id)).append(*found)
        return bool(found)
