"""The traces of a command: `--traces`, or an SDK that is set up already."""

import os
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from lanebus.bus.error_text import describe_error
from lanebus.bus.tracing import NO_TRACING, Tracing
from lanebus.handlers.telemetry.errors import TracesFailed, TracesMissing
from lanebus.handlers.telemetry.otel_tracing import is_sdk_set_up, otel_tracing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ("tracing_of",)

EXPORTERS = "OTEL_TRACES_EXPORTER"
SERVICE = "OTEL_SERVICE_NAME"
CONSOLE, OTLP = "console", "otlp"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
"""the variables that choose between the exporters of OTLP; the first that is set counts"""

_BY_PROTOCOL = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
"""protocol → name of the exporter's entry point. OpenTelemetry's `otlp` itself is always the one of gRPC"""


def tracing_of(*, is_wanted: bool) -> Tracing:
    """Return the tracing of a command's bus.

    Args:
        is_wanted: whether to set up the SDK from the environment if it is not set up yet. If False, traces are recorded
            only if the SDK is set up already, such as by `opentelemetry-instrument`.

    Raises:
        TracesMissing: `opentelemetry-api`, `opentelemetry-sdk` or the exporter of the OTLP protocol is not installed.
        TracesFailed: another exporter is not installed, an exporter cannot be made, or the OTLP protocol is unknown.
    """
    if is_wanted and not is_sdk_set_up():
        otel_tracing()  # raises if the extra is missing
        _set_up_sdk()
    return otel_tracing() if is_sdk_set_up() else NO_TRACING


def _set_up_sdk() -> None:
    """Make a provider for all of the process. The SDK reads its own variables, and sends the last spans at the exit."""
    try:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # a program's choice, so no dependency
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        raise TracesMissing("opentelemetry-sdk", "opentelemetry-sdk opentelemetry-exporter-otlp") from None
    from opentelemetry.trace import set_tracer_provider  # noqa: PLC0415

    os.environ.setdefault(SERVICE, "lanebus")
    provider = TracerProvider()
    for name in (os.environ.get(EXPORTERS) or OTLP).split(","):
        if name.strip() != "none":
            provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())))
    set_tracer_provider(provider)


def _exporter(name: str) -> "SpanExporter":
    protocol = _protocol() if name == OTLP else ""
    found = [*entry_points(group="opentelemetry_traces_exporter", name=_BY_PROTOCOL.get(protocol, name))]
    if not found and protocol:
        package = f"opentelemetry-exporter-otlp-proto-{protocol.partition('/')[0]}"
        raise TracesMissing(package, f"{package}, or set {PROTOCOLS[1]} to the protocol of the one that you have")
    if not found:
        raise TracesFailed(
            f"the exporter {name!r} of {EXPORTERS} is not installed",
            "pip install its package, such as opentelemetry-exporter-otlp, or name another one, such as console",
        )
    try:
        if name == CONSOLE:  # stdout has the command's own output
            return cast("Callable[..., SpanExporter]", found[0].load())(out=sys.stderr)
        return cast("Callable[[], SpanExporter]", found[0].load())()
    except Exception as error:  # of the exporter's package
        raise TracesFailed(
            f"the exporter {name!r}: {describe_error(error)}", "check the OTEL_… variables of this exporter"
        ) from error


def _protocol() -> str:
    """Return the protocol of OTLP that the environment names; "grpc" if it names none, as in OpenTelemetry's SDK."""
    variable = next((name for name in PROTOCOLS if os.environ.get(name)), PROTOCOLS[1])
    protocol = os.environ.get(variable, "").strip() or "grpc"
    if protocol not in _BY_PROTOCOL:
        raise TracesFailed(
            f"{variable} is {protocol[:100]!r}, which is not supported", f"set it to {' or '.join(_BY_PROTOCOL)}"
        )
    return protocol
