"""The tool calls of a recorded answer: open calls, running calls, and calls that wait for a person."""

import anyio

from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.events import Progress, ToolStarted, ToolWaiting
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.whole_text import whole_text
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.decide.command_outcome import find_interrupt
from lanebus.handlers.agent.decide.decision import FailToolCalls, next_decision
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.decide.tool_decision import (
    AnswerCall,
    CallStart,
    closing_result,
    decide_call,
    has_started,
    turn_status,
)
from lanebus.handlers.agent.errors import RecorderMisused
from lanebus.handlers.agent.limits import loop_usage
from lanebus.handlers.agent.recording.recorded_loop import RecordedLoop
from lanebus.handlers.agent.tools.results import Results
from lanebus.handlers.agent.tools.tool_reply import unknown
from lanebus.handlers.projections.agent_status import LoopStatus

__all__ = ("OpenCalls",)


class OpenCalls:
    """The tool calls of one answer. Several tasks may append results concurrently."""

    def __init__(self, loop: RecordedLoop, answer: OpenAnswer, snapshot: SessionSnapshot) -> None:
        """
        Args:
            snapshot: the session as of the answer, or later.
        """
        self._loop, self._answer = loop, answer
        self._results = Results(loop.run, answer, loop_usage(snapshot.context, answer.turn_id.loop_id))
        self._running: set[str] = set()
        self._appending = anyio.Lock()

    @property
    def open(self) -> tuple[ToolCallBlock, ...]:
        """The calls without a result, in the order of the answer. Calls with the same id share one result."""
        found = {call.id: call for call in reversed(self._answer.open_calls) if not self._results.has(call.id)}
        return tuple(reversed(found.values()))

    def find(self, call_id: str) -> ToolCallBlock:
        """Return an open call by its id. Raise RecorderMisused if there is none."""
        for call in self.open:
            if call.id == call_id:
                return call
        raise RecorderMisused(
            f"turn {self._answer.turn_id} has no open tool call {call_id!r}: take one of `turn.calls`"
        )

    def key(self, call: ToolCallBlock) -> str:
        """Return the idempotency key of a call, which is the same at every attempt. Source: `ToolContext.key`."""
        origin = self._answer.message.turn_id
        is_own = origin is not None and origin.session == self._loop.run.session.id
        return f"{origin if is_own else self._answer.turn_id}.{self._results.place(call.id)}"

    async def start(self, call: ToolCallBlock) -> None:
        """Record the start of a call. Raises the errors of `Session.publish`."""
        attempt = self._known(self._loop.run.snapshot).calls_attempts.get(call.id, 0) + 1
        turn_id = self._answer.turn_id
        event = ToolStarted(
            turn_id=turn_id, tool_call_id=call.id, tool_name=call.name, attempt=attempt if attempt > 1 else None
        )
        key = f"{turn_id}.run.{attempt}.{self._results.place(call.id)}"
        self._running.add(call.id)
        await self._loop.run.publish(event.as_extension(), key=key)

    async def tell(self, call: ToolCallBlock, text: str) -> None:
        """Publish the progress of a call. Raises the errors of `Session.publish`."""
        event = Progress(turn_id=self._answer.turn_id, tool_call_id=call.id, tool_name=call.name, text=whole_text(text))
        await self._loop.run.publish(event.as_extension())

    async def end(self, *results: ToolResultMessage) -> None:
        """Append tool results. The result of the answer's last open call is appended together with the end of the turn.

        Results for calls that already have one in the log are ignored.

        Raises:
            Fenced: the lease is lost.
            BusError: as for `Session.publish`.
        """
        async with self._appending:
            new = [result for result in results if not self._results.has(result.tool_call_id)]
            if new:
                await self._results.append(*new)
            self._running.difference_update(result.tool_call_id for result in results)

    async def fail(self, text: str, cause: str | None = None) -> None:
        """Record an error as the result of all open calls. The outcome of those that were started is unknown.

        For arguments see `closing_result`. Raises the errors of `end`.
        """
        known = self._known(self._loop.run.snapshot)

        def start(id: str) -> CallStart:
            return "stopped" if id in self._running else "lost" if has_started(id, known) else "none"

        await self.end(*(closing_result(call, text, start=start(call.id), cause=cause) for call in self.open))

    async def fail_running(self) -> None:
        """Record an unknown outcome for each call that was started and has no result. Raises the errors of `end`."""
        stopped = [call for call in self.open if call.id in self._running]
        await self.end(*(unknown(call, "it was cancelled before a result came") for call in stopped))

    async def ask(self, call: ToolCallBlock) -> bool | None:
        """Ask a person whether a call may run, and wait for the answer. The question is recorded once, even after a
        crash.

        Returns:
            True if the call may run. False if the call must not run; its result is then already recorded. None if the
            loop has ended meanwhile.

        Raises:
            Fenced: the lease is lost.
            BusError: the log cannot be read, or refuses an append.
        """
        loop, turn_id = self._loop, self._answer.turn_id
        self._running.discard(call.id)  # a tool that was started asks from within, and has ended with that question
        while True:
            snapshot = await loop.answer_commands()
            known, call_id = self._known(snapshot), call.id
            if snapshot.status.is_over(turn_id.loop_id):
                return None
            said = known.calls_answered.get(call_id)
            if said is not None:
                said_so = decide_call(call, loop.rules(call.name), known)
                if isinstance(said_so, AnswerCall):
                    await self.end(said_so.result)
                return not isinstance(said_so, AnswerCall)
            if call_id not in known.calls_waiting:
                event = ToolWaiting(turn_id=turn_id, tool_call_id=call_id, tool_name=call.name)
                attempts = known.calls_attempts.get(call_id, 0)
                await loop.run.publish(
                    event.as_extension(), key=ReservedKey(f"{turn_id}.ask.{attempts}.{self._results.place(call_id)}")
                )
                continue
            decision = next_decision(snapshot, loop.settings, loop.settings.clock.time())
            if isinstance(decision, FailToolCalls) and find_interrupt(snapshot.loop_state) is None:
                await self.fail(decision.text)  # a user sent a message, or a command ends the loop after this turn
            if self._results.has(call_id):
                return False
            await loop.wait()

    def _known(self, snapshot: SessionSnapshot) -> LoopStatus:
        """Return the state of this turn's calls in the log."""
        return turn_status(snapshot.status, self._answer.turn_id)
