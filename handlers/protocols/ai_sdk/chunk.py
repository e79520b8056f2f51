"""One chunk of a UI message stream, and the bytes that carry it."""

import json

from pydantic import JsonValue

from lanebus.bus.messages.assistant import StopReason
from lanebus.bus.messages.content import TextBlock
from lanebus.bus.messages.tool_result import ToolResultMessage

__all__ = (
    "DONE",
    "POSITION_HEADER",
    "STREAM_HEADER",
    "Chunk",
    "encode_chunk",
    "error_chunk",
    "finish_reason",
    "tool_output",
)

Chunk = dict[str, JsonValue]
"""a chunk, with its kind in `type`"""

STREAM_HEADER = ("x-vercel-ai-ui-message-stream", "v1")
"""the response header that names the protocol"""

POSITION_HEADER = "Lanebus-Position"
"""the response header with the position of what was posted; to resume its answer, a client needs it"""

DONE = b"data: [DONE]\n\n"
"""the last frame of a complete stream"""

_REASONS: dict[StopReason, str] = {
    "stop": "stop",
    "length": "length",
    "toolUse": "tool-calls",
    "guardRail": "content-filter",
    "error": "error",
}


def encode_chunk(chunk: Chunk) -> bytes:
    """Return the frame of a chunk: one `data:` line in ASCII, without an event name or an id."""
    return b"data: " + json.dumps(chunk, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n\n"


def error_chunk(text: str) -> Chunk:
    """Return the chunk that ends a stream with an error. Clients show the text to people."""
    return {"type": "error", "errorText": text}


def finish_reason(reason: StopReason | None) -> str:
    """Return the finish reason for a stop reason; "other" if all versions of the client know no nearer one."""
    return _REASONS.get(reason, "other") if reason is not None else "other"


def tool_output(message: ToolResultMessage) -> JsonValue:
    """Return a result as clients show it: its JSON if the tool returned JSON, its text if it has nothing else,
    otherwise a list of blocks."""
    if message.structured is not None:
        return message.structured
    if all(isinstance(block, TextBlock) for block in message.content):
        return message.text_content()
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in message.content]
