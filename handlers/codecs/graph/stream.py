"""Read the graph framework's live stream as messages, previews, and events for UIs.

The framework trims its own Redis stream to a length; lanebus never trims a log that way. So only chunks that are
messages here may be published. Source: the code of the second graph format, `StreamChunk` and `EventModel`.
"""

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_parser import require_json
from lanebus.bus.messages.json_reader import Publishable
from lanebus.handlers.codecs.codec import Codec
from lanebus.handlers.codecs.graph.deltas import read_deltas

__all__ = ("read_chunk",)

_EVENT_FIELDS = ("event", "event_type", "thread_id", "run_id", "node_name", "sequence_id", "is_error", "timestamp")
"""Fields of a chunk that become an event for UIs.

The chunk's state, content and data are left out. They repeat the model's input and output, which readers of only the
extension lane may not see.
"""


def read_chunk(value: JsonValue, codec: Codec) -> tuple[Publishable | Delta, ...]:
    """Read one chunk of the stream: a whole message, pieces of one, or an event of kind `graph.<event>`.

    Args:
        value: the chunk.
        codec: reads the whole messages.

    Raises:
        DecodeError: the chunk does not have the graph framework's form. The error names the path to the fault.
    """
    if not isinstance(value, dict):
        raise DecodeError("", "a chunk is a JSON object")
    require_json(value)
    event = value.get("event")
    if not isinstance(event, str) or not event:
        raise DecodeError("event", "a chunk needs its event")
    if event != "message":
        fields: JsonValue = {name: value[name] for name in _EVENT_FIELDS if value.get(name) is not None}
        return (ExtensionMessage.of(f"graph.{event}", fields),)
    message = value.get("message")
    try:
        if isinstance(message, dict) and message.get("delta") is True:
            return read_deltas(message)
        return tuple(codec.read(message))
    except DecodeError as error:
        raise DecodeError(".".join(filter(None, ("message", error.path))), error.reason) from None
