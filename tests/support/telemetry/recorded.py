"""Record spans in memory, and write them down as trees."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from lanebus import Bus
from lanebus.telemetry import otel_tracing
from tests.support.servers.kinds import SHARED

__all__ = ("Recorded", "attributes_of", "context_of", "traced_bus", "tree")

_namespaces = count()


@dataclass
class Recorded:
    """A provider whose spans stay in memory."""

    provider: TracerProvider = field(default_factory=lambda: TracerProvider(shutdown_on_exit=False))
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def __post_init__(self) -> None:
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return the spans that have ended and whose name begins with this, in the order of their start."""
        found = [span for span in self.exporter.get_finished_spans() if span.name.startswith(name)]
        return sorted(found, key=lambda span: (span.start_time or 0, span.end_time or 0))

    def one(self, name: str) -> ReadableSpan:
        """Return the only span whose name begins with this."""
        (span,) = self.spans(name)
        return span

    def trace(self, trace: int) -> list[ReadableSpan]:
        """Return the spans of one trace."""
        return [span for span in self.spans() if context_of(span).trace_id == trace]


@asynccontextmanager
async def traced_bus(recorded: Recorded, *, capture_content: bool | None = None) -> AsyncGenerator[Bus, None]:
    """Open a bus that is recorded, on the Valkey that tests share, in a namespace of its own."""
    tracing = otel_tracing(recorded.provider, capture_content=capture_content)
    url = SHARED.as_it_is("valkey").url
    async with Bus.open(url, namespace=f"traced{next(_namespaces)}", tracing=tracing) as bus:
        yield bus


def context_of(span: ReadableSpan) -> SpanContext:
    """Return the context of a span, which each span that was recorded has."""
    context = span.get_span_context()
    assert context is not None
    return context


def attributes_of(span: ReadableSpan) -> Mapping[str, object]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def tree(spans: Iterable[ReadableSpan]) -> list[str]:
    """Return a line for each span: its name and kind, indented below its parent, in the order of the start.

    The parent of the first may be missing, such as the span of a client.
    """
    below: dict[int, list[ReadableSpan]] = {}
    known = [*spans]
    ids = {context_of(span).span_id for span in known}
    for span in known:
        parent = span.parent.span_id if span.parent is not None and span.parent.span_id in ids else 0
        below.setdefault(parent, []).append(span)

    def lines(parent: int, depth: int) -> Sequence[str]:
        return [
            line
            for span in below.get(parent, [])
            for line in (f"{'  ' * depth}{span.name} {span.kind.name}", *lines(context_of(span).span_id, depth + 1))
        ]

    return [*lines(0, 0)]
