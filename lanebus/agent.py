"""Agents, each a loop of a model and its tools, and the workers that run them. `load_model` loads a model adapter."""

from lanebus.handlers.agent.ask import ask
from lanebus.handlers.agent.bounds import PreviewBounds, RunBounds, WorkerBounds
from lanebus.handlers.agent.command_answer import answered
from lanebus.handlers.agent.commands import (
    abort,
    approve,
    decide_call,
    deny,
    follow_up,
    handoff,
    pause,
    request_compaction,
    resume,
    steer,
)
from lanebus.handlers.agent.compaction.compactor import Compactor
from lanebus.handlers.agent.compaction.policy import CompactionPolicy
from lanebus.handlers.agent.errors import (
    AgentNotFound,
    AnswerTimeout,
    ApprovalRefused,
    CallDecided,
    ChildTaken,
    CostUnknown,
    DuplicateAgent,
    DuplicateTool,
    LoopAborted,
    LoopFailed,
    LoopHalted,
    MissingKey,
    ModelNotFound,
    ModelRefused,
    NoProgress,
    OptionUnknown,
    ParameterRefused,
    PersonNeeded,
    RecorderMisused,
    RequestDamaged,
    RequestUnknown,
    ToolRefused,
    TryAgain,
    Unanswered,
)
from lanebus.handlers.agent.limits import LoopLimits
from lanebus.handlers.agent.load import load_agent
from lanebus.handlers.agent.load_model import load_model
from lanebus.handlers.agent.loop import AgentLoop
from lanebus.handlers.agent.models.failure import ModelFailure, failure_of
from lanebus.handlers.agent.models.model import Model, ModelRequest
from lanebus.handlers.agent.offline.model import OfflineModel
from lanebus.handlers.agent.recording.recorded_tool import RecordedTool
from lanebus.handlers.agent.recording.recorded_turn import RecordedTurn
from lanebus.handlers.agent.recording.recorder import Recorder
from lanebus.handlers.agent.run import Agent, Run
from lanebus.handlers.agent.tools.subagent import SubAgent
from lanebus.handlers.agent.tools.tool import FunctionTool, Tool, ToolContext, tool
from lanebus.handlers.agent.tools.tool_reply import ToolReply
from lanebus.handlers.agent.turn.guards import Guard, Reject, Warn
from lanebus.handlers.agent.turn.request_replay import AskedRequest, read_request
from lanebus.handlers.agent.worker.worker import Worker, run_worker
from lanebus.handlers.providers.common.answer import Begun, ModelEvent, Piece
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = (
    "Agent",
    "AgentLoop",
    "AgentNotFound",
    "AnswerTimeout",
    "ApprovalRefused",
    "AskedRequest",
    "Begun",
    "CallDecided",
    "ChildTaken",
    "CompactionPolicy",
    "Compactor",
    "CostUnknown",
    "DuplicateAgent",
    "DuplicateTool",
    "FunctionTool",
    "Guard",
    "LoopAborted",
    "LoopFailed",
    "LoopHalted",
    "LoopLimits",
    "MissingKey",
    "Model",
    "ModelEvent",
    "ModelFailure",
    "ModelNotFound",
    "ModelRefused",
    "ModelRequest",
    "NoProgress",
    "OfflineModel",
    "OptionUnknown",
    "ParameterRefused",
    "PersonNeeded",
    "Piece",
    "PreviewBounds",
    "RecordedTool",
    "RecordedTurn",
    "Recorder",
    "RecorderMisused",
    "Reject",
    "RequestDamaged",
    "RequestUnknown",
    "Run",
    "RunBounds",
    "SubAgent",
    "Tool",
    "ToolContext",
    "ToolRefused",
    "ToolReply",
    "ToolSpec",
    "TryAgain",
    "Unanswered",
    "Warn",
    "Worker",
    "WorkerBounds",
    "abort",
    "answered",
    "approve",
    "ask",
    "decide_call",
    "deny",
    "failure_of",
    "follow_up",
    "handoff",
    "load_agent",
    "load_model",
    "pause",
    "read_request",
    "request_compaction",
    "resume",
    "run_worker",
    "steer",
    "tool",
)
