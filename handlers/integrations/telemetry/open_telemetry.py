"""Record the seams of the bus, of agents and of the page by OpenTelemetry."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from opentelemetry.trace import INVALID_SPAN, ProxyTracerProvider, TracerProvider, get_current_span

from lanebus import ToolCallBlock
from lanebus.agent import Model, ModelRequest
from lanebus.handlers.integrations.telemetry.agent_spans import AgentSpans
from lanebus.handlers.integrations.telemetry.messaging_spans import HttpSpans, MessagingSpans, RequestRecord
from lanebus.handlers.integrations.telemetry.names import TRACER
from lanebus.integration import CallRecord, Sending, Settlement, ToolRecord
from lanebus.messages import Publishable


class OpenTelemetry:
    """Records the operations of buses, agents and `serve` as OpenTelemetry spans. `otel_tracing` makes one."""

    def __init__(self, provider: TracerProvider, *, captures_content: bool) -> None:
        """
        Args:
            provider: makes the spans.
            captures_content: whether to also record messages, and the arguments and results of tools.
        """
        # Found once: asking for the global provider takes 2 µs, as it reads the environment.
        self._has_sdk = not isinstance(provider, ProxyTracerProvider)
        tracer = provider.get_tracer(TRACER)
        self._messaging, self._http = MessagingSpans(tracer), HttpSpans(tracer)
        self._agent = AgentSpans(tracer, captures_content=captures_content)

    def is_recording(self) -> bool:
        """Return whether a publish can be recorded or pass on a trace: an SDK is set up, or a span is current."""
        return self._has_sdk or get_current_span() is not INVALID_SPAN

    def sending(self, session: str, messages: Sequence[Publishable]) -> AbstractContextManager[Sending]:
        """See `Tracing.sending`."""
        return self._messaging.sending(session, messages)

    def received(self, group: str, consumer: str, sessions: Sequence[str], began_ns: int) -> None:
        """See `Tracing.received`."""
        self._messaging.received(group, consumer, sessions, began_ns)

    def processing(
        self, session: str, messages: Sequence[Publishable], *, group: str, attempt: int
    ) -> AbstractContextManager[str]:
        """See `Tracing.processing`."""
        return self._messaging.processing(session, messages, group=group, attempt=attempt)

    def settling(
        self, settlement: Settlement, group: str, sessions: Sequence[str], traces: Mapping[str, str]
    ) -> AbstractContextManager[None]:
        """See `Tracing.settling`."""
        return self._messaging.settling(settlement, group, sessions, traces)

    def invoking(self, agent: str, session: str, model: Model) -> AbstractContextManager[None]:
        """See `AgentTracing.invoking`."""
        return self._agent.invoking(agent, session, model)

    def calling(self, model: Model, request: ModelRequest) -> AbstractContextManager[CallRecord | None]:
        """See `AgentTracing.calling`."""
        return self._agent.calling(model, request)

    def executing(self, call: ToolCallBlock, description: str) -> AbstractContextManager[ToolRecord | None]:
        """See `AgentTracing.executing`."""
        return self._agent.executing(call, description)

    def requesting(
        self, method: str, route: str, scheme: str, path: str, headers: Iterable[tuple[str, str]]
    ) -> AbstractContextManager[RequestRecord | None]:
        """See `HttpTracing.requesting`."""
        return self._http.requesting(method, route, scheme, path, headers)
