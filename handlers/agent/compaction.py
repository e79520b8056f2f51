"""A context that has grown too large is told shorter, between two turns: a step of a session's worker.

A model writes a summary of what came before a cut, and one append ends all that the compaction is about: the entry
with the summary and what it took, the event, the end of the loop that was open, the answer to the command. So a worker
that dies in between has changed nothing, and the step is taken again. Nothing is shown of a summary while it is
written, as a part of one is of no use to anybody.
"""

import logging
from contextlib import suppress
from functools import partial

import anyio

from bus.errors import BusError
from bus.messages.control import Abort
from bus.messages.events import ControlAnswered
from bus.messages.message import AssistantMessage
from bus.messages.reading import Publishable
from handlers.agent.compaction_policy import CompactionPolicy, find_cut, wants_compaction
from handlers.agent.compaction_step import CompactionStep, is_led_elsewhere
from handlers.agent.deadline import Deadline, Late
from handlers.agent.draft import Draft
from handlers.agent.errors import TryAgain
from handlers.agent.failure import failure_of
from handlers.agent.interrupt import Interrupt, is_aborted
from handlers.agent.listening import Listener
from handlers.agent.model import Model
from handlers.agent.run import Run, View
from handlers.agent.standing import read_standing
from handlers.agent.steps import CompactContext
from handlers.context.fold import Context

__all__ = ("Compactor", "compact")

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

    def wants(self, view: View) -> bool:
        """See `wants_compaction`."""
        return wants_compaction(view, self.policy)

    async def compact(self, run: Run, view: View, step: CompactContext) -> None:
        """See `compact`.

        Raises:
            TryAgain, Fenced, BusError: as it does.
        """
        await compact(run, view, step, policy=self.policy, model=self._model)


async def compact(run: Run, view: View, step: CompactContext, *, policy: CompactionPolicy, model: Model) -> None:
    """Tell the session's context shorter, once. An open loop ends as contextCompacted, and the next goes on with it.

    A command to abort or to steer ends it at once, with nothing changed. Cancelled, or run again after a crash, it is
    begun anew. What its model calls took is recorded where there is a worker left to do it.

    Args:
        view: in which no tool call is open.
        step: a command that asks for it is answered in the same append.
        model: the agent's, which writes the summary if the policy names none.

    Raises:
        TryAgain: no summary came, and there is another try.
        Fenced: the lease is lost.
        BusError: the log cannot be read or refuses.
    """
    policy = policy.of(model)
    kept = find_cut(view.context, read_standing(*view), policy)
    if kept is None:
        await _answer_idle(run, step)
        return
    compaction = CompactionStep(view, policy, policy.model or model, kept, step)
    await run.publish(compaction.started().as_extension(), key=f"{compaction.name}.started")
    doing = _Doing(run, compaction)
    try:
        await doing.run()
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(run.bounds.last_words, shield=True):
            await doing.last_words()
        raise


async def _answer_idle(run: Run, step: CompactContext) -> None:
    if step.command is not None:
        at = step.command.position
        answered = ControlAnswered(control=at, outcome="repeated", reason="nothing is left to compact")
        await run.publish(answered.as_extension(), key=f"control.{at}")


class _MovedOn(Exception):
    """Somebody has appended since the log was looked at."""


class _Doing:
    """A compaction that is being done."""

    def __init__(self, run: Run, step: CompactionStep) -> None:
        self._run, self._step = run, step
        self._request = step.request()
        self._draft = Draft(step.writer, self._request)

    async def run(self) -> None:
        """Have the summary written, and record what came of it."""
        step, run, draft = self._step, self._run, self._draft
        silence, clock = step.policy.silence_seconds, step.policy.clock
        deadline = Deadline(clock, left=None, silence=silence, who="the model")
        listener = Listener(
            step.writer, self._request, draft, drain_seconds=step.policy.drain_seconds, deadline=deadline
        )
        interrupt = await listener.run(run)
        if isinstance(interrupt, Late) and draft.whole is None:
            await self._give_up(interrupt.text)
        elif isinstance(interrupt, Interrupt) and isinstance(interrupt.control, Abort):
            await self._interrupted("the loop was aborted")
        elif draft.whole is not None and not draft.whole.is_failed and draft.whole.text_content().strip():
            await self._land(draft.whole)
        elif isinstance(interrupt, Interrupt):
            await self._interrupted("a user spoke")
        else:
            await self._give_up(_reason(draft.whole, listener.fault))

    async def last_words(self) -> None:
        """Say what the call took, when the worker is stopped."""
        if self._draft.is_empty:
            return
        try:
            await self._interrupted("the worker was stopped")
        except BusError as error:
            _log.info("session %s: what a summary took is lost: %s", self._run.session.id, error)

    async def _land(self, summary: AssistantMessage) -> None:
        """Append the compaction and all that it ends. Whoever spoke meanwhile stands behind the cut, and is kept."""
        for _ in range(self._run.bounds.tries):
            last = (await self._run.session.head()).position
            view = await self._run.refresh()
            if is_aborted(read_standing(*view)):
                return await self._interrupted("the loop was aborted")
            if is_led_elsewhere(view.context, self._step.view.context.position):
                return await self._interrupted("the session was branched meanwhile")
            with suppress(_MovedOn):  # what has come since is looked at first
                build = partial(self._landing, view.context, summary, last + 1)
                await self._run.publish_at(build, key=self._step.name)
                return None
        return await self._interrupted("others were faster all the time")

    def _landing(self, before: Context, summary: AssistantMessage, position: int, told: int) -> list[Publishable]:
        if told > position:  # a smaller one is out of date, and will be refused
            raise _MovedOn
        return self._step.landing(before, summary, position)

    async def _give_up(self, reason: str) -> None:
        """Say that no summary came. The last try answers the command.

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
        """Say what the call took that came to nothing, and that this says nothing of the next try."""
        failed = self._step.failed(self._spent(reason), reason, is_interrupted=True)
        await self._run.publish(failed.as_extension())

    def _spent(self, reason: str) -> AssistantMessage:
        return self._draft.whole or self._draft.cut("aborted", reason)


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
