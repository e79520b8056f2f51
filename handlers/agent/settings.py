"""How an agent's loop is set up: what its steps are decided and taken with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from bus.messages.events import AgentStarted
from handlers.agent.clock import SYSTEM_CLOCK, Clock
from handlers.agent.definition import Definitions, Offer
from handlers.agent.guards import Guard
from handlers.agent.limits import DEFAULT_LIMITS, LoopLimits
from handlers.agent.model import DEFAULT_MAX_TOKENS, SILENCE_SECONDS, Model
from handlers.agent.retry import DEFAULT_RETRY, Retrying
from handlers.agent.run import Run, View
from handlers.agent.tool import Tool

if TYPE_CHECKING:
    from handlers.agent.steps import Beginning, CompactContext

__all__ = ("Compaction", "LoopSettings")


class Compaction(Protocol):
    """Tells a context shorter when it is time."""

    def wants(self, view: View) -> bool:
        """The next request would be too long, or the last one was. Pure."""
        ...

    async def compact(self, run: Run, view: View, step: "CompactContext") -> None:
        """Do it, once: end the loop if one is open, as `contextCompacted`, and answer the command if there is one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """See `AgentLoop`, whose arguments these are."""

    model: Model
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    system: str | None = None
    name: str = "agent"
    config: str = "main"
    limits: LoopLimits = DEFAULT_LIMITS
    max_tokens: int = DEFAULT_MAX_TOKENS
    guards: Sequence[Guard] = ()
    retry: Retrying = DEFAULT_RETRY
    drain_seconds: float = 2.0
    silence_seconds: float | None = SILENCE_SECONDS
    clock: Clock = SYSTEM_CLOCK
    compaction: Compaction | None = None
    definitions: Definitions = field(default_factory=Definitions, compare=False, repr=False)

    def offer(self) -> Offer:
        """What the model is offered now; tools may change what they say of themselves."""
        return self.definitions.offer(self.model, [tool.spec for tool in self.tools.values()], self.max_tokens)

    def started(self, loop_id: str, begins: "Beginning") -> AgentStarted:
        """The event that such a loop begins."""
        return AgentStarted(
            loop_id=loop_id,
            agent=self.name,
            parent_loop_id=begins.parent,
            continuation=begins.continuation,
            config={
                "provider": self.model.provider,
                "model": self.model.name,
                "tools": [*self.tools],
                "maxTurns": self.limits.turns,
                "maxTokens": self.max_tokens,
            },
        )
