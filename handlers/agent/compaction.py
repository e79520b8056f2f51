"""A context that has grown too large is told shorter, between two turns: a step of a session's worker.

A model writes a summary of what came before a cut, and one append ends all that the compaction is about: the entry
with the summary and what it took, the event, the end of the loop that was open, the answer to the command. So a worker
that dies in between has changed nothing, and the step is taken again. Nothing is shown of a summary while it is
written, as a part of one is of no use to anybody.
"""

import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

import anyio

from bus.envelope import Envelope
from bus.errors import BusError
from bus.messages.context_entry import Compaction, LeafMove, LoopCompaction, Prune
from bus.messages.control import Abort, Compact
from bus.messages.events import (
    AgentEnded,
    AgentEvent,
    CompactionEnded,
    CompactionFailed,
    CompactionStarted,
    ControlAnswered,
)
from bus.messages.lanes import Lane
from bus.messages.message import AssistantMessage, now_ms
from bus.messages.reading import Publishable
from handlers.agent.compaction_policy import CompactionPolicy, find_cut, wants_compaction, window_of
from handlers.agent.draft import Draft
from handlers.agent.errors import TryAgain
from handlers.agent.interrupt import until_interrupted
from handlers.agent.model import Model
from handlers.agent.run import Run, View
from handlers.agent.standing import loop_usage, read_standing
from handlers.agent.status import Command
from handlers.agent.steps import CompactContext
from handlers.agent.summary_request import summary_request
from handlers.context.fold import Context, evolve
from handlers.context.tokens import context_tokens

__all__ = ("Compactor", "compact")

LAST_WORDS_SECONDS = 5.0
"""how long a cancelled step takes to record what its model call took"""

_TRIES = 1_000

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
    writer = policy.model or model
    kept = find_cut(view.context, read_standing(*view), policy)
    if kept is None:
        if step.command is not None:
            answer = _answered(step.command, "repeated", "nothing is left to compact")
            await run.publish(answer.as_extension(), key=f"control.{step.command.position}")
        return
    doing = _Doing(run, view, policy, writer, kept, step)
    await run.publish(doing.started().as_extension(), key=f"{doing.name}.started")
    draft = Draft(writer)
    faults: list[str] = []
    try:
        interrupt = await until_interrupted(run, partial(doing.listen, draft, faults))
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(LAST_WORDS_SECONDS, shield=True):
            await doing.last_words(draft)
        raise
    summary = draft.whole
    if interrupt is not None and isinstance(interrupt.control, Abort):
        await doing.interrupted(draft, "the loop was aborted")
    elif summary is not None and not summary.is_failed and summary.text_content().strip():
        await doing.record(draft, summary)
    elif interrupt is not None:
        await doing.interrupted(draft, "a user spoke")
    else:
        await doing.give_up(draft, faults[0] if faults else _fault(summary))


class _MovedOn(Exception):
    """Somebody has appended since the log was looked at."""


@dataclass(frozen=True, slots=True)
class _Doing:
    """One compaction."""

    run: Run
    view: View
    policy: CompactionPolicy
    writer: Model
    first_kept: int
    step: CompactContext

    @property
    def name(self) -> str:
        """The step's, for good: once it has landed, the next one has another."""
        if self.step.command is not None:
            return f"control.{self.step.command.position}"
        done = sum(isinstance(stood.message, Compaction) for stood in self.view.context.entries)
        return f"compaction.{done + 1}"

    @property
    def _loop_id(self) -> str:
        """Of the loop that ends here, or of the one that is to begin."""
        return self.step.turn_id.loop_id

    def started(self) -> CompactionStarted:
        context = self.view.context
        tokens = context_tokens(context, self.policy.estimator)
        return CompactionStarted(loop_id=self._loop_id, estimated_tokens=tokens, message_count=len(context.messages))

    async def listen(self, draft: Draft, faults: list[str]) -> None:
        """Have the summary written; what an adapter raises is added to the faults."""
        context = self.view.context
        request = summary_request(
            context,
            self.first_kept,
            window=window_of(self.writer) or self.policy.window,
            max_tokens=self.policy.max_tokens,
            instructions=self._wishes(),
            key=f"{self.run.session.id}.{self.name}.{context.position}.{self.view.status.compactions_failed + 1}",
        )
        try:
            async with aclosing(self.writer.stream(request)) as events:
                async for event in events:
                    draft.add(event)
        except Exception as error:  # noqa: BLE001  # whatever an adapter raises is recorded as a failure
            _log.warning("the model %s failed to write a summary", self.writer.name, exc_info=True)
            faults.append(f"{type(error).__name__}: {error}")

    def _wishes(self) -> list[str]:
        control = None if self.step.command is None else self.step.command.control
        asked = control.instructions if isinstance(control, Compact) else None
        return [wish for wish in (self.policy.instructions, asked) if wish]

    # --- appends ------------------------------------------------------------------------------------------------------

    async def record(self, draft: Draft, summary: AssistantMessage) -> None:
        """Append the compaction and all that it ends. Whoever spoke meanwhile stands behind the cut, and is kept."""
        for _ in range(_TRIES):
            last = (await self.run.session.head()).position
            view = await self.run.refresh()
            if any(command.message.kind == Abort.KIND for command in view.status.commands):
                return await self.interrupted(draft, "the loop was aborted")
            if _is_led_elsewhere(view.context, self.view.context.position):
                return await self.interrupted(draft, "the session was branched meanwhile")
            with suppress(_MovedOn):  # what has come since is looked at first
                await self.run.publish_at(partial(self._batch, view, summary, last + 1), key=self.name)
                return None
        return await self.interrupted(draft, "others were faster all the time")

    def _batch(self, view: View, summary: AssistantMessage, position: int, told: int) -> list[Publishable]:
        if told > position:  # a smaller one is out of date, and will be refused
            raise _MovedOn
        before, estimator = view.context, self.policy.estimator
        tokens = context_tokens(before, estimator)
        entry = Compaction(
            summary=summary.text_content().strip(),
            first_kept=self.first_kept,
            tokens_before=tokens,
            provider=summary.provider or self.writer.provider,
            model=summary.model or self.writer.name,
            usage=summary.usage,
            timestamp=now_ms(),
        )
        after = evolve(before, Envelope(self.run.session.id, position, Lane.LLM, entry, 0.0, ""))
        ended = CompactionEnded(
            loop_id=self._loop_id,
            messages_before=len(before.messages),
            messages_after=len(after.messages),
            estimated_tokens_before=tokens,
            estimated_tokens_after=context_tokens(after, estimator),
            position=position,
        )
        events: list[AgentEvent] = [ended]
        if self.step.is_open:
            usage = loop_usage(before, self._loop_id)
            turns = self.step.turn_id.turn_index
            events.append(AgentEnded(loop_id=self._loop_id, stop_reason="contextCompacted", turns=turns, usage=usage))
        if self.step.command is not None:
            events.append(_answered(self.step.command, "applied"))
        return [entry, *(event.as_extension() for event in events)]

    async def give_up(self, draft: Draft, reason: str) -> None:
        """Say that no summary came; the last try answers the command.

        Raises:
            TryAgain: there is another one.
        """
        failed = self._failed(draft, reason)
        failures, policy = self.view.status.compactions_failed + 1, self.policy
        if failures < policy.attempts:
            await self.run.publish(failed.as_extension())
            raise TryAgain(policy.pause * 2 ** (failures - 1), f"no summary: {reason}")
        if self.step.command is None:
            await self.run.publish(failed.as_extension())
            return
        answer = _answered(self.step.command, "refused", f"no summary: {reason}")
        await self.run.publish(failed.as_extension(), answer.as_extension(), key=self.name)

    async def interrupted(self, draft: Draft, reason: str) -> None:
        """Say what the model call took that came to nothing."""
        await self.run.publish(self._failed(draft, reason, is_interrupted=True).as_extension())

    async def last_words(self, draft: Draft) -> None:
        """The same when the worker is stopped."""
        if draft.is_empty:
            return
        try:
            await self.interrupted(draft, "the worker was stopped")
        except BusError as error:
            _log.info("session %s: what a summary took is lost: %s", self.run.session.id, error)

    def _failed(self, draft: Draft, reason: str, *, is_interrupted: bool = False) -> CompactionFailed:
        spent = draft.whole or draft.cut("aborted", reason)
        return CompactionFailed(
            loop_id=self._loop_id,
            reason=reason,
            is_interrupted=is_interrupted,
            provider=spent.provider or self.writer.provider,
            model=spent.model or self.writer.name,
            usage=spent.usage,
        )


def _answered(
    command: Command, outcome: Literal["applied", "repeated", "refused"], reason: str | None = None
) -> ControlAnswered:
    return ControlAnswered(control=command.position, outcome=outcome, reason=reason)


def _fault(summary: AssistantMessage | None) -> str:
    if summary is None:
        return "the model ended without an answer"
    return summary.error_message or "the model said nothing"


def _is_led_elsewhere(context: Context, since: int) -> bool:
    """Something was appended after `since` that changes what stands, and with it what the summary is about."""
    for at in range(len(context.entries) - 1, -1, -1):
        entry = context.entries[at]
        if entry.position <= since:
            return False
        if isinstance(entry.message, Compaction | LeafMove | LoopCompaction | Prune):
            return True
    return False
