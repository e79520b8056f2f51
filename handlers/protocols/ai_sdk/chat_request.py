"""Read what the AI SDK's chat transport posts: the new message of the user, or answers to approval requests. Pure.

The transport posts all messages that the client has. Only the end of the list is read: the log is the history.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import Block, TextBlock, UserMessage
from lanebus.handlers.context import Object, as_flag, as_list, as_object, as_text, below, made
from lanebus.handlers.protocols.ai_sdk.encoder import ApprovalId
from lanebus.handlers.protocols.client_content import (
    DEFAULT_CONTENT_RULES,
    ContentRules,
    Given,
    check_content,
    check_count,
    media_block_of,
    plain_type,
    text_block,
    url_media,
)

_FIELDS = frozenset({"id", "messages", "trigger", "messageId", "agent"})
_ID_LIMIT = 150
"""maximum number of characters of a message's id. A publish key contains it"""


class ApprovalAnswer(NamedTuple):
    """A person's answer to an approval request."""

    approval: ApprovalId
    is_approved: bool
    reason: str | None


class ChatRequest(NamedTuple):
    """A posted chat request. It has a message, answers, or both."""

    session: str
    """id of the chat, which is the id of the session"""
    agent: str | None
    """the agent that a new session gets, and an existing one must have; None means any"""
    message_id: str | None
    """the client's id of the new message; None if there is none"""
    message: UserMessage | None
    """the new message of the user"""
    answers: tuple[ApprovalAnswer, ...]
    """answers to approval requests, in the order of their tool calls"""


def read_chat_request(body: JsonValue, rules: ContentRules = DEFAULT_CONTENT_RULES) -> ChatRequest:
    """Read `{"id": …, "messages": […], "trigger": …, "messageId"?: …, "agent"?: …}`.

    Args:
        body: the JSON.
        rules: what the new message may hold.

    Raises:
        DecodeError: the body is no chat request, or asks for what a log cannot do; the text says what to do instead.
    """
    if not isinstance(body, dict) or not {"id", "messages"} <= body.keys():
        raise DecodeError("", 'post {"id": <chat>, "messages": […], "trigger": "submit-message"}, as useChat does')
    if unknown := body.keys() - _FIELDS:
        raise DecodeError(min(unknown), f"is unknown: the fields are {', '.join(sorted(_FIELDS))}")
    _check_trigger(body.get("trigger", "submit-message"))
    session, agent = as_text(body["id"], "id"), body.get("agent")
    messages = [as_object(each, f"messages.{at}") for at, each in enumerate(as_list(body["messages"], "messages"))]
    if not messages:
        raise DecodeError("messages", "must have a message")
    answers, last = _answers(messages), len(messages) - 1
    message_id, message = None, None
    if messages[last].get("role") == "user":
        message_id, message = _user_message(messages[last], f"messages.{last}", rules)
        if body.get("messageId") == message_id:
            raise DecodeError("messageId", f"a sent message cannot be edited, as a log only grows: {_FORK}")
    elif not answers:
        raise DecodeError(
            f"messages.{last}",
            "must be a message of the user, or have a tool call whose approval was answered. Results of tools that run "
            "in the client are not read",
        )
    return ChatRequest(session, None if agent is None else as_text(agent, "agent"), message_id, message, answers)


_FORK = "fork the session before it, and send to the fork"


def _check_trigger(trigger: JsonValue) -> None:
    if trigger == "regenerate-message":
        raise DecodeError("trigger", f"an answer cannot be generated again in place, as a log only grows: {_FORK}")
    if trigger != "submit-message":
        raise DecodeError("trigger", 'must be "submit-message"')


def _answers(messages: Sequence[Object], most: int = 200) -> tuple[ApprovalAnswer, ...]:
    """Return the answers in the newest message of the assistant."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].get("role") == "assistant":
            parts = as_list(messages[at].get("parts", []), f"messages.{at}.parts")
            paths = (f"messages.{at}.parts.{index}" for index in range(len(parts)))
            found = (_answer(part, path) for part, path in zip(parts, paths, strict=True))
            answers = tuple(each for each in found if each is not None)
            if len(answers) > most:  # each is published by itself
                raise DecodeError(f"messages.{at}.parts", f"has {len(answers)} answered approvals: send at most {most}")
            return answers
    return ()


def _answer(part: JsonValue, path: str) -> ApprovalAnswer | None:
    if not isinstance(part, dict) or part.get("state") != "approval-responded":
        return None
    path = below(path, "approval")
    approval = as_object(part.get("approval"), path)
    reason = approval.get("reason")
    return ApprovalAnswer(
        ApprovalId.read(as_text(approval.get("id"), below(path, "id")), below(path, "id")),
        as_flag(approval.get("approved"), below(path, "approved")),
        None if reason is None else text_block(Given(reason, below(path, "reason"))).text,
    )


def _user_message(message: Object, path: str, rules: ContentRules) -> tuple[str, UserMessage]:
    message_id = as_text(message.get("id"), below(path, "id"))
    if not 0 < len(message_id) <= _ID_LIMIT or not message_id.isprintable():
        raise DecodeError(below(path, "id"), f"must be 1 to {_ID_LIMIT} printable characters")
    parts = as_list(message.get("parts"), below(path, "parts"))
    check_count(parts, below(path, "parts"), rules)
    blocks = [_block(part, f"{path}.parts.{at}", rules) for at, part in enumerate(parts)]
    if not any(not isinstance(block, TextBlock) or block.text.strip() for block in blocks):
        raise DecodeError(below(path, "parts"), "must have a text that is not empty, or a file")
    content = check_content(blocks, below(path, "parts"), rules)
    return message_id, made(UserMessage, {"content": content}, path)


def _block(part: JsonValue, path: str, rules: ContentRules) -> Block:
    fields = as_object(part, path)
    match fields.get("type"):
        case "text":
            return text_block(Given(fields.get("text"), below(path, "text")))
        case "file":
            return _file(fields, path, rules)
        case other:
            raise DecodeError(below(path, "type"), f"{other!r} cannot be sent: a user's parts are text and file")


def _file(fields: Object, path: str, rules: ContentRules) -> Block:
    media_type = as_text(fields.get("mediaType"), below(path, "mediaType"))
    media = url_media(
        Given(fields.get("url"), below(path, "url")),
        Given(plain_type(media_type), below(path, "mediaType")),
        Given(fields.get("filename") or None, below(path, "filename")),
        rules,
    )
    return media_block_of(media)
