"""The names of spans and attributes, and the keys that carry a trace context.

Source: the semantic conventions 1.44.0 for messaging, HTTP and errors, and those for generative AI, which have a
repository of their own. Neither the messaging nor the GenAI names are stable yet: change them here alone.
"""

from collections.abc import Mapping

TRACER = "lanebus"
"""name of the instrumentation scope"""

TRACEPARENT = "traceparent"
"""Key in a message's private metadata. Its value is that of the W3C Trace Context header `traceparent`. The metadata is
part of the message's JSON, so the entry's checksum covers it, and an export keeps it. No provider receives metadata."""
TRACESTATE = "tracestate"
"""Key in a message's private metadata. Its value is that of the header `tracestate`. Missing if the trace has no such
state."""

# Messaging.

SYSTEM = "lanebus"
"""value of `messaging.system`. OpenTelemetry's conventions define no value for Redis streams"""
TEMPLATE = "{session}"
"""value of `messaging.destination.template`. Span names contain this text and not the id of a session, which would make
too many different names"""

CREATE, SEND, RECEIVE, PROCESS, SETTLE = "create", "send", "receive", "process", "settle"

MESSAGING_SYSTEM = "messaging.system"
MESSAGING_OPERATION = "messaging.operation.name"
MESSAGING_OPERATION_TYPE = "messaging.operation.type"
MESSAGING_CLIENT_ID = "messaging.client.id"
DESTINATION = "messaging.destination.name"
DESTINATION_TEMPLATE = "messaging.destination.template"
CONSUMER_GROUP = "messaging.consumer.group.name"
BATCH_MESSAGE_COUNT = "messaging.batch.message_count"
MESSAGE_ID = "messaging.message.id"
MESSAGE_CONVERSATION_ID = "messaging.message.conversation_id"

ATTEMPT = "lanebus.attempt"
"""number of deliveries of the work, including this delivery; above 1 after a worker died or the agent failed"""
DUPLICATE = "lanebus.duplicate"
"""true if the publish appended nothing, because its key was already published"""
CANCELLED = "lanebus.cancelled"
"""true if the operation was cancelled, such as when a worker stops. A cancellation is not an error"""

# Generative AI.

INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"

OPERATION = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
CONVERSATION_ID = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
FINISH_REASONS = "gen_ai.response.finish_reasons"
USAGE_INPUT = "gen_ai.usage.input_tokens"
"""all input tokens, including cached tokens, which `Usage.input` excludes"""
USAGE_OUTPUT = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE = "gen_ai.usage.cache_write.input_tokens"
USAGE_REASONING = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_DESCRIPTION = "gen_ai.tool.description"
CALL_ID = "gen_ai.tool.call.id"

SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""environment variable that allows message content in telemetry"""
CAPTURE_ON_SPANS = frozenset({"SPAN_ONLY", "SPAN_AND_EVENT"})
"""values of `CAPTURE_CONTENT` that allow content on spans"""

SAMPLING: Mapping[str, str] = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
}
"""the span's attribute for each option of a model"""

PROVIDER: Mapping[str, str] = {"google": "gcp.gemini"}
"""value of `gen_ai.provider.name` for each provider whose name in the log differs from that value"""

FINISH_REASON: Mapping[str, str] = {"stop": "stop", "length": "length", "toolUse": "tool_call", "error": "error"}
"""value in `gen_ai.response.finish_reasons` for each stop reason of the log, except for an aborted answer"""

# HTTP and errors.

HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
URL_PATH = "url.path"
URL_SCHEME = "url.scheme"

ERROR_TYPE = "error.type"
TOOL_ERROR = "tool_error"
"""value of `error.type` for a tool whose result is an error"""
