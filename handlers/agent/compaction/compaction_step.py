"""What one compaction appends: the entry and its events, each built from what the step knows. Pure."""

from dataclasses import dataclass
from typing import Literal

from lanebus.bus.messages.context_entry import Compaction, LeafMove, LoopCompaction, Prune
from lanebus.bus.messages.events import (
    AgentEnded,
    AgentEvent,
    CompactionEnded,
    CompactionFailed,
    CompactionStarted,
    ControlAnswered,
)
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import AssistantMessage, now_ms
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.compaction.policy import CompactionPolicy, window_of
from lanebus.handlers.agent.compaction.summary_request import summary_request
from lanebus.handlers.agent.decide.decision import CompactContext
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.limits import loop_usage
from lanebus.handlers.agent.models.model import Model, ModelRequest
from lanebus.handlers.context.fold import Context, evolve
from lanebus.handlers.context.tokens import context_tokens

__all__ = ("CompactionStep", "is_led_elsewhere")


@dataclass(frozen=True, slots=True)
class CompactionStep:
    """One compaction, as it was decided upon."""

    snapshot: SessionSnapshot
    policy: CompactionPolicy
    writer: Model
    first_kept: int
    asked: CompactContext

    @property
    def name(self) -> str:
        """The step's, for good: once it has landed, the next one has another."""
        if self.asked.command is not None:
            return f"control.{self.asked.command.position}"
        done = sum(isinstance(stood.message, Compaction) for stood in self.snapshot.context.entries)
        return f"compaction.{done + 1}"

    @property
    def is_last_try(self) -> bool:
        """If this one gives no summary, the loop goes on without."""
        return self.snapshot.status.compactions_failed + 1 >= self.policy.attempts

    @property
    def pause(self) -> float:
        """Seconds before the next try."""
        return self.policy.pause * 2.0**self.snapshot.status.compactions_failed

    def request(self) -> ModelRequest:
        """What the writer is asked."""
        context = self.snapshot.context
        return summary_request(
            context,
            self.first_kept,
            window=window_of(self.writer) or self.policy.window,
            max_tokens=self.policy.max_tokens,
            instructions=self.policy.instructions,
            key=f"{context.session}.{self.name}.{context.position}.{self.snapshot.status.compactions_failed + 1}",
        )

    def started(self) -> CompactionStarted:
        """That the summary is asked for."""
        context = self.snapshot.context
        tokens = context_tokens(context, self.policy.estimator)
        return CompactionStarted(loop_id=self._loop_id, estimated_tokens=tokens, message_count=len(context.messages))

    def batch(self, before: Context, summary: AssistantMessage, position: int) -> list[Publishable]:
        """The compaction at `position`, and all that it ends.

        Args:
            before: all that the compaction stands behind.
        """
        tokens = context_tokens(before, self.policy.estimator)
        entry = Compaction(
            summary=summary.text_content().strip(),
            first_kept=self.first_kept,
            tokens_before=tokens,
            provider=summary.provider or self.writer.provider,
            model=summary.model or self.writer.name,
            usage=summary.usage,
            timestamp=now_ms(),
        )
        after = evolve(before, Envelope(before.session, position, Lane.LLM, entry, 0.0, ""))
        ended = CompactionEnded(
            loop_id=self._loop_id,
            messages_before=len(before.messages),
            messages_after=len(after.messages),
            estimated_tokens_before=tokens,
            estimated_tokens_after=context_tokens(after, self.policy.estimator),
            position=position,
        )
        events: list[AgentEvent] = [ended]
        if self.asked.is_open:
            usage = loop_usage(before, self._loop_id)
            turns = self.asked.turn_id.turn_index
            events.append(AgentEnded(loop_id=self._loop_id, stop_reason="contextCompacted", turns=turns, usage=usage))
        return [entry, *(event.as_extension() for event in (*events, *self.answered("applied")))]

    def failed(self, spent: AssistantMessage, reason: str, *, is_interrupted: bool = False) -> CompactionFailed:
        """That no summary came.

        Args:
            spent: the answer as far as it came.
            reason: in no words of the model or its provider: who reads the event may not read those.
        """
        return CompactionFailed(
            loop_id=self._loop_id,
            reason=reason,
            is_interrupted=is_interrupted,
            provider=spent.provider or self.writer.provider,
            model=spent.model or self.writer.name,
            usage=spent.usage,
        )

    def answered(
        self, outcome: Literal["applied", "repeated", "refused"], reason: str | None = None
    ) -> tuple[AgentEvent, ...]:
        """What became of the command, if one asked."""
        command = self.asked.command
        return () if command is None else (ControlAnswered(control=command.position, outcome=outcome, reason=reason),)

    @property
    def _loop_id(self) -> str:
        """Of the loop that ends here, or of the one that is to begin."""
        return self.asked.turn_id.loop_id


def is_led_elsewhere(context: Context, since: int) -> bool:
    """Something was appended after `since` that changes what stands, and with it what the summary is about."""
    for at in range(len(context.entries) - 1, -1, -1):
        entry = context.entries[at]
        if entry.position <= since:
            return False
        if isinstance(entry.message, Compaction | LeafMove | LoopCompaction | Prune):
            return True
    return False
