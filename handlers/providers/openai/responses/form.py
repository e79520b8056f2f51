"""Write a context as a request to OpenAI's Responses API. The request is plain dicts; no SDK is imported.

Source: the API's reference and the parameter types of its Python SDK (3.52).
"""

from typing import Unpack

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import DeveloperMessage, UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.common.blocks import copied
from lanebus.handlers.providers.common.form import build_request
from lanebus.handlers.providers.common.request import Json, ProviderRequest
from lanebus.handlers.providers.common.target import RequestOptions, Target
from lanebus.handlers.providers.common.wire_ids import WireIds, WireNames, WirePattern
from lanebus.handlers.providers.openai.responses.items import AnswerItems, message_item, result_item
from lanebus.handlers.providers.openai.shared.content import parts_of, result_parts, texts_of
from lanebus.handlers.providers.openai.shared.parts import Text
from lanebus.handlers.providers.openai.shared.wire import PLACEHOLDER, PROVIDER, TOOL_NAME, tool_choice

__all__ = ("to_openai_responses",)

CALL_ID = WirePattern.of("a-zA-Z0-9_-", 64)


def to_openai_responses(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """Return the request that sends the context to a model. The request's warnings include the context's faults.

    System instructions before any input become `instructions`. Later system instructions, and all developer
    instructions, become items of the input, which keeps the order. Metadata, raw provider objects, usage and names are
    not sent.

    To send a model's thinking back later, set `body["include"] = ["reasoning.encrypted_content"]`. With this option,
    the model returns its thinking encrypted. The option is not set by default, because some models refuse it.

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
        self._instructions: list[str] = []
        self._input: list[JsonValue] = []
        self._reasoned: set[str] = set()
        """Ids of the reasoning items that the input has so far."""

    def instruct(self, message: LlmMessage, losses: list[str]) -> None:
        """See `Form`."""
        texts = texts_of(message.content, losses, "in instructions only text is taken")
        developer = isinstance(message, DeveloperMessage) and not self._target.merge_developer
        if developer or self._input:
            role = "developer" if developer else "system"
            self._input += [message_item(role, [Text(text) for text in texts])] if texts else []
        elif texts:
            self._instructions.append("".join(texts))

    def ask(self, message: UserMessage, losses: list[str]) -> None:
        """See `Form`."""
        parts = parts_of(message.content, "responses", self._target, losses)
        self._input += [message_item("user", parts)] if parts else []

    def answer(self, index: int, message: AssistantMessage, losses: list[str]) -> bool:
        """See `Form`."""
        ids = self._ids.take_all(message)
        items = AnswerItems(f"msg_{index}", self.names, self._target, losses, self._reasoned)
        self._input += items.of(message, ids)
        return items.left_out

    def give_result(self, message: ToolResultMessage, losses: list[str]) -> None:
        """See `Form`."""
        parts = result_parts(message, "responses", self._target, losses)
        self._input.append(result_item(self._ids.take_unanswered(), parts))

    def body(self) -> Json:
        """See `Form`."""
        return {"model": self._target.model, **self._settings()}

    def _settings(self) -> Json:
        """Return the body without the model. If the input is empty, it gets a placeholder as user message."""
        target = self._target
        settings: Json = {"instructions": "\n\n".join(self._instructions)} if self._instructions else {}
        settings["input"] = self._input or [message_item("user", [Text(PLACEHOLDER)])]
        if target.max_tokens is not None:
            settings["max_output_tokens"] = target.max_tokens
        if target.tools:
            settings["tools"] = [
                {
                    "type": "function",
                    "name": self.names.of(tool.name),
                    "description": tool.description,
                    "parameters": copied(tool.schema),
                    # The API's default is strict mode. It refuses most schemas that were not written for strict mode.
                    "strict": False,
                }
                for tool in target.tools
            ]
        settings |= tool_choice(target, self.names, nested=False)
        if target.store is not None:
            settings["store"] = target.store
        if target.stream:
            settings["stream"] = True
        return settings
