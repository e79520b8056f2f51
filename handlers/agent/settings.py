"""The settings of an agent's loop, which all its steps share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lanebus.bus.groups.retry_policy import RetryPolicy
from lanebus.bus.messages.events import AgentStarted
from lanebus.handlers.agent.clock import SYSTEM_CLOCK, Clock
from lanebus.handlers.agent.decide.decision import CompactContext, CompactionRule, LoopStart
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.decide.retry import MODEL_RETRY
from lanebus.handlers.agent.limits import DEFAULT_LIMITS, LoopLimits
from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS, SILENCE_SECONDS, Model
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.tool import Tool
from lanebus.handlers.agent.turn.guards import Guard
from lanebus.handlers.agent.turn.request_definition import Definitions, Offer

__all__ = ("ContextCompactor", "LoopSettings")


class ContextCompactor(CompactionRule, Protocol):
    """Replaces the older part of a context by a summary."""

    async def compact(self, run: Run, snapshot: SessionSnapshot, step: CompactContext, /) -> None:
        """Compact once: end an open loop as `contextCompacted`, and answer `step.command` if there is one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """The arguments of `AgentLoop`, which documents them."""

    model: Model
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    system: str | None = None
    name: str = "agent"
    config: str = "main"
    limits: LoopLimits = DEFAULT_LIMITS
    max_tokens: int = DEFAULT_MAX_TOKENS
    guards: Sequence[Guard] = ()
    retry: RetryPolicy = MODEL_RETRY
    drain_seconds: float = 2.0
    silence_seconds: float | None = SILENCE_SECONDS
    clock: Clock = SYSTEM_CLOCK
    compaction: ContextCompactor | None = None
    definitions: Definitions = field(default_factory=Definitions, compare=False, repr=False)

    def offer(self) -> Offer:
        """Return the tools and options of a request made now. Tools may change their specs between calls."""
        return self.definitions.offer(self.model, [tool.spec for tool in self.tools.values()], self.max_tokens)

    def name_in(self, run: Run) -> str:
        """Return the agent's name in events and traces: that of the session's agent, else its own."""
        return run.lease.agent or self.name

    def started(self, run: Run, loop_id: str, start: LoopStart) -> AgentStarted:
        """Return the event that records the beginning of a loop."""
        return AgentStarted(
            loop_id=loop_id,
            agent=self.name_in(run),
            parent_loop_id=start.parent,
            continuation=start.continuation,
            config={
                "provider": self.model.provider,
                "model": self.model.name,
                "tools": [*self.tools],
                "maxTurns": self.limits.turns,
                "maxTokens": self.max_tokens,
            },
        )
