"""Spans of the bus: create and send, receive, process, settle."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.tracing import NO_TRACING, Sending, Settlement
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.telemetry import names
from lanebus.handlers.telemetry.active_span import ActiveSpan
from lanebus.handlers.telemetry.trace_context import context_in, links_to, span_context_of, text_of, with_context

__all__ = ("MessagingSpans",)


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
