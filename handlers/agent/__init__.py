"""Agents: a model that calls tools in a loop, and the workers that run agents.

The next step is decided from the log alone, so any worker can continue a session. Start with `loop.py` for the agent,
`turn/decision.py` for its next step, and `worker/worker.py` for the process. `models/` has an adapter for each
provider; `load_model` finds a model by name.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.agent.commands import (
        COMMAND_SPECS,
        LastAnswer,
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
        AccessAllowed,
        AccessEnded,
        AccessRead,
        AccessRefused,
        ConnectionCounts,
        ConnectionsRefused,
        LabelledCounts,
        LogContext,
        LogWatch,
        MonitorBegun,
        ServerAwaited,
        ServerFound,
        ServerHealth,
        ServerUnsafe,
        WorkerCounts,
        WorkerNameInUse,
        WorkerStatus,
        common_fields,
        watch_server,
        write_event,
    )
    from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS, Model, ModelRequest, Optioned, failure_of
    from lanebus.handlers.agent.recording.recorded_loop import RunLease
    from lanebus.handlers.agent.recording.recorder import RecordedTurn, Recorder
    from lanebus.handlers.agent.run import Agent, CallRecord, Run, ToolRecord
    from lanebus.handlers.agent.tasks import in_background
    from lanebus.handlers.agent.tools.tool import ToolContext
    from lanebus.handlers.agent.tools.tool_call import CHANGED, approves, failed, unknown
    from lanebus.handlers.agent.turn.decision import DEFAULT_LIMITS, LoopLimits
    from lanebus.handlers.agent.turn.loop_state import BY, CWD, FOLLOW_UP, REDRIVEN, OpenAnswer, is_cut, wanted_calls
    from lanebus.handlers.agent.turn.request import AskedRequest, read_request
    from lanebus.handlers.agent.worker.services import name_of
    from lanebus.handlers.agent.worker.worker import (
        DRAIN_SECONDS,
        HEARTBEAT_SECONDS,
        RETRY,
        Worker,
        collect_rarely,
        load_agent,
    )

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
            "lanebus.handlers.agent.commands": (
                "COMMAND_SPECS",
                "LastAnswer",
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
                "AccessAllowed",
                "AccessEnded",
                "AccessRead",
                "AccessRefused",
                "ConnectionCounts",
                "ConnectionsRefused",
                "LabelledCounts",
                "LogContext",
                "LogWatch",
                "MonitorBegun",
                "ServerAwaited",
                "ServerFound",
                "ServerHealth",
                "ServerUnsafe",
                "WorkerCounts",
                "WorkerNameInUse",
                "WorkerStatus",
                "common_fields",
                "watch_server",
                "write_event",
            ),
            "lanebus.handlers.agent.models.model": (
                "DEFAULT_MAX_TOKENS",
                "Model",
                "ModelRequest",
                "Optioned",
                "failure_of",
            ),
            "lanebus.handlers.agent.recording.recorded_loop": ("RunLease",),
            "lanebus.handlers.agent.recording.recorder": (
                "RecordedTurn",
                "Recorder",
            ),
            "lanebus.handlers.agent.run": (
                "Agent",
                "CallRecord",
                "Run",
                "ToolRecord",
            ),
            "lanebus.handlers.agent.tasks": ("in_background",),
            "lanebus.handlers.agent.tools.tool": ("ToolContext",),
            "lanebus.handlers.agent.tools.tool_call": (
                "CHANGED",
                "approves",
                "failed",
                "unknown",
            ),
            "lanebus.handlers.agent.turn.decision": (
                "DEFAULT_LIMITS",
                "LoopLimits",
            ),
            "lanebus.handlers.agent.turn.loop_state": (
                "BY",
                "CWD",
                "FOLLOW_UP",
                "OpenAnswer",
                "REDRIVEN",
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
                "load_agent",
            ),
        },
    )
