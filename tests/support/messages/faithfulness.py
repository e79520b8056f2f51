"""What every codec must guarantee, checked without its tables: it loses nothing without a report."""

import re
from collections.abc import Sequence

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import Publishable, ToolResultMessage, parse_json, read_message
from lanebus.codecs import ORIGIN, Codec, Unsayable
from lanebus.handlers.formats.round_trip import differences

__all__ = ("logged", "require_read_back", "require_written_back")


def logged(messages: Sequence[Publishable]) -> tuple[Publishable, ...]:
    """Return the messages as a log returns them."""
    return tuple(read_message(message.to_json()) for message in messages)


def require_read_back(codec: Codec, value: JsonValue) -> None:
    """Check that what was read from another system is written unchanged, also after it was in a log."""
    (back,) = codec.write(logged(codec.read(value)), False).values
    assert list(differences(value, back)) == []


def require_written_back(codec: Codec, messages: Sequence[Publishable]) -> None:
    """Check that what is written without a loss is read unchanged, and that a loss is refused unless allowed."""
    lossy = codec.write(messages, True)
    again = codec.read_all(lossy.values)
    values = codec.write(again, True).values
    assert not any(differences([*values], [*lossy.values])), "what was written is not what is written of it"
    assert all(0 <= int(re.split(r"[.: ]", loss)[0]) < len(messages) for loss in lossy.losses)
    if lossy.losses:
        with pytest.raises(Unsayable) as caught:
            codec.write(messages, False)
        assert caught.value.losses == lossy.losses
    else:
        named = codec.name != "000"  # the calls have the names of the results
        assert [_meaning(message, named) for message in again] == [_meaning(message, named) for message in messages]


def _meaning(message: Publishable, named: bool) -> JsonValue:
    """Return the native JSON without the origin and fields that are only names or empty."""
    if isinstance(message, ToolResultMessage):
        message = message.model_copy(update={"batch_id": None, **({} if named else {"tool_name": None})})
    return _filled(parse_json(message.to_json()))


def _filled(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if not isinstance(value, dict):
        return value
    filled = {key: _filled(item) for key, item in value.items() if key not in {"groupId", ORIGIN}}
    if filled.get("type") == "image" and "media" not in filled:
        filled = {"type": "image", "media": {"kind": "data", "data": filled["data"], "mimeType": filled["mimeType"]}}
    if filled.get("annotations") == []:
        del filled["annotations"]  # the same as none
    return {key: item for key, item in filled.items() if item not in (None, False, "", {})}
