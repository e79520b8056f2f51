"""Decode the messages and commands that clients post."""

from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import TextBlock
from lanebus.bus.messages.control import Control
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.agent.command_specs import read_control
from lanebus.handlers.protocols.client_content import DEFAULT_CONTENT_RULES, ContentRules, Given, text_block
from lanebus.handlers.ui.posted_content import PostedMedia, check_fields, read_content

__all__ = (
    "KEY_LIMIT",
    "PostedCommand",
    "PostedHandover",
    "PostedMessage",
    "check_key",
    "check_text",
    "read_command",
    "read_handover",
    "read_posted_message",
)

KEY_LIMIT = 200
"""maximum number of characters of a key or an agent's name"""

_FIELDS = 100  # a command has a dozen at most; pydantic makes an error for each unknown one


class PostedCommand(NamedTuple):
    """A command from a client to an agent."""

    name: str
    control: Control
    key: str | None
    text: str | None
    """the user's message of `steer`; None for other commands"""


class PostedMessage(NamedTuple):
    """A message from a client."""

    content: tuple[TextBlock | PostedMedia, ...]
    key: str | None
    is_follow_up: bool
    agent: str | None
    """the agent that the session must belong to. A new session gets this agent. None means any agent"""
    expected: Cursor | None
    """the end of the session that the client saw; None means any end"""


class PostedHandover(NamedTuple):
    """A client's request to hand a session over."""

    agent: str
    reason: str | None
    key: str | None
    expected: Cursor | None
    """as for `PostedMessage`"""


def read_posted_message(body: JsonValue, rules: ContentRules = DEFAULT_CONTENT_RULES) -> PostedMessage:
    """Decode a message `{"text": …, "key"?: …, "followUp"?: …, "agent"?: …, "expected"?: …}`, or one with `content` for
    `text`.

    Args:
        body: the JSON.
        rules: how many blocks, how many bytes of inline media, and which addresses are allowed.

    Raises:
        DecodeError: the body is not a message, has other fields, or a field's value is not allowed.
        InvalidCursor: `expected` is not a cursor.
    """
    if not isinstance(body, dict):
        raise DecodeError(
            "",
            'post a message as {"text": …} or {"content": […]}, and perhaps "key", "followUp", "agent" or "expected"',
        )
    check_fields(body, ("text", "content", "key", "followUp", "agent", "expected"))
    if "text" in body and "content" in body:
        raise DecodeError("content", "give either a text or blocks")
    is_follow_up = body.get("followUp", False)
    if not isinstance(is_follow_up, bool):
        raise DecodeError("followUp", "must be true or false")
    agent = check_key(body.get("agent"), "agent")
    if is_follow_up and agent is not None:
        raise DecodeError("agent", "a follow-up goes to the agent of the session: leave it out")
    expected = _read_expected(body.get("expected"))
    if is_follow_up and expected is not None:
        raise DecodeError("expected", "a follow-up waits until the loop has ended: leave it out")
    if "content" in body:
        content = read_content(body["content"], "content", rules)
    else:
        content = (TextBlock(text=check_text(body.get("text"))),)
    return PostedMessage(content, check_key(body.get("key"), "key"), is_follow_up, agent, expected)


def read_handover(body: JsonValue) -> PostedHandover:
    """Decode a handover `{"agent": …, "reason"?: …, "key"?: …, "expected"?: …}`.

    Raises:
        DecodeError: the body is not a handover, has other fields, or a field's value is not allowed.
        InvalidCursor: `expected` is not a cursor.
    """
    _refuse_sender(body)
    if not isinstance(body, dict) or "agent" not in body:
        raise DecodeError("", 'hand a session over with {"agent": …}, with an optional "reason", "key" and "expected"')
    check_fields(body, ("agent", "reason", "key", "expected"))
    agent, reason, key = (check_key(body.get(field), field) for field in ("agent", "reason", "key"))
    if agent is None:
        raise DecodeError("agent", "must be the name of an agent")
    return PostedHandover(agent, reason, key, _read_expected(body.get("expected")))


def _read_expected(value: JsonValue) -> Cursor | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise DecodeError("expected", "must be the text of a cursor, as the server has sent it")
    return Cursor.parse(value)


def read_command(body: JsonValue, session: str, by: str) -> PostedCommand:
    """Decode a command `{"command": "abort", "key"?: …, …}`.

    Further fields are those of the command's class in `bus/messages/control.py`. A `steer` has a "text" instead of a
    "position". A "turnId" may be written as a string, such as "main.3#0".

    Args:
        body: the JSON.
        session: id of the session that the command is for.
        by: name of the sender.

    Raises:
        DecodeError: the body is not a command, or has fields that the command does not accept.
        UnknownKind: there is no command of this name.
    """
    if not isinstance(body, dict) or not isinstance(name := body.get("command"), str):
        raise DecodeError("", 'post a command as {"command": <name>, …}')
    if len(body) + sum(len(value) for value in body.values() if isinstance(value, dict | list)) > _FIELDS:
        raise DecodeError("", f"has more than {_FIELDS} fields, which no command has")
    _refuse_sender(body)
    key = check_key(body.get("key"), "key")
    data = {field: value for field, value in body.items() if field not in {"command", "key"}}
    if isinstance(turn := data.get("turnId"), str):
        try:
            data["turnId"] = TurnId.from_text(turn, session).model_dump(mode="json", by_alias=True)
        except DecodeError as error:
            raise DecodeError("turnId", error.reason) from None
    text = None
    if name == "steer":
        text = check_text(data.pop("text", None))
        if "position" in data:
            raise DecodeError("position", "leave it out: the server sets it")
    return PostedCommand(name, read_control(name, {**data, "by": by}), key, text)


def _refuse_sender(body: JsonValue) -> None:
    if isinstance(body, dict) and "by" in body:
        raise DecodeError("by", "leave it out: the sender is the name that belongs to the token")


def check_key(value: JsonValue, field: str) -> str | None:
    """Return an optional key or name; None if `value` is missing.

    Raises:
        DecodeError: `value` is not a printable text of 1 to `KEY_LIMIT` characters.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= KEY_LIMIT or not value.isprintable():
        raise DecodeError(field, f"must be 1 to {KEY_LIMIT} printable characters")
    return value


def check_text(value: JsonValue) -> str:
    """Return the text of a user's message.

    Raises:
        DecodeError: `value` is missing, not a text, empty, or no text that UTF-8 can hold.
    """
    if not isinstance(value, str) or not value.strip():
        raise DecodeError("text", "must be a text that is not empty")
    return text_block(Given(value, "text")).text
