"""A context as a request to Anthropic's Messages API. Plain dicts: no SDK is imported.

Source: the Messages API and the parameter types of its Python SDK (2.11).
"""

from collections import deque
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage, UserMessage
from handlers.context.anthropic_blocks import (
    PROVIDER,
    ForeignThinking,
    Target,
    assistant_blocks,
    result_block,
    system_blocks,
    user_blocks,
)
from handlers.context.errors import ContentRefused, NoModel
from handlers.context.fold import Context
from handlers.context.request import Json, ProviderRequest
from handlers.context.wire_ids import WireIds

__all__ = ("PLACEHOLDER", "to_anthropic")

PLACEHOLDER = "..."
"""said by the user where a request must begin with one and the context does not"""


def to_anthropic(
    context: Context,
    *,
    model: str | None = None,
    max_tokens: int = 4096,
    tools: Sequence[Mapping[str, JsonValue]] = (),
    strict: bool = False,
    foreign_thinking: ForeignThinking = "drop",
    stream: bool = False,
) -> ProviderRequest:
    """The request that shows a model what the context holds. Its warnings name the context's faults, too.

    Roles alternate and begin with the user; results stand first in the turn behind their calls. Metadata, raw provider
    objects, usage and names stay out of it.

    Args:
        model: whom to ask; None asks the context's own model.
        max_tokens: most tokens of the answer.
        tools: definitions in the API's form: name, description, input_schema.
        strict: refuse what the wire cannot carry, rather than leave it out with a warning.
        foreign_thinking: what becomes of thinking that another model wrote, or that has no signature.
        stream: ask for server-sent events.

    Raises:
        NoModel: `model` is None and the session never named one.
        ContentRefused: strict mode, and something would be left out or changed.
    """
    name = model or context.model
    if name is None:
        raise NoModel(context.session)
    form = _Form(Target(name, foreign_thinking))
    for index, instruction in enumerate(context.system):
        form.instruct(f"system.{index} ({instruction.role})", instruction)
    for index, message in enumerate(context.messages):
        form.say(f"messages.{index}", message)
    if strict and form.losses:
        raise ContentRefused(PROVIDER, tuple(form.losses))
    body: Json = {"model": name, "max_tokens": max_tokens}
    if form.system:
        body["system"] = [*form.system]
    body["messages"] = form.finished()
    if tools:
        body["tools"] = [dict(tool) for tool in tools]
    if stream:
        body["stream"] = True
    faults = (f"entry {fault.position}: {fault.error}" for fault in context.faults)
    return ProviderRequest(body, (*faults, *form.losses))


class _Form:
    """A request in the making: turns that alternate, one message after the other."""

    def __init__(self, target: Target) -> None:
        self.system: list[Json] = []
        self.losses: list[str] = []
        self._target = target
        self._turns: list[tuple[str, list[Json]]] = []
        self._ids = WireIds()
        self._unanswered: deque[str] = deque()
        """wire ids of the calls whose results come next: the context has one a call, in the order of the calls"""

    def instruct(self, place: str, message: LlmMessage) -> None:
        losses: list[str] = []
        self.system += system_blocks(message, losses)
        self._tell(place, losses)

    def say(self, place: str, message: LlmMessage) -> None:
        losses: list[str] = []
        match message:
            case UserMessage():
                self._add("user", user_blocks(message, losses))
            case AssistantMessage():
                ids = [self._ids.take(call.id) for call in message.tool_calls()]
                self._unanswered.extend(ids)
                self._add("assistant", assistant_blocks(message, ids, self._target, losses))
            case ToolResultMessage():
                self._add("user", [result_block(message, self._unanswered.popleft(), losses)])
            case _:
                losses.append("left out: the API has no such role")
        self._tell(place, losses)

    def finished(self) -> list[JsonValue]:
        """The turns, the first of them a user's; none ends with white space, which the API refuses."""
        self._strip_end()
        if not self._turns or self._turns[0][0] != "user":
            self._turns.insert(0, ("user", [{"type": "text", "text": PLACEHOLDER}]))
        return [{"role": role, "content": [*blocks]} for role, blocks in self._turns]

    def _add(self, role: str, blocks: list[Json]) -> None:
        if not blocks:
            return
        if self._turns and self._turns[-1][0] == role:
            self._turns[-1][1].extend(blocks)
        else:
            self._turns.append((role, blocks))

    def _strip_end(self) -> None:
        """A last assistant turn is one that the model goes on with: it may not end with white space."""
        if self._turns and self._turns[-1][0] == "assistant":
            last = self._turns[-1][1][-1]
            if isinstance(text := last.get("text"), str):
                last["text"] = text.rstrip()

    def _tell(self, place: str, losses: list[str]) -> None:
        self.losses += [f"{place}: {loss}" for loss in losses]
