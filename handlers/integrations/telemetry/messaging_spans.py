"""Spans of the bus and of HTTP requests that publish: create and send, receive, process, settle.

`ActiveSpan` is a span for the length of a `with` block. Trace contexts travel in messages.
"""

from asyncio import CancelledError
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Token
from types import TracebackType
from typing import Generic, TypeVar

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from lanebus import LlmMessage, Receipt
from lanebus.handlers.integrations.telemetry import names
from lanebus.handlers.integrations.telemetry.names import CANCELLED, ERROR_TYPE, TRACEPARENT, TRACESTATE
from lanebus.integration import NO_TRACING, Sending, Settlement
from lanebus.messages import Publishable


class MessagingSpans:
    """Records the operations of a bus; see `Tracing`.

    Each message carries the context of the span that created the message. A process span is a child of the span that
    created its first message, so a trace continues through the log. A process span also has links to the spans that
    created its messages.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def sending(self, session: str, messages: Sequence[Publishable]) -> AbstractContextManager[Sending]:
        """See `Tracing.sending`.

        If two or more messages have no trace context yet, each of them gets a create span. A single such message gets
        the context of the send span.
        """
        given = [span_context_of(message) for message in messages]
        bare = [
            index
            for index, message in enumerate(messages)
            if given[index] is None and isinstance(message, LlmMessage)  # the others have no private metadata
        ]
        created: dict[int, SpanContext] = {}
        if len(bare) > 1:
            created = {index: self._create(session) for index in bare}
        span = self._start(
            names.SEND,
            names.SEND,
            session,
            SpanKind.PRODUCER if len(bare) == 1 else SpanKind.CLIENT,
            links=links_to([*given, *created.values()]),
            attributes={names.BATCH_MESSAGE_COUNT: len(messages)} if len(messages) > 1 else {},
        )
        own = span.get_span_context()
        if not own.is_valid:  # no SDK, and no trace to continue
            return NO_TRACING.sending(session, messages)
        if len(bare) == 1:
            created[bare[0]] = own
        if created:
            traced = list(messages)
            for index, context in created.items():
                message = traced[index]
                if isinstance(message, LlmMessage) and context.is_valid:
                    traced[index] = with_context(message, context)
            messages = traced
        return ActiveSpan(span, _Sent(span, messages))

    def _create(self, session: str) -> SpanContext:
        span = self._start(names.CREATE, names.CREATE, session, SpanKind.PRODUCER)
        span.end()
        return span.get_span_context()

    def received(self, group: str, consumer: str, sessions: Sequence[str], began_ns: int) -> None:
        """See `Tracing.received`. A fetch returns sessions and not messages, so the span has no links."""
        attributes: dict[str, AttributeValue] = {
            names.CONSUMER_GROUP: group,
            names.MESSAGING_CLIENT_ID: consumer,
            names.BATCH_MESSAGE_COUNT: len(sessions),
        }
        session = sessions[0] if len(sessions) == 1 else None
        span = self._start("fetch", names.RECEIVE, session, SpanKind.CLIENT, attributes=attributes, start_time=began_ns)
        span.end()

    def processing(
        self, session: str, messages: Sequence[Publishable], *, group: str, attempt: int
    ) -> AbstractContextManager[str]:
        """See `Tracing.processing`. The process span has a link to the current span, such as the span in which the
        worker was started."""
        found = [context for context in map(span_context_of, messages) if context is not None]
        ambient = get_current_span().get_span_context()
        attributes: dict[str, AttributeValue] = {names.ATTEMPT: attempt}
        if group:
            attributes[names.CONSUMER_GROUP] = group
        if len(messages) > 1:
            attributes[names.BATCH_MESSAGE_COUNT] = len(messages)
        parent = set_span_in_context(NonRecordingSpan(found[0]), Context()) if found else Context()
        span = self._start(
            names.PROCESS,
            names.PROCESS,
            session,
            SpanKind.CONSUMER,
            context=parent,
            links=links_to([*found, ambient]),
            attributes=attributes,
        )
        return ActiveSpan(span, text_of(span), parent)

    def settling(
        self, settlement: Settlement, group: str, sessions: Sequence[str], traces: Mapping[str, str]
    ) -> AbstractContextManager[None]:
        """See `Tracing.settling`.

        If there is one work item, the span is a child of its process span. If there are several, the span begins a
        trace of its own, with links to all process spans.
        """
        parents = [context_in(traces[session]) for session in sessions if session in traces]
        attributes: dict[str, AttributeValue] = {names.CONSUMER_GROUP: group}
        if len(sessions) > 1:
            attributes[names.BATCH_MESSAGE_COUNT] = len(sessions)
        is_one = len(sessions) == 1
        span = self._start(
            settlement,
            names.SETTLE,
            sessions[0] if is_one else None,
            SpanKind.CLIENT,
            context=parents[0] if is_one and parents else None,
            links=links_to(get_current_span(parent).get_span_context() for parent in parents),
            attributes=attributes,
        )
        return ActiveSpan(span, None)

    def _start(
        self,
        operation: str,
        kind_of_operation: str,
        session: str | None,
        kind: SpanKind,
        *,
        context: Context | None = None,
        links: Sequence[Link] = (),
        attributes: Mapping[str, AttributeValue] | None = None,
        start_time: int | None = None,
    ) -> Span:
        found: dict[str, AttributeValue] = {
            names.MESSAGING_SYSTEM: names.SYSTEM,
            names.MESSAGING_OPERATION: operation,
            names.MESSAGING_OPERATION_TYPE: kind_of_operation,
            **(attributes or {}),
        }
        name = operation
        if session is not None:
            name = f"{operation} {names.TEMPLATE}"
            found[names.DESTINATION] = found[names.MESSAGE_CONVERSATION_ID] = session
            found[names.DESTINATION_TEMPLATE] = names.TEMPLATE
        return self._tracer.start_span(name, context, kind=kind, attributes=found, links=links, start_time=start_time)


class _Sent:
    """See `Sending`."""

    __slots__ = ("_span", "messages")

    def __init__(self, span: Span, messages: Sequence[Publishable]) -> None:
        self._span, self.messages = span, messages

    def sent(self, receipt: Receipt) -> None:
        if len(receipt.positions) == 1:
            self._span.set_attribute(names.MESSAGE_ID, str(receipt.position))
        if receipt.is_duplicate:
            self._span.set_attribute(names.DUPLICATE, True)


# Spans of the HTTP requests that publish.


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


# A span for the length of a `with` block.

V = TypeVar("V")


class ActiveSpan(Generic[V]):
    """Makes a span the current span during the block, and ends the span after the block.

    Only the type of an error that leaves the block is recorded, because the error's text may quote a message. A
    cancellation does not count as an error.
    """

    __slots__ = ("_context", "_span", "_token", "_value")

    def __init__(self, span: Span, value: V, context: Context | None = None) -> None:
        """
        Args:
            span: a span that has begun.
            value: the value that the `with` statement gets.
            context: values that the block sees beside the span; None means the values of the current context.
        """
        self._span, self._value, self._context = span, value, context
        self._token: Token[Context] | None = None

    def __enter__(self) -> V:
        self._token = attach(set_span_in_context(self._span, self._context))
        return self._value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            detach(self._token)
        if isinstance(error, CancelledError):
            self._span.set_attribute(CANCELLED, True)
        elif isinstance(error, Exception):
            note_error(self._span, _error_type(error))
        self._span.end()


def note_error(span: Span, kind: str) -> None:
    """Record that an operation failed.

    Args:
        span: the operation's span.
        kind: value of `error.type`.
    """
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR))


def _error_type(error: Exception) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# Convert trace contexts between messages, text, and OpenTelemetry's objects.

# Not the program's own propagators: they may add baggage, which a log must not keep.
_PROPAGATOR = TraceContextTextMapPropagator()


def context_of(carrier: Mapping[str, str]) -> Context:
    """Return a context in which the span that the headers in `carrier` name is current. The context is empty if there
    is no such span."""
    return _PROPAGATOR.extract(carrier, Context())


def context_in(text: str) -> Context:
    """Return a context in which the span that `text`, a `traceparent`, names is current. The context is empty if `text`
    is invalid."""
    return context_of({TRACEPARENT: text})


def text_of(span: Span) -> str:
    """Return the `traceparent` of a span; "" if the span is not part of a trace."""
    return _carrier(span.get_span_context()).get(TRACEPARENT, "")


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
    return message.model_copy(update={"metadata": {**(message.metadata or {}), **_carrier(context)}})


def links_to(contexts: Iterable[SpanContext | None]) -> list[Link]:
    """Return a link to each valid span, without duplicates."""
    known = {(found.trace_id, found.span_id): found for found in contexts if found is not None and found.is_valid}
    return [Link(found) for found in known.values()]


def _carrier(context: SpanContext) -> dict[str, str]:
    if not context.is_valid:
        return {}
    trace, span = format_trace_id(context.trace_id), format_span_id(context.span_id)
    carrier = {TRACEPARENT: f"00-{trace}-{span}-{context.trace_flags:02x}"}
    if context.trace_state:
        carrier[TRACESTATE] = context.trace_state.to_header()
    return carrier
