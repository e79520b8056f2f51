"""Messages in our own JSON, as the cases contain them."""

import json

from pydantic import JsonValue

from lanebus import LlmMessage
from lanebus.bus.messages import ExtensionMessage, parse_json
from lanebus.bus.wire import encode
from lanebus.messages import read_message

__all__ = ("Json", "dumped", "native")

Json = dict[str, JsonValue]


def native(value: object) -> LlmMessage | ExtensionMessage:
    """Return the message, of either lane."""
    message = read_message(json.dumps(value))
    assert isinstance(message, LlmMessage | ExtensionMessage)
    return message


def dumped(message: LlmMessage | ExtensionMessage) -> JsonValue:
    """Return the JSON that the log stores."""
    return parse_json(encode(message))
