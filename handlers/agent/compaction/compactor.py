"""The compactor: between two turns, replace the older part of a context by a summary that a model writes.

One append contains the summary with its usage, the compaction's event, the end of the open loop and the command's
answer. If the worker dies before this append, the context is unchanged, and the next worker decides to compact again.
Summaries have no preview, as a part of a summary is useless.
"""

import logging
from contextlib import suppress
from functools import partial

import anyio

from lanebus.bus.errors import BusError, require_instance
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.control import Abort
from lanebus.bus.messages.events import ControlAnswered
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.compaction.compaction_step import CompactionStep, is_changed_since
from lanebus.handlers.agent.compaction.policy import CompactionPolicy, find_cut, wants_compaction
from lanebus.handlers.agent.deadline import Deadline, Late
from lanebus.handlers.agent.decide.command_outcome import Interrupt, is_aborted
from lanebus.handlers.agent.decide.decision import CompactContext
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.errors import TryAgain
from lanebus.handlers.agent.models.failure import failure_of
from lanebus.handlers.agent.models.model import Model
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.set_up import check_model
from lanebus.handlers.agent.turn.answer_stream import stream_response
from lanebus.handlers.agent.turn.partial_response import PartialResponse
from lanebus.handlers.context.fold import Context

__all__ = ("Compactor",)

_log = logging.getLogger(__name__)


class Compactor:
    """Compacts the context of an agent's loop: `AgentLoop(model, compaction=Compactor(model))`."""

    def __init__(self, model: Model, policy: CompactionPolicy | None = None) -> None:
        """
        Args:
            model: the agent's model. It also writes the summaries unless the policy names another model.
            policy: when and how much to compact; None means the defaults.
        """
        check_model(model)
        require_instance("policy", policy, CompactionPolicy, "pass CompactionPolicy(…), or None", is_optional=True)
        self.policy = (policy or CompactionPolicy()).of(model)
        self._model = model

    def wants(self, snapshot: SessionSnapshot) -> bool:
        """Return whether the context has to be compacted now; see `wants_compaction`."""
        return wants_compaction(snapshot, self.policy)

    async def compact(self, run: Run, snapshot: SessionSnapshot, step: CompactContext) -> None:
        """Call a model for a summary, and replace the old part of the session's context by this summary.

        If a loop is open, it ends with the stop reason `contextCompacted`; the next loop continues its work.

        An `Abort` ends the attempt. A `Steer` ends the attempt unless the summary is complete. After a cancellation or
        a crash, the next attempt calls the model again. The usage of each model call is recorded, unless the worker
        crashes first.

        After the last failed attempt, `compact` records the failure and returns. If nothing can be summarized,
        `compact` returns at once. In both cases, and after recording a summary, `compact` answers the command
        in `step`. An interrupted attempt does not answer the command.

        Args:
            run: the session and its lease.
            snapshot: the session's present state. It has no open tool calls.
            step: the reason for the compaction. If a command asked for the compaction, `step.command` is this command.

        Raises:
            TryAgain: the attempt failed, and another attempt follows.
            Fenced: the lease was lost.
            BusError: the log cannot be read, or refuses an append.
        """
        kept = find_cut(snapshot.context, snapshot.loop_state, self.policy)
        if kept is None:
            if step.command is not None:
                at = step.command.position
                answered = ControlAnswered(control=at, outcome="repeated", reason="nothing is left to compact")
                await run.publish(answered.as_extension(), key=ReservedKey(f"control.{at}"))
            return
        compaction = CompactionStep(snapshot, self.policy, self.policy.model or self._model, kept, step)
        await run.publish(compaction.started().as_extension(), key=ReservedKey(f"{compaction.name}.started"))
        attempt = _Attempt(run, compaction)
        try:
            await attempt.run()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(run.bounds.partial_answer_seconds, shield=True):
                await attempt.record_partial()
            raise


class _ContextOutdated(Exception):
    """Another client has appended since the context was read."""


class _Attempt:
    """One attempt to get and record a summary."""

    def __init__(self, run: Run, step: CompactionStep) -> None:
        self._run, self._step = run, step
        self._request = step.request()
        self._response = PartialResponse(step.writer, self._request)

    async def run(self) -> None:
        """Call the model and record the summary or the failure."""
        step, run, response = self._step, self._run, self._response
        silence, clock = step.policy.silence_seconds, step.policy.clock
        deadline = Deadline(clock, left=None, silence=silence, name="the model")
        interrupt, fault = await stream_response(
            run, step.writer, self._request, response, drain_seconds=step.policy.drain_seconds, deadline=deadline
        )
        if isinstance(interrupt, Late) and response.whole is None:
            await self._give_up(interrupt.text)
        elif isinstance(interrupt, Interrupt) and isinstance(interrupt.control, Abort):
            await self._interrupted("the loop was aborted")
        elif response.whole is not None and not response.whole.is_failed and response.whole.text_content().strip():
            await self._record(response.whole)
        elif isinstance(interrupt, Interrupt):
            await self._interrupted("a user steered the loop")
        else:
            await self._give_up(_reason(response.whole, fault))

    async def record_partial(self) -> None:
        """Record the call's usage when the worker is stopped."""
        if self._response.is_empty:
            return
        try:
            await self._interrupted("the worker was stopped")
        except BusError as error:
            _log.info("session %s: the usage of a summary was not recorded: %s", self._run.session.id, error)

    async def _record(self, summary: AssistantMessage) -> None:
        """Append the compaction with its events. Messages that arrived meanwhile follow the summarized part and are
        kept."""
        for _ in range(self._run.bounds.publish_attempts):
            last = (await self._run.session.head()).position
            snapshot = await self._run.refresh()
            if is_aborted(snapshot.loop_state):
                return await self._interrupted("the loop was aborted")
            if is_changed_since(snapshot.context, self._step.snapshot.context.position):
                return await self._interrupted("the older context was changed meanwhile")
            with suppress(_ContextOutdated):  # try again after reading the new entries
                build = partial(self._batch, snapshot.context, summary, last + 1)
                await self._run.publish_at(build, key=ReservedKey(self._step.name))
                return None
        return await self._interrupted("other clients appended first at every attempt")

    def _batch(self, context: Context, summary: AssistantMessage, expected: int, position: int) -> list[Publishable]:
        if position > expected:  # a smaller position is outdated, and the append will be refused
            raise _ContextOutdated
        return self._step.batch(context, summary, expected)

    async def _give_up(self, reason: str) -> None:
        """Record a failed attempt. After the last attempt, also answer the command, if there is one.

        Raises:
            TryAgain: another attempt follows.
        """
        step = self._step
        failed = step.failed(self._spent(reason), reason)
        if not step.is_last_try:
            await self._run.publish(failed.as_extension())
            raise TryAgain(step.pause, f"no summary: {reason}")
        events = (failed, *step.answered("refused", f"no summary: {reason}"))
        key = None if step.decision.command is None else ReservedKey(step.name)
        await self._run.publish(*(event.as_extension() for event in events), key=key)

    async def _interrupted(self, reason: str) -> None:
        """Record the usage of an interrupted attempt, which does not count as a failure."""
        failed = self._step.failed(self._spent(reason), reason, is_interrupted=True)
        await self._run.publish(failed.as_extension())

    def _spent(self, reason: str) -> AssistantMessage:
        return self._response.whole or self._response.cut("aborted", reason)


def _reason(answer: AssistantMessage | None, fault: str | None) -> str:
    """Return why there is no summary, without texts of the model or its provider."""
    if answer is None:
        return "the model ended without an answer" if fault is None else f"the model raised {fault.partition(':')[0]}"
    failure = failure_of(answer)
    if failure is None:
        return "the summary was empty"
    if failure.is_overflow:
        return "the conversation was too long for the model"
    status = failure.code or failure.status
    return "the model failed" if status is None else f"the model failed: {status}"
