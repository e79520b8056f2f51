"""Agents: a model and its tools in a loop, and the workers that run them. Adapters are imported from their modules."""

from handlers.agent.bounds import PreviewBounds, RunBounds, WorkerBounds
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
from handlers.agent.compaction import Compactor
from handlers.agent.compaction_policy import CompactionPolicy
from handlers.agent.errors import (
    AgentNotFound,
    ApprovalRefused,
    CostUnknown,
    DuplicateAgent,
    DuplicateTool,
    MissingExtra,
    ModelNotFound,
    NoProgress,
    ParameterRefused,
    TryAgain,
)
from handlers.agent.failure import ModelFailure, failure_of
from handlers.agent.guards import Guard, Reject, Warn
from handlers.agent.limits import LoopLimits
from handlers.agent.load import load_agent
from handlers.agent.load_model import load_model
from handlers.agent.loop import AgentLoop
from handlers.agent.model import Model, ModelRequest
from handlers.agent.offline import OfflineModel
from handlers.agent.retry import ModelRetry
from handlers.agent.run import Agent, Run
from handlers.agent.subagent import SubAgent
from handlers.agent.tool import FunctionTool, Tool, ToolContext, ToolReply, tool
from handlers.agent.worker import Worker, run_worker
from handlers.providers.answer import Begun, ModelEvent, Piece
from handlers.providers.tools import ToolSpec

__all__ = (
    "Agent",
    "AgentLoop",
    "AgentNotFound",
    "ApprovalRefused",
    "Begun",
    "CompactionPolicy",
    "Compactor",
    "CostUnknown",
    "DuplicateAgent",
    "DuplicateTool",
    "FunctionTool",
    "Guard",
    "LoopLimits",
    "MissingExtra",
    "Model",
    "ModelEvent",
    "ModelFailure",
    "ModelNotFound",
    "ModelRequest",
    "ModelRetry",
    "NoProgress",
    "OfflineModel",
    "ParameterRefused",
    "Piece",
    "PreviewBounds",
    "Reject",
    "Run",
    "RunBounds",
    "SubAgent",
    "Tool",
    "ToolContext",
    "ToolReply",
    "ToolSpec",
    "TryAgain",
    "Warn",
    "Worker",
    "WorkerBounds",
    "abort",
    "answered",
    "approve",
    "compact_now",
    "deny",
    "failure_of",
    "follow_up",
    "handoff",
    "load_agent",
    "load_model",
    "pause",
    "resume",
    "run_worker",
    "steer",
    "tool",
)
