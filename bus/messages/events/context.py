"""Events that change what the model is shown: compaction, pruning and going back."""

from typing import Annotated

from pydantic import Field

from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.events.event import AgentEvent, Positions
from lanebus.bus.messages.node import NodeId, RevertCategory
from lanebus.bus.messages.usage import Usage

__all__ = ("CompactionEnded", "CompactionFailed", "CompactionStarted", "PruneApplied", "RevertApplied")


class CompactionStarted(AgentEvent):
    KIND = "agent.compaction.started"
    loop_id: str
    estimated_tokens: int
    message_count: int


class CompactionEnded(AgentEvent):
    KIND = "agent.compaction.ended"
    loop_id: str
    messages_before: int
    messages_after: int
    estimated_tokens_before: int
    estimated_tokens_after: int
    loops_compacted: int | None = None
    position: Position | None = None
    """the `Compaction` entry"""


class CompactionFailed(AgentEvent):
    """No summary came of a model call. What the call took counts for the session all the same."""

    KIND = "agent.compaction.failed"
    loop_id: str
    reason: str
    is_interrupted: bool = False
    """it was cut short by a command or by the end of its worker, and says nothing of the next try"""
    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None


class PruneApplied(AgentEvent):
    KIND = "agent.prune.applied"
    loop_id: str
    tokens_removed: int
    pruned: Positions
    messages_removed: int | None = None
    """how many, where `pruned` does not name them all"""
    pruned_timestamps: Annotated[tuple[int, ...] | None, Field(strict=False)] = None
    """of the messages, in milliseconds, as seed 001 names them; several may have the same"""
    memo: str | None = None


class RevertApplied(AgentEvent):
    KIND = "agent.revert.applied"
    loop_id: str
    category: RevertCategory
    target: Position | None = None
    target_node: NodeId | None = None
    """the same in the author's own numbers"""
    abandoned_nodes: Annotated[tuple[NodeId, ...], Field(strict=False)] = ()
    summary: Position | None = None
    """the entry that says what was learnt on the way"""
    applied: bool
    reason: str | None = None
