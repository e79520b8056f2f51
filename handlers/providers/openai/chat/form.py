"""Write a context as a request to OpenAI's Chat Completions API. The request is plain dicts; no SDK is imported.

Source: the API's reference and the parameter types of its Python SDK (3.52).
"""

from collections.abc import Sequence
from typing import Unpack

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import TextBlock
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import DeveloperMessage, UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.common.blocks import copied
from lanebus.handlers.providers.common.form import build_request
from lanebus.handlers.providers.common.request import Json, ProviderRequest
from lanebus.handlers.providers.common.target import RequestOptions, Target
from lanebus.handlers.providers.common.wire_ids import WireIds, WireNames, WirePattern
from lanebus.handlers.providers.openai.chat.messages import assistant_message, content_of, media_message, result_message
from lanebus.handlers.providers.openai.shared.content import parts_of, result_parts, texts_of
from lanebus.handlers.providers.openai.shared.parts import Part, Text
from lanebus.handlers.providers.openai.shared.wire import PLACEHOLDER, PROVIDER, TOOL_NAME, tool_choice

__all__ = ("to_openai_chat",)

CALL_ID = WirePattern.of("a-zA-Z0-9_-", 40)


def to_openai_chat(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """Return the request that sends the context to a model. The request's warnings include the context's faults.

    Instructions come first, in order, each in its own role. The results of a message's calls follow the message. Images
    and other media of results follow in a user message, because a result can only be text. Metadata, raw provider
    objects, usage and names are not sent.

    Args:
        context: the context to send.
        options: see `RequestOptions`; without `max_tokens`, the API's own limit applies.

    Raises:
        NoModel: no model is passed, and the session names no model.
        ToolNotOffered: the tool choice names a tool that is not offered.
        ContentRefused: `strict` is True, and a part of the context would be left out or changed.
    """
    return build_request(PROVIDER, context, options, _Form)


class _Form:
    """Builds the request, message by message."""

    def __init__(self, target: Target) -> None:
        self._ids = WireIds(CALL_ID)
        self.call_ids = self._ids.originals
        self.names = WireNames(TOOL_NAME, (tool.name for tool in target.tools))
        self._target = target
        self._messages: list[JsonValue] = []
        self._moved: list[tuple[str, Sequence[Part]]] = []
        """Wire id of a call, and the media of its result. Only results that no user message has followed yet."""

    def instruct(self, message: LlmMessage, losses: list[str]) -> None:
        """See `Form`."""
        texts = [Text(text) for text in texts_of(message.content, losses, "in instructions only text is taken")]
        developer = isinstance(message, DeveloperMessage) and not self._target.merge_developer
        if texts:
            self._messages.append({"role": "developer" if developer else "system", "content": content_of(texts)})

    def ask(self, message: UserMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._add_moved()
        parts = parts_of(message.content, "chat", self._target, losses)
        is_plain = all(isinstance(block, TextBlock) for block in message.content)
        # A message without content is sent as empty text. A message whose whole content is left out is not sent.
        if parts or not losses:
            self._messages.append({"role": "user", "content": content_of(parts, is_plain=is_plain)})

    def answer(self, index: int, message: AssistantMessage, losses: list[str]) -> bool:
        """See `Form`."""
        del index
        self._add_moved()
        ids = self._ids.take_all(message)
        wire, left_out = assistant_message(message, ids, self.names, self._target, losses)
        if wire:
            self._messages.append(wire)
        return left_out

    def give_result(self, message: ToolResultMessage, losses: list[str]) -> None:
        """See `Form`."""
        wire_id = self._ids.take_unanswered()
        result, media = result_message(wire_id, result_parts(message, "chat", self._target, losses))
        self._messages.append(result)
        self._moved += [(wire_id, media)] if media else []

    def body(self) -> Json:
        """See `Form`. It contains at least one message."""
        self._add_moved()
        messages = self._messages or [{"role": "user", "content": PLACEHOLDER}]
        return {"model": self._target.model, "messages": messages, **self._settings()}

    def _settings(self) -> Json:
        """Return the body without the model and the messages."""
        target = self._target
        settings: Json = {}
        if target.max_tokens is not None:
            # Newer models refuse the old name, `max_tokens`.
            settings["max_completion_tokens"] = target.max_tokens
        if target.tools:
            settings["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": self.names.of(tool.name),
                        "description": tool.description,
                        "parameters": copied(tool.schema),
                    },
                }
                for tool in target.tools
            ]
        settings |= tool_choice(target, self.names, nested=True)
        if target.store is not None:
            settings["store"] = target.store
        if target.stream:
            settings |= {"stream": True, "stream_options": {"include_usage": True}}
        return settings

    def _add_moved(self) -> None:
        if self._moved:
            self._messages.append(media_message(self._moved))
            self._moved = []
