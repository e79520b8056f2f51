"""The seam for traces of agents: their runs, model calls and tool calls."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.message import AssistantMessage, ToolResultMessage
from lanebus.bus.tracing import Tracing
from lanebus.handlers.agent.models.model import Model, ModelRequest

__all__ = ("AgentTracing", "CallRecord", "ToolRecord", "agent_tracing")


class CallRecord(Protocol):
    """A model call that is being recorded."""

    def began(self) -> None:
        """Record that the first piece of the answer has arrived. Repeated calls do nothing."""
        ...

    def ended(self, message: AssistantMessage) -> None:
        """Record the answer, whole or cut."""
        ...


class ToolRecord(Protocol):
    """A tool call that is being recorded."""

    def ended(self, result: ToolResultMessage) -> None:
        """Record the result."""
        ...


@runtime_checkable
class AgentTracing(Protocol):
    """Records what an agent does. If the `Tracing` of a bus implements this protocol too, `AgentLoop` uses it.

    If the context manager of `calling` or `executing` yields None, the call is not recorded.
    """

    def invoking(self, agent: str, session: str, model: Model) -> AbstractContextManager[None]:
        """Record a run of an agent for the length of the block.

        Args:
            agent: the agent's name.
            session: id of the session.
            model: the model that the agent calls.
        """
        ...

    def calling(self, model: Model, request: ModelRequest) -> AbstractContextManager[CallRecord | None]:
        """Record a model call for the length of the block."""
        ...

    def executing(self, call: ToolCallBlock, description: str) -> AbstractContextManager[ToolRecord | None]:
        """Record a tool call for the length of the block.

        Args:
            call: the model's call.
            description: the tool's description for the model.
        """
        ...


class _NoAgentTracing:
    """Records nothing."""

    def invoking(self, agent: str, session: str, model: Model) -> AbstractContextManager[None]:
        del agent, session, model
        return nullcontext()

    def calling(self, model: Model, request: ModelRequest) -> AbstractContextManager[CallRecord | None]:
        del model, request
        return nullcontext()

    def executing(self, call: ToolCallBlock, description: str) -> AbstractContextManager[ToolRecord | None]:
        del call, description
        return nullcontext()


_NONE: AgentTracing = _NoAgentTracing()


def agent_tracing(tracing: Tracing) -> AgentTracing:
    """Return `tracing` if it also records agents, otherwise an `AgentTracing` that records nothing."""
    return tracing if isinstance(tracing, AgentTracing) else _NONE
