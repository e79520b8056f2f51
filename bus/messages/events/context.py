"""Events about changes of the context: compaction, pruning and reverting."""

from typing import Annotated

from pydantic import Field

from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.events.event import AgentEvent, Positions
from lanebus.bus.messages.node import NodeId, RevertCategory
from lanebus.bus.messages.usage import Usage

__all__ = ("CompactionEnded", "CompactionFailed", "CompactionStarted", "PruneApplied", "RevertApplied")


class CompactionStarted(AgentEvent):
    """A model call that writes a summary of the context is about to start."""

    KIND = "agent.compaction.started"
    loop_id: str
    estimated_tokens: int
    message_count: int


class CompactionEnded(AgentEvent):
    """The context was compacted."""

    KIND = "agent.compaction.ended"
    loop_id: str
    messages_before: int
    messages_after: int
    estimated_tokens_before: int
    estimated_tokens_after: int
    loops_compacted: int | None = None
    position: Position | None = None
    """position of the `Compaction` entry"""


class CompactionFailed(AgentEvent):
    """A model call that writes a summary failed. Its usage is still part of the session's usage."""

    KIND = "agent.compaction.failed"
    loop_id: str
    reason: str
    is_interrupted: bool = False
    """whether a command or the end of the worker interrupted the call, so that the next attempt may succeed"""
    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None


class PruneApplied(AgentEvent):
    """Messages were left out of the context."""

    KIND = "agent.prune.applied"
    loop_id: str
    tokens_removed: int
    pruned: Positions
    messages_removed: int | None = None
    """number of removed messages, if `pruned` does not name all of them"""
    pruned_timestamps: Annotated[tuple[int, ...] | None, Field(strict=False)] = None
    """timestamps of the removed messages in milliseconds UTC. The `two-lane-agent` system refers to messages by
    timestamp, and several messages may have the same timestamp"""
    memo: str | None = None


class RevertApplied(AgentEvent):
    """The agent tried to go back to an earlier entry. `applied` is True if the agent went back."""

    KIND = "agent.revert.applied"
    loop_id: str
    category: RevertCategory
    target: Position | None = None
    target_node: NodeId | None = None
    """node of the entry at `target` in the conversation tree of the author's system"""
    abandoned_nodes: Annotated[tuple[NodeId, ...], Field(strict=False)] = ()
    summary: Position | None = None
    """position of the entry that summarizes the abandoned branch"""
    applied: bool
    reason: str | None = None
