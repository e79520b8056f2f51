"""OpenTelemetry traces. Using them needs the extra `otel`; importing this module imports no OpenTelemetry package."""

from lanebus.bus.hooks import NO_TRACING, Tracing
from lanebus.handlers.agent.health import trace_id
from lanebus.handlers.agent.run import AgentTracing
from lanebus.handlers.integrations.telemetry.otel_tracing import TracesFailed, TracesMissing, otel_tracing

__all__ = (
    "NO_TRACING",
    "AgentTracing",
    "TracesFailed",
    "TracesMissing",
    "Tracing",
    "otel_tracing",
    "trace_id",
)
