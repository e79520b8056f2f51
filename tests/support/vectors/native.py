"""Messages through our own JSON, as cases give them."""

import json

from pydantic import JsonValue

from bus import LlmMessage, read_message
from bus.codec import encode
from bus.messages.extension import ExtensionMessage
from bus.messages.parsing import parse_json

__all__ = ("Json", "dumped", "native")

Json = dict[str, JsonValue]


def native(value: object) -> LlmMessage | ExtensionMessage:
    """The message of either lane."""
    message = read_message(json.dumps(value))
    assert isinstance(message, LlmMessage | ExtensionMessage)
    return message


def dumped(message: LlmMessage | ExtensionMessage) -> JsonValue:
    """What goes into the log."""
    return parse_json(encode(message))
