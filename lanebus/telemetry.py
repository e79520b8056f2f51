"""OpenTelemetry traces. Using them needs the extra `otel`; importing this module imports no OpenTelemetry package."""

from lanebus.bus.tracing import NO_TRACING, Tracing
from lanebus.handlers.agent.tracing import AgentTracing
from lanebus.handlers.telemetry.errors import TracesFailed, TracesMissing
from lanebus.handlers.telemetry.otel_tracing import otel_tracing
from lanebus.handlers.trace_id import trace_id

__all__ = (
    "NO_TRACING",
    "AgentTracing",
    "TracesFailed",
    "TracesMissing",
    "Tracing",
    "otel_tracing",
    "trace_id",
)
