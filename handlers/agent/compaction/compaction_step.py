"""The entries that one compaction appends: the summary and its events. Pure."""

from dataclasses import dataclass
from typing import Literal

from lanebus.bus.messages.assistant import AssistantMessage
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
from lanebus.bus.messages.llm import now_ms
from lanebus.bus.whole_text import whole_text
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.compaction.policy import CompactionPolicy, window_of
from lanebus.handlers.agent.compaction.summary_request import summary_request
from lanebus.handlers.agent.decide.decision import CompactContext
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.limits import loop_usage
from lanebus.handlers.agent.models.model import Model, ModelRequest
from lanebus.handlers.context.fold import Context, evolve
from lanebus.handlers.context.tokens import context_tokens

__all__ = ("CompactionStep", "is_changed_since")


@dataclass(frozen=True, slots=True)
class CompactionStep:
    """One compaction: why and up to where to compact, and the entries to append for it."""

    snapshot: SessionSnapshot
    policy: CompactionPolicy
    writer: Model
    """the model that writes the summary"""
    first_kept: int
    """position of the first entry that stays in the context"""
    decision: CompactContext

    @property
    def name(self) -> str:
        """Idempotency key of the compaction: unique in the session, and the same at each attempt."""
        if self.decision.command is not None:
            return f"control.{self.decision.command.position}"
        done = sum(isinstance(envelope.message, Compaction) for envelope in self.snapshot.context.entries)
        return f"compaction.{done + 1}"

    @property
    def is_last_try(self) -> bool:
        """Whether the loop continues without a summary if this attempt fails."""
        return self.snapshot.status.compactions_failed + 1 >= self.policy.attempts

    @property
    def pause(self) -> float:
        """Seconds before the next attempt."""
        return self.policy.pause * 2.0**self.snapshot.status.compactions_failed

    def request(self) -> ModelRequest:
        """Return the request for the summary."""
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
        """Return the event for the start of the compaction."""
        context = self.snapshot.context
        tokens = context_tokens(context, self.policy.estimator)
        return CompactionStarted(loop_id=self._loop_id, estimated_tokens=tokens, message_count=len(context.messages))

    def batch(self, context: Context, summary: AssistantMessage, position: int) -> list[Publishable]:
        """Return the messages to append in one batch: the compaction and its end event.

        If a loop is open, the end of this loop follows. If a command asked for the compaction, its answer follows.

        Args:
            context: the context as of the entry before `position`.
            summary: the model's answer with the summary.
            position: position that the compaction will have.
        """
        tokens = context_tokens(context, self.policy.estimator)
        entry = Compaction(
            summary=whole_text(summary.text_content().strip()),
            first_kept=self.first_kept,
            tokens_before=tokens,
            provider=summary.provider or self.writer.provider,
            model=summary.model or self.writer.name,
            usage=summary.usage,
            timestamp=now_ms(),
        )
        compacted = evolve(context, Envelope(context.session, position, Lane.LLM, entry, 0.0, ""))
        ended = CompactionEnded(
            loop_id=self._loop_id,
            messages_before=len(context.messages),
            messages_after=len(compacted.messages),
            estimated_tokens_before=tokens,
            estimated_tokens_after=context_tokens(compacted, self.policy.estimator),
            position=position,
        )
        events: list[AgentEvent] = [ended]
        if self.decision.is_open:
            usage = loop_usage(context, self._loop_id)
            turns = self.decision.turn_id.turn_index
            events.append(AgentEnded(loop_id=self._loop_id, stop_reason="contextCompacted", turns=turns, usage=usage))
        return [entry, *(event.as_extension() for event in (*events, *self.answered("applied")))]

    def failed(self, spent: AssistantMessage, reason: str, *, is_interrupted: bool = False) -> CompactionFailed:
        """Return the event for an attempt without a summary.

        Args:
            spent: the answer so far, whose usage is recorded.
            reason: must not contain texts of the model or its provider: readers of events may not be allowed to see
                such texts.
            is_interrupted: whether the attempt was interrupted and does not count as a failure.
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
        """Return the event that answers the command, in a tuple; empty if no command asked for the compaction."""
        command = self.decision.command
        return () if command is None else (ControlAnswered(control=command.position, outcome=outcome, reason=reason),)

    @property
    def _loop_id(self) -> str:
        """Id of the open loop, which ends with the compaction; if no loop is open, id of the next loop."""
        return self.decision.turn_id.loop_id


def is_changed_since(context: Context, since: int) -> bool:
    """Whether an entry after `since` changes the context up to `since`. A summary of that context is then outdated."""
    for entry in reversed(context.entries):
        if entry.position <= since:
            return False
        if isinstance(entry.message, Compaction | LeafMove | LoopCompaction | Prune):
            return True
    return False
