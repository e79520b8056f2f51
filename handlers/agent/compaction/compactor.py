"""The compactor: between two turns, it replaces the older part of a context by a summary that a model writes.

One append ends everything that the compaction is about: the summary with its usage, the event, the end of the loop
that was open, the answer to the command. So a worker that dies in between has changed nothing, and the step is decided
again. A summary has no preview: a part of one is of no use.
"""

import logging
from contextlib import suppress
from functools import partial

import anyio

from lanebus.bus.errors import BusError
from lanebus.bus.messages.control import Abort
from lanebus.bus.messages.events import ControlAnswered
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.message import AssistantMessage
from lanebus.handlers.agent.compaction.compaction_step import CompactionStep, is_led_elsewhere
from lanebus.handlers.agent.compaction.policy import CompactionPolicy, find_cut, wants_compaction
from lanebus.handlers.agent.deadline import Deadline, Late
from lanebus.handlers.agent.decide.command_outcome import Interrupt, is_aborted
from lanebus.handlers.agent.decide.decision import CompactContext
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.errors import TryAgain
from lanebus.handlers.agent.models.failure import failure_of
from lanebus.handlers.agent.models.model import Model
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.turn.answer_stream import stream_response
from lanebus.handlers.agent.turn.partial_response import PartialResponse
from lanebus.handlers.context.fold import Context

__all__ = ("Compactor",)

_log = logging.getLogger(__name__)


class Compactor:
    """Compacts for an agent's loop: `AgentLoop(model, compaction=Compactor(model))`."""

    def __init__(self, model: Model, policy: CompactionPolicy | None = None) -> None:
        """
        Args:
            model: the agent's; it writes the summaries too, if the policy names no other.
        """
        self.policy = (policy or CompactionPolicy()).of(model)
        self._model = model

    def wants(self, snapshot: SessionSnapshot) -> bool:
        """See `wants_compaction`."""
        return wants_compaction(snapshot, self.policy)

    async def compact(self, run: Run, snapshot: SessionSnapshot, step: CompactContext) -> None:
        """Compact the session's context, once. An open loop ends as contextCompacted, and the next one continues it.

        A command to abort or to steer ends it at once, with nothing changed. Cancelled, or run again after a crash, it
        is begun anew. What its model calls used is recorded unless the worker itself is lost.

        Args:
            snapshot: in which no tool call is open.
            step: a command that asks for it is answered in the same append.

        Raises:
            TryAgain: no summary came, and there is another try.
            Fenced: the lease is lost.
            BusError: the log cannot be read or refuses.
        """
        kept = find_cut(snapshot.context, snapshot.loop_state, self.policy)
        if kept is None:
            if step.command is not None:
                at = step.command.position
                answered = ControlAnswered(control=at, outcome="repeated", reason="nothing is left to compact")
                await run.publish(answered.as_extension(), key=f"control.{at}")
            return
        compaction = CompactionStep(snapshot, self.policy, self.policy.model or self._model, kept, step)
        await run.publish(compaction.started().as_extension(), key=f"{compaction.name}.started")
        attempt = _Attempt(run, compaction)
        try:
            await attempt.run()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(run.bounds.last_words, shield=True):
                await attempt.record_partial()
            raise


class _MovedOn(Exception):
    """Another client has appended since the log was read."""


class _Attempt:
    """One attempt to have the summary written and recorded."""

    def __init__(self, run: Run, step: CompactionStep) -> None:
        self._run, self._step = run, step
        self._request = step.request()
        self._response = PartialResponse(step.writer, self._request)

    async def run(self) -> None:
        """Have the summary written, and record what came of it."""
        step, run, response = self._step, self._run, self._response
        silence, clock = step.policy.silence_seconds, step.policy.clock
        deadline = Deadline(clock, left=None, silence=silence, who="the model")
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
            await self._interrupted("a user spoke")
        else:
            await self._give_up(_reason(response.whole, fault))

    async def record_partial(self) -> None:
        """Record what the call used, when the worker is stopped."""
        if self._response.is_empty:
            return
        try:
            await self._interrupted("the worker was stopped")
        except BusError as error:
            _log.info("session %s: what a summary took is lost: %s", self._run.session.id, error)

    async def _record(self, summary: AssistantMessage) -> None:
        """Append the compaction and all that it ends. Messages that came meanwhile lie after the cut and stay."""
        for _ in range(self._run.bounds.tries):
            last = (await self._run.session.head()).position
            snapshot = await self._run.refresh()
            if is_aborted(snapshot.loop_state):
                return await self._interrupted("the loop was aborted")
            if is_led_elsewhere(snapshot.context, self._step.snapshot.context.position):
                return await self._interrupted("the session was branched meanwhile")
            with suppress(_MovedOn):  # the new entries are read first
                build = partial(self._batch, snapshot.context, summary, last + 1)
                await self._run.publish_at(build, key=self._step.name)
                return None
        return await self._interrupted("others were faster all the time")

    def _batch(self, before: Context, summary: AssistantMessage, position: int, told: int) -> list[Publishable]:
        if told > position:  # a smaller one is out of date, and will be refused
            raise _MovedOn
        return self._step.batch(before, summary, position)

    async def _give_up(self, reason: str) -> None:
        """Record that no summary came. The last try answers the command.

        Raises:
            TryAgain: there is another one.
        """
        step = self._step
        failed = step.failed(self._spent(reason), reason)
        if not step.is_last_try:
            await self._run.publish(failed.as_extension())
            raise TryAgain(step.pause, f"no summary: {reason}")
        events = (failed, *step.answered("refused", f"no summary: {reason}"))
        key = None if step.asked.command is None else step.name
        await self._run.publish(*(event.as_extension() for event in events), key=key)

    async def _interrupted(self, reason: str) -> None:
        """Record what the call used for nothing. It does not count as a failed try."""
        failed = self._step.failed(self._spent(reason), reason, is_interrupted=True)
        await self._run.publish(failed.as_extension())

    def _spent(self, reason: str) -> AssistantMessage:
        return self._response.whole or self._response.cut("aborted", reason)


def _reason(answer: AssistantMessage | None, fault: str | None) -> str:
    """Why there is no summary, without a word of the model's or its provider's."""
    if answer is None:
        return "the model ended without an answer" if fault is None else f"the model broke: {fault.partition(':')[0]}"
    failure = failure_of(answer)
    if failure is None:
        return "the model said nothing"
    if failure.is_overflow:
        return "what was to be summed up was too long for the model"
    status = failure.code or failure.status
    return "the model failed" if status is None else f"the model failed: {status}"
