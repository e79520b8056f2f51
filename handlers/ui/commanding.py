"""Commands to a running agent, as a client posts them, and how they are sent on."""

from typing import NamedTuple

from pydantic import JsonValue

from bus.errors import DecodeError
from bus.messages.control import (
    Abort,
    Approve,
    Compact,
    Control,
    Deny,
    Handoff,
    Pause,
    Resume,
    Steer,
    parse_control,
)
from bus.messages.extension import ExtensionMessage
from bus.receipt import Receipt
from bus.session import Session
from handlers.agent import commands

__all__ = ("KEY_LIMIT", "Command", "check_key", "check_text", "read_command", "send_command")

KEY_LIMIT = 200
"""characters"""

BY = "page"
"""who asks, where the client does not say"""

_NOWHERE = 1
"""stands for the position of a steering word until it is published"""


class Command(NamedTuple):
    """What a client wants of an agent."""

    control: Control
    key: str | None
    text: str
    """what a steering user says; else "" """


def read_command(body: JsonValue) -> Command:
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
    text = ""
    if name == "steer":
        text = check_text(data.pop("text", None))
        if "position" in data:
            raise DecodeError("position", "the word of a user stands where it is published")
        data["position"] = _NOWHERE
    control = parse_control(ExtensionMessage(kind=f"control.{name}", data={**data, "by": by}))
    if control is None:
        raise DecodeError("command", "is no command's name")
    return Command(control, key, text)


async def send_command(session: Session, command: Command) -> Receipt:
    """Publish it; the last position of the receipt is the command's.

    Raises:
        BusError: as `Session.publish`.
    """
    key = command.key
    match command.control:
        case Abort(by=by, reason=reason) as abort:
            return await commands.abort(session, loop_id=abort.loop_id, when=abort.when, reason=reason, by=by, key=key)
        case Steer(by=by, when=when):
            return await commands.steer(session, command.text, when=when, by=by, key=key)
        case Approve(turn_id=turn_id, tool_call_id=call, by=by):
            return await commands.approve(session, turn_id, call, by=by, key=key)
        case Deny(turn_id=turn_id, tool_call_id=call, by=by, reason=reason):
            return await commands.deny(session, turn_id, call, reason=reason, by=by, key=key)
        case Pause(by=by, reason=reason):
            return await commands.pause(session, reason=reason, by=by, key=key)
        case Handoff(by=by, to=to, reason=reason):
            return await commands.handoff(session, to=to, reason=reason, by=by, key=key)
        case Resume(by=by):
            return await commands.resume(session, by=by, key=key)
        case Compact(by=by):
            return await commands.compact_now(session, by=by, key=key)
        case other:
            raise DecodeError("command", f"{other.KIND} cannot be sent from here")


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
