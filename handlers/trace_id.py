"""The id of the current trace, for log records. It needs no OpenTelemetry package."""

import sys

__all__ = ("trace_id",)


def trace_id() -> str:
    """Return the id of the current OpenTelemetry trace, 32 hexadecimal digits; "" if there is none.

    Never imports OpenTelemetry.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is None:  # without it, no span can be current
        return ""
    context = api.get_current_span().get_span_context()
    return api.format_trace_id(context.trace_id) if context.is_valid else ""
