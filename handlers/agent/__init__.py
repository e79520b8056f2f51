"""Agents: a model that calls tools in a loop, and the workers that run agents.

The next step is decided from the log alone, so any worker can continue a session. Start with `loop.py` for the agent,
`turn/decision.py` for its next step, and `worker/worker.py` for the process. `models/` has an adapter for each
provider; `load_model` finds a model by name.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.agent.ask import LastAnswer
    from lanebus.handlers.agent.commands import (
        COMMAND_SPECS,
        abort,
        answered,
        approve,
        decide_call,
        deny,
        follow_up,
        read_control,
        send,
    )
    from lanebus.handlers.agent.demo import demo_agent
    from lanebus.handlers.agent.errors import AnswerTimeout, Delay, DuplicateTool, RequestDamaged, RequestUnknown
    from lanebus.handlers.agent.health import (
        ConnectionCounts,
        LabelledCounts,
        LogWatch,
        ServerHealth,
        WorkerCounts,
        WorkerStatus,
        watch_server,
    )
    from lanebus.handlers.agent.load import load_agent
    from lanebus.handlers.agent.log_events import (
        AccessAllowed,
        AccessEnded,
        AccessRead,
        AccessRefused,
        ConnectionsRefused,
        LogContext,
        MonitorBegun,
        ServerAwaited,
        ServerFound,
        ServerUnsafe,
        WorkerNameInUse,
        common_fields,
        write_event,
    )
    from lanebus.handlers.agent.metadata_keys import BY, CWD, FOLLOW_UP, REDRIVEN
    from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS, Model, ModelRequest, Optioned, failure_of
    from lanebus.handlers.agent.recording.recorded_loop import RunLease
    from lanebus.handlers.agent.recording.recorded_turn import RecordedTurn
    from lanebus.handlers.agent.recording.recorder import Recorder
    from lanebus.handlers.agent.run import Agent, Run
    from lanebus.handlers.agent.tasks import in_background
    from lanebus.handlers.agent.tools.tool import ToolContext
    from lanebus.handlers.agent.tools.tool_call import CHANGED, approves, failed, unknown
    from lanebus.handlers.agent.tracing import CallRecord, ToolRecord
    from lanebus.handlers.agent.turn.decision import DEFAULT_LIMITS, LoopLimits
    from lanebus.handlers.agent.turn.loop_state import OpenAnswer, is_cut, wanted_calls
    from lanebus.handlers.agent.turn.request import AskedRequest, read_request
    from lanebus.handlers.agent.worker.services import name_of
    from lanebus.handlers.agent.worker.worker import DRAIN_SECONDS, HEARTBEAT_SECONDS, RETRY, Worker, collect_rarely

__all__ = (
    "BY",
    "CHANGED",
    "COMMAND_SPECS",
    "CWD",
    "DEFAULT_LIMITS",
    "DEFAULT_MAX_TOKENS",
    "DRAIN_SECONDS",
    "FOLLOW_UP",
    "HEARTBEAT_SECONDS",
    "REDRIVEN",
    "RETRY",
    "AccessAllowed",
    "AccessEnded",
    "AccessRead",
    "AccessRefused",
    "Agent",
    "AnswerTimeout",
    "AskedRequest",
    "CallRecord",
    "ConnectionCounts",
    "ConnectionsRefused",
    "Delay",
    "DuplicateTool",
    "LabelledCounts",
    "LastAnswer",
    "LogContext",
    "LogWatch",
    "LoopLimits",
    "Model",
    "ModelRequest",
    "MonitorBegun",
    "OpenAnswer",
    "Optioned",
    "RecordedTurn",
    "Recorder",
    "RequestDamaged",
    "RequestUnknown",
    "Run",
    "RunLease",
    "ServerAwaited",
    "ServerFound",
    "ServerHealth",
    "ServerUnsafe",
    "ToolContext",
    "ToolRecord",
    "Worker",
    "WorkerCounts",
    "WorkerNameInUse",
    "WorkerStatus",
    "abort",
    "answered",
    "approve",
    "approves",
    "collect_rarely",
    "common_fields",
    "decide_call",
    "demo_agent",
    "deny",
    "failed",
    "failure_of",
    "follow_up",
    "in_background",
    "is_cut",
    "load_agent",
    "name_of",
    "read_control",
    "read_request",
    "send",
    "unknown",
    "wanted_calls",
    "watch_server",
    "write_event",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.handlers.agent.ask": ("LastAnswer",),
            "lanebus.handlers.agent.commands": (
                "COMMAND_SPECS",
                "abort",
                "answered",
                "approve",
                "decide_call",
                "deny",
                "follow_up",
                "read_control",
                "send",
            ),
            "lanebus.handlers.agent.demo": ("demo_agent",),
            "lanebus.handlers.agent.errors": (
                "AnswerTimeout",
                "Delay",
                "DuplicateTool",
                "RequestDamaged",
                "RequestUnknown",
            ),
            "lanebus.handlers.agent.health": (
                "ConnectionCounts",
                "LabelledCounts",
                "LogWatch",
                "ServerHealth",
                "WorkerCounts",
                "WorkerStatus",
                "watch_server",
            ),
            "lanebus.handlers.agent.load": ("load_agent",),
            "lanebus.handlers.agent.log_events": (
                "AccessAllowed",
                "AccessEnded",
                "AccessRead",
                "AccessRefused",
                "ConnectionsRefused",
                "LogContext",
                "MonitorBegun",
                "ServerAwaited",
                "ServerFound",
                "ServerUnsafe",
                "WorkerNameInUse",
                "common_fields",
                "write_event",
            ),
            "lanebus.handlers.agent.metadata_keys": (
                "BY",
                "CWD",
                "FOLLOW_UP",
                "REDRIVEN",
            ),
            "lanebus.handlers.agent.models.model": (
                "DEFAULT_MAX_TOKENS",
                "Model",
                "ModelRequest",
                "Optioned",
                "failure_of",
            ),
            "lanebus.handlers.agent.recording.recorded_loop": ("RunLease",),
            "lanebus.handlers.agent.recording.recorded_turn": ("RecordedTurn",),
            "lanebus.handlers.agent.recording.recorder": ("Recorder",),
            "lanebus.handlers.agent.run": (
                "Agent",
                "Run",
            ),
            "lanebus.handlers.agent.tasks": ("in_background",),
            "lanebus.handlers.agent.tools.tool": ("ToolContext",),
            "lanebus.handlers.agent.tools.tool_call": (
                "CHANGED",
                "approves",
                "failed",
                "unknown",
            ),
            "lanebus.handlers.agent.tracing": (
                "CallRecord",
                "ToolRecord",
            ),
            "lanebus.handlers.agent.turn.decision": (
                "DEFAULT_LIMITS",
                "LoopLimits",
            ),
            "lanebus.handlers.agent.turn.loop_state": (
                "OpenAnswer",
                "is_cut",
                "wanted_calls",
            ),
            "lanebus.handlers.agent.turn.request": (
                "AskedRequest",
                "read_request",
            ),
            "lanebus.handlers.agent.worker.services": ("name_of",),
            "lanebus.handlers.agent.worker.worker": (
                "DRAIN_SECONDS",
                "HEARTBEAT_SECONDS",
                "RETRY",
                "Worker",
                "collect_rarely",
            ),
        },
    )
