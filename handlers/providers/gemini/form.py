"""A context as a request to Gemini's API, `generateContent`. Plain dicts: no SDK is imported.

Source: the API's REST reference and the types of Google's Python SDK (3.4).
"""

from collections import deque
from typing import Unpack

from pydantic import JsonValue

from bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage, UserMessage
from handlers.context.fold import Context
from handlers.providers.answer import is_minted
from handlers.providers.blocks import called, copied
from handlers.providers.finish import finished
from handlers.providers.gemini.parts import (
    PROVIDER,
    WireCall,
    assistant_parts,
    is_before_gemini_3,
    result_parts,
    system_texts,
    user_parts,
)
from handlers.providers.gemini.signing import sign_current_turn
from handlers.providers.request import Json, ProviderRequest
from handlers.providers.target import RequestOptions, Target
from handlers.providers.wire_ids import WireNames, WirePattern

__all__ = ("PLACEHOLDER", "to_gemini")

FUNCTION_NAME = WirePattern.of("a-zA-Z0-9_.:-", 128, first="a-zA-Z_")

_MODE = {"auto": "AUTO", "required": "ANY", "named": "ANY", "none": "NONE"}

PLACEHOLDER = "..."
"""said by the user where a request must begin with one and the context does not: the API refuses contents that begin
with a function call, or that are empty"""


def to_gemini(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """The request that shows a model what the context holds. Its warnings name the context's faults, too.

    The body names neither the model nor streaming: both are in the URL, `models/MODEL:generateContent` and
    `models/MODEL:streamGenerateContent?alt=sse`. Roles alternate and begin with the user; the results of one batch
    stand in one content, first in it, in the order of their calls, which is what matches them: ids go out only with
    calls to which this model gave them. Metadata, raw provider objects, usage and names stay out of it.

    A last turn of the model stays the last one; newer models refuse to go on from it. Gemini 3 refuses calls of the
    current turn that it has not signed, as after a change of provider: they go out with the placeholder `UNSIGNED`.

    Args:
        options: see `RequestOptions`; `stream` and `cache` change nothing here.

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
    body: Json = {}
    if form.system:
        body["systemInstruction"] = {"parts": [{"text": "\n\n".join(form.system)}]}
    body["contents"] = form.contents()
    body |= form.offered()
    if target.max_tokens is not None:
        body["generationConfig"] = {"maxOutputTokens": target.max_tokens}
    return finished(
        context, target, body, form.losses, unsaid=form.unsaid, call_ids={}, tool_names=form.names.originals
    )


class _Form:
    """A request in the making: contents that alternate, one message after the other."""

    def __init__(self, target: Target) -> None:
        self.system: list[str] = []
        self.losses: list[str] = []
        self.unsaid: list[str] = []
        """where thinking was left out"""
        self.names = WireNames(FUNCTION_NAME, (tool.name for tool in target.tools))
        self._target = target
        self._contents: list[tuple[str, list[Json]]] = []
        self._ids: set[str] = set()
        self._unanswered: deque[WireCall] = deque()
        """the calls whose results come next: the context has one a call, in the order of the calls"""
        self._behind: list[Json] = []
        """media of results, which wait until all of the batch have been told"""

    def instruct(self, place: str, message: LlmMessage) -> None:
        losses: list[str] = []
        self.system += system_texts(message, losses)
        self._tell(place, losses)

    def say(self, place: str, message: LlmMessage) -> None:
        losses: list[str] = []
        match message:
            case UserMessage():
                self._add("user", user_parts(message, self._target, losses))
            case AssistantMessage():
                calls = self._calls(message, losses)
                self._unanswered.extend(calls)
                parts, left_out = assistant_parts(message, calls, self._target, losses)
                self._add("model", parts)
                self.unsaid += [place] if left_out else []
            case ToolResultMessage():
                response, behind = result_parts(message, self._unanswered.popleft(), self._target, losses)
                self._behind += behind
                self._add("user", [response])
                if not self._unanswered:
                    self._add("user", self._behind)
                    self._behind = []
            case _:
                losses.append("left out: the API has no such role")
        self._tell(place, losses)

    def contents(self) -> list[JsonValue]:
        """The contents, the first of them a user's."""
        if not self._contents or self._contents[0][0] != "user":
            self._contents.insert(0, ("user", [{"text": PLACEHOLDER}]))
        if not is_before_gemini_3(self._target.model):
            sign_current_turn(self._contents)
        return [{"role": role, "parts": [*parts]} for role, parts in self._contents]

    def offered(self) -> Json:
        """The tools, and which of them the model must call."""
        target = self._target
        if not target.tools:
            return {}
        declarations: list[JsonValue] = [
            {
                "name": self.names.of(tool.name),
                "description": tool.description,
                "parametersJsonSchema": copied(tool.schema),
            }
            for tool in target.tools
        ]
        tools: Json = {"tools": [{"functionDeclarations": declarations}]}
        if (choice := target.tool_choice) is None:
            return tools
        config: Json = {"mode": _MODE[choice.mode]}
        if choice.mode == "named":
            config["allowedFunctionNames"] = [self.names.of(choice.name or "")]
        return {**tools, "toolConfig": {"functionCallingConfig": config}}

    def _calls(self, message: AssistantMessage, losses: list[str]) -> list[WireCall]:
        own = self._target.wrote(message)
        calls: list[WireCall] = []
        for call in message.tool_calls():
            # An id that we made up means nothing to the model, another provider's even less.
            is_its_own = own and call.id and not is_minted(call.id) and call.id not in self._ids
            calls.append(WireCall(called(call, self.names, losses), call.id if is_its_own else None))
            self._ids.add(call.id)
        return calls

    def _add(self, role: str, parts: list[Json]) -> None:
        if not parts:
            return
        if self._contents and self._contents[-1][0] == role:
            self._contents[-1][1].extend(parts)
        else:
            self._contents.append((role, parts))

    def _tell(self, place: str, losses: list[str]) -> None:
        self.losses += [f"{place}: {loss}" for loss in losses]
