"""Build a request: the interface of a provider's form, and the steps that are the same for all providers."""

from collections.abc import Callable, Mapping
from typing import Protocol

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.common.details import details_left_out
from lanebus.handlers.providers.common.errors import ContentRefused
from lanebus.handlers.providers.common.request import Json, ProviderRequest
from lanebus.handlers.providers.common.target import RequestOptions, Target
from lanebus.handlers.providers.common.thinking import thinking_left_out
from lanebus.handlers.providers.common.wire_ids import WireNames

__all__ = ("Form", "build_request")


class Form(Protocol):
    """Builds one provider's request, message by message.

    Each method appends to `losses` one text per part of a message that the provider's API cannot represent.
    """

    @property
    def call_ids(self) -> Mapping[str, str]:
        """Id of a tool call on the wire → the call's id in the log. Has only ids that differ."""
        ...

    @property
    def names(self) -> WireNames:
        """The object that maps each tool's own name to the name that is sent to the provider."""
        ...

    def instruct(self, message: LlmMessage, losses: list[str]) -> None:
        """Add a system or developer instruction. Called for all instructions before any message is added."""
        ...

    def ask(self, message: UserMessage, losses: list[str]) -> None:
        """Add a user message."""
        ...

    def answer(self, index: int, message: AssistantMessage, losses: list[str]) -> bool:
        """Add an assistant message. Return whether thinking was left out.

        Args:
            index: index of the message in the context.
            message: the message.
            losses: list to which each loss is appended.
        """
        ...

    def give_result(self, message: ToolResultMessage, losses: list[str]) -> None:
        """Add a tool's result. Called once per tool call, in the order of the calls."""
        ...

    def body(self) -> Json:
        """Return the whole body. Called once, at the end."""
        ...


def build_request(
    provider: str, context: Context, options: RequestOptions, make: Callable[[Target], Form]
) -> ProviderRequest:
    """Return the request that sends the context to a model.

    The request's warnings name the context's faults first, then the parts that the API cannot represent.

    Args:
        provider: the provider's name in messages.
        context: the context to send.
        options: see `RequestOptions`.
        make: makes an empty form for these options.

    Raises:
        NoModel: no model is passed, and the session names no model.
        ToolNotOffered: the tool choice names a tool that is not offered.
        ContentRefused: `strict` is True, and a part of the context would be left out or changed.
    """
    target = Target.of(provider, context, options)
    form = make(target)
    losses, without_thinking = list[str](), list[str]()
    for index, instruction in enumerate(context.system):
        lost: list[str] = []
        form.instruct(instruction, lost)
        losses += [f"system.{index} ({instruction.role}): {loss}" for loss in lost]
    for index, message in enumerate(context.messages):
        lost = []
        if _add(form, index, message, lost):
            without_thinking.append(f"messages.{index}")
        losses += [f"messages.{index}: {loss}" for loss in lost]
    body = form.body()
    losses += details_left_out("system", context.system)
    losses += details_left_out("messages", context.messages)
    if target.strict and losses:
        raise ContentRefused(target.provider, tuple(losses))
    faults = (f"entry {fault.position}: {fault.error}" for fault in context.faults)
    warnings = (*faults, *losses, *thinking_left_out(without_thinking))
    return ProviderRequest(body, warnings, form.call_ids, form.names.originals)


def _add(form: Form, index: int, message: LlmMessage, losses: list[str]) -> bool:
    """Add a message. Return whether thinking was left out."""
    match message:
        case UserMessage():
            form.ask(message, losses)
        case AssistantMessage():
            return form.answer(index, message, losses)
        case ToolResultMessage():
            form.give_result(message, losses)
        case _:
            losses.append("left out: the API has no such role")
    return False
