"""Convert trace contexts between messages, text, and OpenTelemetry's objects."""

from collections.abc import Iterable, Mapping

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, format_span_id, format_trace_id, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.handlers.telemetry.names import TRACEPARENT, TRACESTATE

__all__ = ("carries_context", "context_in", "context_of", "links_to", "span_context_of", "text_of", "with_context")

# Not the program's own propagators: they may add baggage, which a log must not keep.
_W3C = TraceContextTextMapPropagator()


def context_of(carrier: Mapping[str, str]) -> Context:
    """Return a context in which the span that the headers in `carrier` name is current. The context is empty if there
    is no such span."""
    return _W3C.extract(carrier, Context())


def context_in(text: str) -> Context:
    """Return a context in which the span that `text`, a `traceparent`, names is current. The context is empty if `text`
    is invalid."""
    return context_of({TRACEPARENT: text})


def text_of(span: Span) -> str:
    """Return the `traceparent` of a span; "" if the span is not part of a trace."""
    return _carrier_of(span.get_span_context()).get(TRACEPARENT, "")


def carries_context(message: Publishable) -> bool:
    """Return whether a message carries a trace context."""
    return span_context_of(message) is not None


def span_context_of(message: Publishable) -> SpanContext | None:
    """Return the context of the span that created a message; None if the message carries no valid context."""
    if not isinstance(message, LlmMessage) or not message.metadata:
        return None
    carrier = {
        name: value for name in (TRACEPARENT, TRACESTATE) if isinstance(value := message.metadata.get(name), str)
    }
    if TRACEPARENT not in carrier:
        return None
    found = get_current_span(context_of(carrier)).get_span_context()
    return found if found.is_valid else None


def with_context(message: LlmMessage, context: SpanContext) -> LlmMessage:
    """Return a copy of a message that carries the context of a span in its private metadata."""
    return message.model_copy(update={"metadata": {**(message.metadata or {}), **_carrier_of(context)}})


def links_to(contexts: Iterable[SpanContext | None]) -> list[Link]:
    """Return a link to each valid span, without duplicates."""
    known = {(found.trace_id, found.span_id): found for found in contexts if found is not None and found.is_valid}
    return [Link(found) for found in known.values()]


def _carrier_of(context: SpanContext) -> dict[str, str]:
    if not context.is_valid:
        return {}
    trace, span = format_trace_id(context.trace_id), format_span_id(context.span_id)
    carrier = {TRACEPARENT: f"00-{trace}-{span}-{context.trace_flags:02x}"}
    if context.trace_state:
        carrier[TRACESTATE] = context.trace_state.to_header()
    return carrier
