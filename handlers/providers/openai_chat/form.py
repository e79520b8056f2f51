"""A context as a request to OpenAI's Chat Completions API. Plain dicts: no SDK is imported.

Source: the API's reference and the parameter types of its Python SDK (3.52).
"""

from collections import deque
from collections.abc import Sequence
from typing import Unpack

from pydantic import JsonValue

from bus.messages.content import TextBlock
from bus.messages.message import AssistantMessage, DeveloperMessage, LlmMessage, ToolResultMessage, UserMessage
from handlers.context.fold import Context
from handlers.providers.blocks import copied
from handlers.providers.finish import finished
from handlers.providers.openai.content import parts_of, result_parts, texts_of
from handlers.providers.openai.parts import Part, Text
from handlers.providers.openai.wire import PLACEHOLDER, PROVIDER, TOOL_NAME, tool_choice
from handlers.providers.openai_chat.messages import assistant_message, content_of, media_message, result_message
from handlers.providers.request import Json, ProviderRequest
from handlers.providers.target import RequestOptions, Target
from handlers.providers.wire_ids import WireIds, WireNames, WirePattern

__all__ = ("to_openai_chat",)

CALL_ID = WirePattern.of("a-zA-Z0-9_-", 40)


def to_openai_chat(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """The request that shows a model what the context holds. Its warnings name the context's faults, too.

    Instructions stand first, in their order, each in its own role. Behind the calls of a message stand their results;
    what these cannot hold, such as images, follows in a user's message. Metadata, raw provider objects, usage and names
    stay out of it.

    Args:
        options: see `RequestOptions`; `max_tokens` is not said where it is not given.

    Raises:
        NoModel: no model is given and the session never named one.
        ToolNotOffered: the tool choice names none of the tools.
        ContentRefused: strict mode, and something would be left out or changed.
    """
    target = Target.of(PROVIDER, context, options)
    form = _Form(target)
    for index, instruction in enumerate(context.system):
        form.instruct(f"system.{index} ({instruction.role})", instruction)
    for index, message in enumerate(context.messages):
        form.say(f"messages.{index}", message)
    body: Json = {"model": target.model, "messages": form.finish(), **form.settings()}
    ids, names = form.ids.originals, form.names.originals
    return finished(context, target, body, form.losses, unsaid=form.unsaid, call_ids=ids, tool_names=names)


class _Form:
    """A request in the making, one message after the other."""

    def __init__(self, target: Target) -> None:
        self.losses: list[str] = []
        self.unsaid: list[str] = []
        """where thinking was left out"""
        self.ids, self.names = WireIds(CALL_ID), WireNames(TOOL_NAME, (tool.name for tool in target.tools))
        self._target = target
        self._messages: list[JsonValue] = []
        self._unanswered: deque[str] = deque()
        """wire ids of the calls whose results come next: the context has one a call, in the order of the calls"""
        self._moved: list[tuple[str, Sequence[Part]]] = []
        """media of the results said last, each with its call's wire id"""

    def instruct(self, place: str, message: LlmMessage) -> None:
        losses: list[str] = []
        texts = [Text(text) for text in texts_of(message.content, losses, "in instructions only text is taken")]
        developer = isinstance(message, DeveloperMessage) and not self._target.merge_developer
        if texts:
            self._messages.append({"role": "developer" if developer else "system", "content": content_of(texts)})
        self._tell(place, losses)

    def say(self, place: str, message: LlmMessage) -> None:
        losses: list[str] = []
        if not isinstance(message, ToolResultMessage):
            self._add_moved()
        match message:
            case UserMessage():
                parts = parts_of(message.content, "chat", self._target, losses)
                is_plain = all(isinstance(block, TextBlock) for block in message.content)
                # An empty message is the empty text it is; one of which nothing is left is none.
                if parts or not losses:
                    self._messages.append({"role": "user", "content": content_of(parts, is_plain=is_plain)})
            case AssistantMessage():
                self._answer(place, message, losses)
            case ToolResultMessage():
                wire_id = self._unanswered.popleft()
                parts = result_parts(message, "chat", self._target, losses)
                result, media = result_message(wire_id, parts)
                self._messages.append(result)
                self._moved += [(wire_id, media)] if media else []
            case _:
                losses.append("left out: the API has no such role")
        self._tell(place, losses)

    def finish(self) -> list[JsonValue]:
        """The messages, of which there is at least one."""
        self._add_moved()
        return self._messages or [{"role": "user", "content": PLACEHOLDER}]

    def settings(self) -> Json:
        """What the body says beside the model and the messages."""
        target = self._target
        settings: Json = {}
        if target.max_tokens is not None:
            # `max_tokens` is its old name, which newer models refuse.
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

    def _answer(self, place: str, message: AssistantMessage, losses: list[str]) -> None:
        ids = [self.ids.take(call.id) for call in message.tool_calls()]
        self._unanswered.extend(ids)
        wire, left_out = assistant_message(message, ids, self.names, self._target, losses)
        if wire:
            self._messages.append(wire)
        if left_out:
            self.unsaid.append(place)

    def _add_moved(self) -> None:
        if self._moved:
            self._messages.append(media_message(self._moved))
            self._moved = []

    def _tell(self, place: str, losses: list[str]) -> None:
        self.losses += [f"{place}: {loss}" for loss in losses]
