"""Agents: a model and its tools in a loop, and the workers that run them. Adapters are imported from their modules."""

from handlers.agent.commands import (
    abort,
    answered,
    approve,
    compact_now,
    deny,
    follow_up,
    handoff,
    pause,
    resume,
    steer,
)
from handlers.agent.errors import AgentNotFound, DuplicateTool, MissingExtra, NoProgress, TryAgain
from handlers.agent.guards import Guard, Reject, Warn
from handlers.agent.limits import LoopLimits
from handlers.agent.load import load_agent
from handlers.agent.loop import AgentLoop
from handlers.agent.model import Model, ModelRequest
from handlers.agent.offline import OfflineModel
from handlers.agent.retry import ModelRetry
from handlers.agent.run import Agent, Run
from handlers.agent.tool import Tool, ToolContext, ToolReply, tool
from handlers.agent.worker import Worker, run_worker
from handlers.providers.answer import ModelEvent, Piece
from handlers.providers.tools import ToolSpec

__all__ = (
    "Agent",
    "AgentLoop",
    "AgentNotFound",
    "DuplicateTool",
    "Guard",
    "LoopLimits",
    "MissingExtra",
    "Model",
    "ModelEvent",
    "ModelRequest",
    "ModelRetry",
    "NoProgress",
    "OfflineModel",
    "Piece",
    "Reject",
    "Run",
    "Tool",
    "ToolContext",
    "ToolReply",
    "ToolSpec",
    "TryAgain",
    "Warn",
    "Worker",
    "abort",
    "answered",
    "approve",
    "compact_now",
    "deny",
    "follow_up",
    "handoff",
    "load_agent",
    "pause",
    "resume",
    "run_worker",
    "steer",
    "tool",
)
