"""Messages of pydantic-ai as JSON in entries: inline, or in the media store if they are large."""

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_core import to_json

from lanebus.bus.errors import DecodeError
from lanebus.bus.media.store import MediaStore
from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.values import load_value, store_value

__all__ = ("instructions_in", "load_message", "size_of", "store_message")

_JSON = TypeAdapter[list[JsonValue]](list[JsonValue])


async def store_message(media: MediaStore, message: ModelMessage, bounds: BackendBounds) -> dict[str, JsonValue]:
    """Return JSON from which `load_message` reads the message.

    Raises:
        MediaTooLarge: the message is over the media store's limit.
        Unavailable: the media store cannot be reached.
    """
    data = ModelMessagesTypeAdapter.dump_json([message])
    if len(data) <= bounds.inline_bytes:
        return {"message": _JSON.validate_json(data)[0]}
    return {"value": await store_value(media, data, bounds=bounds)}


async def load_message(media: MediaStore, stored: dict[str, JsonValue]) -> ModelMessage:
    """Return a new copy of the message that `store_message` stored.

    Raises:
        DecodeError: the JSON has another form.
        MediaMissing: the media store no longer has the message.
        Unavailable: the media store cannot be reached.
    """
    try:
        if "message" in stored:
            return ModelMessagesTypeAdapter.validate_python([stored["message"]])[0]
        return ModelMessagesTypeAdapter.validate_json(await load_value(media, stored.get("value")))[0]
    except ValueError as error:
        raise DecodeError("", f"a stored message of pydantic-ai cannot be read: {error}") from None


def size_of(stored: dict[str, JsonValue]) -> int:
    """Return the size in bytes of what `store_message` returned, as JSON."""
    return len(to_json(stored))


def instructions_in(stored: dict[str, JsonValue]) -> str | None:
    """Return the instructions of a stored request; None for a response, and for a message in the media store."""
    message = stored.get("message")
    found = message.get("instructions") if isinstance(message, dict) else None
    return found if isinstance(found, str) else None
