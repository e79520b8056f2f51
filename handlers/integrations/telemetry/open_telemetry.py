"""Record the seams of the bus, of agents and of the page by OpenTelemetry: spans of agents, calls and tools."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import cast

from opentelemetry.context import Context, create_key, get_current, get_value, set_value
from opentelemetry.trace import (
    INVALID_SPAN,
    ProxyTracerProvider,
    Span,
    SpanKind,
    Tracer,
    TracerProvider,
    get_current_span,
)
from opentelemetry.util.types import AttributeValue
from pydantic import JsonValue

from lanebus import AssistantMessage, LlmMessage, SystemMessage, TextBlock, ToolCallBlock, ToolResultMessage, Usage
from lanebus.agent import Model, ModelRequest, failure_of
from lanebus.handlers.integrations.telemetry import names
from lanebus.handlers.integrations.telemetry.messaging_spans import (
    ActiveSpan,
    HttpSpans,
    MessagingSpans,
    RequestRecord,
    note_error,
)
from lanebus.handlers.integrations.telemetry.names import TRACER
from lanebus.integration import CallRecord, Optioned, Sending, Settlement, ToolRecord, whole_text
from lanebus.messages import Block, DeveloperMessage, Publishable, ThinkingBlock
from lanebus.providers import ToolSpec


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


# Spans of agents: invoke_agent, chat, execute_tool. Message content is recorded only if a program asks for it.


_INVOCATION = create_key("lanebus-invocation")


@dataclass(slots=True)
class _Invocation:
    """A run of an agent, with what its model calls add up to."""

    span: Span
    agent: str
    usage: Usage = field(default_factory=Usage)

    def add(self, message: AssistantMessage) -> None:
        """Add the usage of a model call, and take its reason to stop."""
        self.usage = self.usage.combine(message.usage or Usage())
        self.span.set_attributes(_finish(message))
        self.span.set_attributes({names.USAGE_INPUT: _input_tokens(self.usage), names.USAGE_OUTPUT: self.usage.output})


class AgentSpans:
    """Records what agents do; see `AgentTracing`."""

    def __init__(self, tracer: Tracer, *, captures_content: bool) -> None:
        """
        Args:
            captures_content: whether to also record messages, and the arguments and results of tools.
        """
        self._tracer, self._captures_content = tracer, captures_content

    def invoking(self, agent: str, session: str, model: Model) -> AbstractContextManager[None]:
        """See `AgentTracing.invoking`. The span's usage is the sum over the model calls of this run."""
        span = self._tracer.start_span(
            f"{names.INVOKE_AGENT} {agent}",
            kind=SpanKind.INTERNAL,
            attributes={
                names.OPERATION: names.INVOKE_AGENT,
                names.AGENT_NAME: agent,
                names.REQUEST_MODEL: model.name,
                names.CONVERSATION_ID: session,
            },
        )
        context = set_value(_INVOCATION, _Invocation(span, agent), get_current())
        return ActiveSpan(span, None, context)

    def calling(self, model: Model, request: ModelRequest) -> AbstractContextManager[CallRecord | None]:
        """See `AgentTracing.calling`."""
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER_NAME: names.PROVIDER.get(model.provider, model.provider),
            names.REQUEST_MODEL: model.name,
            names.REQUEST_MAX_TOKENS: request.max_tokens,
            names.REQUEST_STREAM: True,
            **_sampling(model),
        }
        if request.context.session:
            attributes[names.CONVERSATION_ID] = request.context.session
        span = self._tracer.start_span(f"{names.CHAT} {model.name}", kind=SpanKind.CLIENT, attributes=attributes)
        if self._captures_content and span.is_recording():
            messages = request.context.messages
            _set_known(span, names.SYSTEM_INSTRUCTIONS, system_json(messages))
            _set_known(span, names.INPUT_MESSAGES, input_json(messages))
            _set_known(span, names.TOOL_DEFINITIONS, definitions_json(request.tools))
        return ActiveSpan(span, _Call(span, model, _invocation(), captures_content=self._captures_content))

    def executing(self, call: ToolCallBlock, description: str) -> AbstractContextManager[ToolRecord | None]:
        """See `AgentTracing.executing`."""
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: call.name,
            names.TOOL_TYPE: "function",
            names.CALL_ID: call.id,
        }
        if description:
            attributes[names.TOOL_DESCRIPTION] = description
        if (invocation := _invocation()) is not None:
            attributes[names.AGENT_NAME] = invocation.agent
        span = self._tracer.start_span(
            f"{names.EXECUTE_TOOL} {call.name}", kind=SpanKind.INTERNAL, attributes=attributes
        )
        if self._captures_content:
            span.set_attribute(names.TOOL_ARGUMENTS, text_json(call.arguments))
        return ActiveSpan(span, _ToolCall(span, captures_content=self._captures_content))


class _Call:
    """See `CallRecord`."""

    def __init__(self, span: Span, model: Model, invocation: _Invocation | None, *, captures_content: bool) -> None:
        self._span, self._model, self._invocation = span, model, invocation
        self._captures_content = captures_content
        self._started: float | None = time.perf_counter()

    def began(self) -> None:
        if self._started is not None:
            seconds, self._started = time.perf_counter() - self._started, None
            self._span.set_attribute(names.RESPONSE_TIME_TO_FIRST_CHUNK, seconds)

    def ended(self, message: AssistantMessage) -> None:
        span, usage = self._span, message.usage
        actual = (message.metadata or {}).get("responseModel")
        span.set_attribute(
            names.RESPONSE_MODEL, actual if isinstance(actual, str) else message.model or self._model.name
        )
        _set_known(span, names.RESPONSE_ID, message.response_id)
        span.set_attributes(_finish(message))
        if usage is not None:
            span.set_attributes({names.USAGE_INPUT: _input_tokens(usage), names.USAGE_OUTPUT: usage.output})
            _set_known(span, names.USAGE_CACHE_READ, usage.cache_read or None)
            _set_known(span, names.USAGE_CACHE_WRITE, usage.cache_write or None)
            _set_known(span, names.USAGE_REASONING, usage.reasoning or None)
        if (failure := failure_of(message)) is not None:
            note_error(span, str(failure.code or failure.status or "error"))
        if self._captures_content:
            span.set_attribute(names.OUTPUT_MESSAGES, output_json(message))
        if self._invocation is not None:
            self._invocation.add(message)


class _ToolCall:
    """See `ToolRecord`."""

    def __init__(self, span: Span, *, captures_content: bool) -> None:
        self._span, self._captures_content = span, captures_content

    def ended(self, result: ToolResultMessage) -> None:
        if result.is_error:
            note_error(self._span, names.TOOL_ERROR)
        if self._captures_content:
            self._span.set_attribute(names.TOOL_RESULT, whole_text(result.text_with_results()))


def _invocation(context: Context | None = None) -> _Invocation | None:
    return cast("_Invocation | None", get_value(_INVOCATION, context))


def _input_tokens(usage: Usage) -> int:
    return usage.input + usage.cache_read + usage.cache_write


def _finish(message: AssistantMessage) -> dict[str, AttributeValue]:
    reason = names.FINISH_REASON.get(message.stop_reason)
    return {} if reason is None else {names.FINISH_REASONS: [reason]}


def _sampling(model: Model) -> dict[str, AttributeValue]:
    """Return the sampling options of a model that reports them."""
    options = model.request_options.get("options") if isinstance(model, Optioned) else None
    if not isinstance(options, dict):
        return {}
    return {
        attribute: value
        for option, attribute in names.SAMPLING.items()
        if isinstance(value := options.get(option), int | float) and not isinstance(value, bool)
    }


def _set_known(span: Span, name: str, value: str | int | None) -> None:
    if value is not None:
        span.set_attribute(name, value)


# Message content as JSON, in the form of the GenAI conventions. It is recorded only if a program asks for it. Pure.
#
# Media are named by their kind and left out.

_INSTRUCTIONS = (SystemMessage, DeveloperMessage)


def system_json(messages: Iterable[LlmMessage]) -> str | None:
    """Return the content of all system and developer messages as one JSON list; None if there are none."""
    parts = [
        part for message in messages if isinstance(message, _INSTRUCTIONS) for part in _part_forms(message.content)
    ]
    return _compact_json(parts) if parts else None


def input_json(messages: Iterable[LlmMessage]) -> str | None:
    """Return all messages except system and developer messages as one JSON list; None if there are none."""
    found: list[JsonValue] = [_message_form(message) for message in messages if not isinstance(message, _INSTRUCTIONS)]
    return _compact_json(found) if found else None


def output_json(message: AssistantMessage) -> str:
    """Return a model's answer as JSON: a list that contains only this message."""
    return _compact_json([_message_form(message)])


def definitions_json(tools: Sequence[ToolSpec]) -> str | None:
    """Return the definitions of tools as JSON; None if there are none."""
    found: list[JsonValue] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.schema, "type": "function"}
        for tool in tools
    ]
    return _compact_json(found) if found else None


def text_json(value: JsonValue) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else _compact_json(value)


def _message_form(message: LlmMessage) -> JsonValue:
    if isinstance(message, ToolResultMessage):
        response: JsonValue = {
            "response": message.text_with_results(),
            "id": message.tool_call_id,
            "type": "tool_call_response",
        }
        return {"role": "tool", "parts": [response]}
    role = "assistant" if isinstance(message, AssistantMessage) else "user"
    return {"role": role, "parts": _part_forms(message.content)}


def _part_forms(blocks: Iterable[Block]) -> list[JsonValue]:
    return [_part_form(block) for block in blocks]


def _part_form(block: Block) -> JsonValue:
    match block:
        case TextBlock(text=text):
            return {"content": text, "type": "text"}
        case ThinkingBlock(text=text):
            return {"content": text, "type": "reasoning"}
        case ToolCallBlock(arguments=arguments, name=name, id=call_id):
            return {"arguments": arguments, "name": name, "id": call_id, "type": "tool_call"}
        case _:
            return {"type": block.type}


def _compact_json(value: JsonValue) -> str:
    return whole_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
