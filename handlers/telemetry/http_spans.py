"""Spans of the HTTP requests that publish."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from opentelemetry.trace import Span, SpanKind, Tracer, get_current_span

from lanebus.handlers.telemetry import names
from lanebus.handlers.telemetry.active_span import ActiveSpan, note_error
from lanebus.handlers.telemetry.trace_context import context_of

__all__ = ("HttpSpans", "RequestRecord")


class HttpSpans:
    """Records requests; see `HttpTracing`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def requesting(
        self, method: str, route: str, scheme: str, path: str, headers: Iterable[tuple[str, str]]
    ) -> "AbstractContextManager[RequestRecord | None]":
        """See `HttpTracing.requesting`. The span continues the trace of the header `traceparent`."""
        if get_current_span().get_span_context().is_valid:  # the server's own instrumentation
            return nullcontext()
        context = context_of({name: value for name, value in headers if name in {names.TRACEPARENT, names.TRACESTATE}})
        span = self._tracer.start_span(
            f"{method} {route}",
            context,
            kind=SpanKind.SERVER,
            attributes={
                names.HTTP_METHOD: method,
                names.HTTP_ROUTE: route,
                names.URL_PATH: path,
                names.URL_SCHEME: scheme,
            },
        )
        return ActiveSpan(span, RequestRecord(span), context)


class RequestRecord:
    """See `HttpRecord`."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def answered(self, status: int) -> None:
        self._span.set_attribute(names.HTTP_STATUS, status)
        if status >= 500:
            note_error(self._span, str(status))
