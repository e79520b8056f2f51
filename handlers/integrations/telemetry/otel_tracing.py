"""`otel_tracing`: traces of a bus and its agents. Imports OpenTelemetry only when it is called."""

import os
import sys
from typing import TYPE_CHECKING

from lanebus import SetupError
from lanebus.handlers.integrations.telemetry.names import CAPTURE_CONTENT, CAPTURE_ON_SPANS
from lanebus.integration import require_flag

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from lanebus.handlers.integrations.telemetry.open_telemetry import OpenTelemetry


# Make the tracing of a bus, and set up the SDK for the command line.


def otel_tracing(
    tracer_provider: "TracerProvider | None" = None, *, capture_content: bool | None = None
) -> "OpenTelemetry":
    """Return a value for the argument `tracing` of `Bus.open` that records OpenTelemetry traces.

    Set up an OpenTelemetry SDK first; otherwise nothing is recorded. Several buses may share the result.

    Args:
        tracer_provider: makes the spans. None means the program's global tracer provider at the time of this call.
        capture_content: whether spans contain messages, and arguments and results of tools. None means True if the
            environment variable `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` is `SPAN_ONLY` or
            `SPAN_AND_EVENT`, else False.

    Raises:
        TracesMissing: `opentelemetry-api` is not installed.
    """
    require_flag("capture_content", capture_content, is_optional=True)
    try:
        from opentelemetry.trace import get_tracer_provider  # noqa: PLC0415

        from lanebus.handlers.integrations.telemetry.open_telemetry import OpenTelemetry  # noqa: PLC0415  # of an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "opentelemetry":
            raise TracesMissing("opentelemetry-api", "'lanebus[otel]'") from None
        raise
    if capture_content is None:
        capture_content = os.environ.get(CAPTURE_CONTENT, "").strip().upper() in CAPTURE_ON_SPANS
    return OpenTelemetry(tracer_provider or get_tracer_provider(), captures_content=capture_content)


def is_sdk_set_up() -> bool:
    """Return whether the program, or `opentelemetry-instrument`, has set up an SDK. Does not import OpenTelemetry."""
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


# Errors of the set-up of traces.


class TracesMissing(SetupError):
    """A package that traces need is not installed."""

    def __init__(self, package: str, install: str) -> None:
        super().__init__(f"{package!r} is not installed", f"run pip install {install}")
        self.package = package


class TracesFailed(SetupError):
    """The exporter of the traces could not be set up."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"traces cannot be sent: {reason}", remedy)
        self.reason = reason
