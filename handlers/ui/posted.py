"""Commands to a running agent, as a client posts them."""

from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.control import Control
from lanebus.handlers.agent.command_specs import read_control

__all__ = ("KEY_LIMIT", "PostedCommand", "check_key", "check_text", "read_command")

KEY_LIMIT = 200
"""characters"""

BY = "page"
"""who asks, where the client does not say"""


class PostedCommand(NamedTuple):
    """What a client wants of an agent."""

    control: Control
    key: str | None
    text: str | None
    """what a steering user says; None for every other command"""


def read_command(body: JsonValue) -> PostedCommand:
    """A command from `{"command": "abort", "key"?: …, "by"?: …, …}`: what else it has is what the command's message in
    `bus/messages/control.py` has; a `steer` has its "text" and no position.

    Raises:
        DecodeError: it is none.
        UnknownKind: there is no such command.
    """
    if not isinstance(body, dict) or not isinstance(name := body.get("command"), str):
        raise DecodeError("", 'a command is posted as {"command": <its name>, …}')
    key, by = check_key(body.get("key"), "key"), check_key(body.get("by"), "by") or BY
    data = {field: value for field, value in body.items() if field not in {"command", "key", "by"}}
    text = None
    if name == "steer":
        text = check_text(data.pop("text", None))
        if "position" in data:
            raise DecodeError("position", "the word of a user stands where it is published")
    return PostedCommand(read_control(name, {**data, "by": by}), key, text)


def check_key(value: JsonValue, field: str) -> str | None:
    """A name that a client gives, if it gives one.

    Raises:
        DecodeError: it is no short printable text.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= KEY_LIMIT or not value.isprintable():
        raise DecodeError(field, f"must be 1 to {KEY_LIMIT} printable characters")
    return value


def check_text(value: JsonValue) -> str:
    """What a user says.

    Raises:
        DecodeError: it says nothing.
    """
    if not isinstance(value, str) or not value.strip():
        raise DecodeError("text", "must be a text that says something")
    return value
