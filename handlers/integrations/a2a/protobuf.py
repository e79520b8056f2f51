"""Copy protobuf messages, and convert them to and from JSON."""

from typing import TypeVar

from google.protobuf.json_format import (  # type: ignore[import-untyped]  # the stubs are not installed
    MessageToDict,
    ParseDict,
    ParseError,
    SerializeToJsonError,
)
from google.protobuf.message import Message  # type: ignore[import-untyped]  # the stubs are not installed
from pydantic import JsonValue

from lanebus.errors import DecodeError, InvalidArgument

M = TypeVar("M", bound=Message)


def copied(message: M) -> M:
    """Return a copy of a message, which its owner may change meanwhile."""
    copy: M = type(message)()
    copy.CopyFrom(message)
    return copy


def to_json(message: Message) -> JsonValue:
    """Return the JSON of a message.

    Raises:
        InvalidArgument: the message has a value that JSON has not, such as NaN.
    """
    try:
        data: JsonValue = MessageToDict(message)
    except SerializeToJsonError as error:
        raise InvalidArgument("task", type(message).__name__, f"pass only what JSON has: {error}") from None
    return data


def from_json(data: JsonValue, into: M) -> M:
    """Fill a message from its JSON, and return it. Fields that are unknown here are left out.

    Raises:
        DecodeError: the JSON is not that of such a message.
    """
    if not isinstance(data, dict):
        raise DecodeError("change", "not an object")
    try:
        ParseDict(data, into, ignore_unknown_fields=True)
    except ParseError as error:
        raise DecodeError("change", str(error)) from None
    return into
