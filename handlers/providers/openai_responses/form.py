"""A context as a request to OpenAI's Responses API. Plain dicts: no SDK is imported.

Source: the API's reference and the parameter types of its Python SDK (3.52).
"""

from collections import deque
from typing import Unpack

from pydantic import JsonValue

from bus.messages.message import AssistantMessage, DeveloperMessage, LlmMessage, ToolResultMessage, UserMessage
from handlers.context.fold import Context
from handlers.providers.blocks import copied
from handlers.providers.finish import finished
from handlers.providers.openai.content import parts_of, result_parts, texts_of
from handlers.providers.openai.parts import Text
from handlers.providers.openai.wire import PLACEHOLDER, PROVIDER, TOOL_NAME, tool_choice
from handlers.providers.openai_responses.items import AnswerItems, message_item, result_item
from handlers.providers.request import Json, ProviderRequest
from handlers.providers.target import RequestOptions, Target
from handlers.providers.wire_ids import WireIds, WireNames, WirePattern

__all__ = ("to_openai_responses",)

CALL_ID = WirePattern.of("a-zA-Z0-9_-", 64)


def to_openai_responses(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """The request that shows a model what the context holds. Its warnings name the context's faults, too.

    The system's instructions are `instructions`. A developer's are items at the head of the input, and so are those of
    the system that came after one of them: so all stand in their order. Metadata, raw provider objects, usage and names
    stay out of it.

    A model tells its thinking encrypted, so that it can go back, only where the body asks for it, and not every model
    takes that: `body["include"] = ["reasoning.encrypted_content"]` is the caller's to add.

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
        form.say(index, message)
    body: Json = {"model": target.model, **form.settings()}
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
        self._instructions: list[str] = []
        self._input: list[JsonValue] = []
        self._reasoned: set[str] = set()
        """ids of the reasoning items"""
        self._unanswered: deque[str] = deque()
        """wire ids of the calls whose results come next: the context has one a call, in the order of the calls"""

    def instruct(self, place: str, message: LlmMessage) -> None:
        losses: list[str] = []
        texts = texts_of(message.content, losses, "in instructions only text is taken")
        developer = isinstance(message, DeveloperMessage) and not self._target.merge_developer
        if developer or self._input:
            role = "developer" if developer else "system"
            self._input += [message_item(role, [Text(text) for text in texts])] if texts else []
        elif texts:
            self._instructions.append("".join(texts))
        self._tell(place, losses)

    def say(self, index: int, message: LlmMessage) -> None:
        losses: list[str] = []
        place = f"messages.{index}"
        match message:
            case UserMessage():
                parts = parts_of(message.content, "responses", self._target, losses)
                self._input += [message_item("user", parts)] if parts else []
            case AssistantMessage():
                ids = [self.ids.take(call.id) for call in message.tool_calls()]
                self._unanswered.extend(ids)
                items = AnswerItems(f"msg_{index}", self.names, self._target, losses, self._reasoned)
                self._input += items.of(message, ids)
                self.unsaid += [place] if items.left_out else []
            case ToolResultMessage():
                parts = result_parts(message, "responses", self._target, losses)
                self._input.append(result_item(self._unanswered.popleft(), parts))
            case _:
                losses.append("left out: the API has no such role")
        self._tell(place, losses)

    def settings(self) -> Json:
        """What the body says beside the model. The input holds one item at least, and then more than instructions."""
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
                    # Strict is the API's default, and refuses most schemas that are not made for it.
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

    def _tell(self, place: str, losses: list[str]) -> None:
        self.losses += [f"{place}: {loss}" for loss in losses]
