"""Agents: a model and its tools in a loop, and the workers that run them. Adapters are imported from their modules."""

from handlers.agent.errors import AgentNotFound, DuplicateTool, MissingExtra
from handlers.agent.load import load_agent
from handlers.agent.loop import AgentLoop
from handlers.agent.model import Model, ModelRequest
from handlers.agent.offline import OfflineModel
from handlers.agent.run import Agent, Run
from handlers.agent.tool import FunctionTool, Tool, ToolContext, ToolReply, tool
from handlers.agent.worker import Worker, run_worker
from handlers.providers.answer import ModelEvent, Piece
from handlers.providers.tools import ToolSpec

__all__ = (
    "Agent",
    "AgentLoop",
    "AgentNotFound",
    "DuplicateTool",
    "FunctionTool",
    "MissingExtra",
    "Model",
    "ModelEvent",
    "ModelRequest",
    "OfflineModel",
    "Piece",
    "Run",
    "Tool",
    "ToolContext",
    "ToolReply",
    "ToolSpec",
    "Worker",
    "load_agent",
    "run_worker",
    "tool",
)
