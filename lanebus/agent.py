"""Agents, each a loop of a model and its tools, and the workers that run them. `load_model` loads a model adapter."""

from lanebus.handlers.agent.ask import ask
from lanebus.handlers.agent.bounds import PreviewBounds, RunBounds, WorkerBounds
from lanebus.handlers.agent.commands import (
    abort,
    answered,
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
from lanebus.handlers.agent.compaction import CompactionPolicy, Compactor
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
from lanebus.handlers.agent.load import load_agent, load_model
from lanebus.handlers.agent.loop import AgentLoop
from lanebus.handlers.agent.models.model import Model, ModelFailure, ModelRequest, failure_of
from lanebus.handlers.agent.models.offline import OfflineModel
from lanebus.handlers.agent.recording.recorded_turn import RecordedTool, RecordedTurn
from lanebus.handlers.agent.recording.recorder import Recorder
from lanebus.handlers.agent.run import Agent, Run
from lanebus.handlers.agent.settings import Guard, Reject, Warn
from lanebus.handlers.agent.tools.subagent import SubAgent
from lanebus.handlers.agent.tools.tool import FunctionTool, Tool, ToolContext, tool
from lanebus.handlers.agent.tools.tool_call import ToolReply
from lanebus.handlers.agent.turn.decision import LoopLimits
from lanebus.handlers.agent.turn.request import AskedRequest, read_request
from lanebus.handlers.agent.worker.worker import Worker, run_worker
from lanebus.handlers.providers.answer import Begun, ModelEvent, Piece
from lanebus.handlers.providers.options import ToolSpec

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
