"""Connect lanebus to other frameworks: their checkpoints, sessions and events as logs, their agents, tools and traces.

One package for each framework, each with an extra. Importing `bounds`, `extra` and `blocking` imports no framework.

What a framework appends, changes or clears becomes entries of a session. So the page, usage, forks, archives and
followers work as for any other agent. `session_states.py` folds these entries and appends to them.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.integrations.telemetry.otel_tracing import (
        TracesFailed,
        TracesMissing,
        is_sdk_set_up,
        otel_tracing,
    )

__all__ = (
    "TracesFailed",
    "TracesMissing",
    "is_sdk_set_up",
    "otel_tracing",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.handlers.integrations.telemetry.otel_tracing": (
                "TracesFailed",
                "TracesMissing",
                "is_sdk_set_up",
                "otel_tracing",
            ),
        },
    )
