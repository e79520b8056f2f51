"""Read the JSON that a model was asked to answer with."""

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, require_instance
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.json_parser import parse_json

__all__ = ("ANSWER_TOOL", "extract_json")

ANSWER_TOOL = "respond_json"
"""Name of the tool that a model without a JSON mode calls to answer."""


def extract_json(message: AssistantMessage) -> JsonValue:
    """Return the arguments of the first call of `respond_json`. Without such a call, read the whole text as JSON.

    Raises:
        DecodeError: the text is not JSON.

    Source: the two-lane agent.
    """
    require_instance("message", message, AssistantMessage, "pass an AssistantMessage")
    for call in message.tool_calls():
        if call.name == ANSWER_TOOL:
            return call.arguments
    try:
        return parse_json(message.text_content())
    except DecodeError as error:
        raise DecodeError(".".join(filter(None, ("content", error.path))), error.reason) from None
