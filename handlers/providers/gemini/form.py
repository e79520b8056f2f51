"""Write a context as a request to Gemini's API, `generateContent`. The request is plain dicts; no SDK is imported.

Source: the API's REST reference and the types of Google's Python SDK (3.4).
"""

from collections import deque
from collections.abc import Mapping
from typing import Unpack

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.common.answer import is_minted
from lanebus.handlers.providers.common.blocks import called, copied
from lanebus.handlers.providers.common.form import build_request
from lanebus.handlers.providers.common.request import Json, ProviderRequest
from lanebus.handlers.providers.common.target import RequestOptions, Target
from lanebus.handlers.providers.common.wire_ids import WireNames, WirePattern
from lanebus.handlers.providers.gemini.parts import (
    PROVIDER,
    WireCall,
    assistant_parts,
    is_before_gemini_3,
    result_parts,
    system_texts,
    user_parts,
)
from lanebus.handlers.providers.gemini.signatures import sign_current_turn

__all__ = ("PLACEHOLDER", "to_gemini")

FUNCTION_NAME = WirePattern.of("a-zA-Z0-9_.:-", 128, first="a-zA-Z_")

_MODE = {"auto": "AUTO", "required": "ANY", "named": "ANY", "none": "NONE"}

PLACEHOLDER = "..."
"""Text of the user content that is added if the context does not start with a user message.

The API refuses empty contents, and contents that start with a function call.
"""


def to_gemini(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """Return the request that sends the context to a model. The request's warnings include the context's faults.

    The body names neither the model nor streaming. Both are part of the URL, `models/MODEL:generateContent` and
    `models/MODEL:streamGenerateContent?alt=sse`.

    Roles alternate and start with the user. The results of an answer's calls are the first parts of one content, in the
    order of the calls. The order shows which call a result belongs to, because only calls that this model wrote have an
    id. Metadata, raw provider objects, usage and names are not sent.

    If the context ends with an answer of the model, so does the request; newer models refuse such a request. Gemini 3
    refuses calls without a signature in the current turn, for example after a change of provider. Such calls are sent
    with the placeholder `UNSIGNED`.

    Args:
        context: the context to send.
        options: see `RequestOptions`; `stream` and `cache` have no effect here.

    Raises:
        NoModel: no model is passed, and the session names no model.
        ToolNotOffered: the tool choice names a tool that is not offered.
        ContentRefused: `strict` is True, and a part of the context would be left out or changed.
    """
    return build_request(PROVIDER, context, options, _Form)


class _Form:
    """Builds the request: contents with alternating roles."""

    def __init__(self, target: Target) -> None:
        self._system: list[str] = []
        self.call_ids: Mapping[str, str] = {}
        self.names = WireNames(FUNCTION_NAME, (tool.name for tool in target.tools))
        self._target = target
        self._contents: list[tuple[str, list[Json]]] = []
        self._ids: set[str] = set()
        self._unanswered: deque[WireCall] = deque()
        """Calls without a result so far. The context has one result per call, in the order of the calls."""
        self._media: list[Json] = []
        """Media of results. They are added after all results of the batch."""

    def instruct(self, message: LlmMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._system += system_texts(message, losses)

    def ask(self, message: UserMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._add("user", user_parts(message, self._target, losses))

    def answer(self, index: int, message: AssistantMessage, losses: list[str]) -> bool:
        """See `Form`."""
        del index
        calls = self._calls(message, losses)
        self._unanswered.extend(calls)
        parts, left_out = assistant_parts(message, calls, self._target, losses)
        self._add("model", parts)
        return left_out

    def give_result(self, message: ToolResultMessage, losses: list[str]) -> None:
        """See `Form`."""
        response, media = result_parts(message, self._unanswered.popleft(), self._target, losses)
        self._media += media
        self._add("user", [response])
        if not self._unanswered:
            self._add("user", self._media)
            self._media = []

    def body(self) -> Json:
        """See `Form`."""
        body: Json = {}
        if self._system:
            body["systemInstruction"] = {"parts": [{"text": "\n\n".join(self._system)}]}
        body["contents"] = self._alternating()
        body |= self._offered()
        if self._target.max_tokens is not None:
            body["generationConfig"] = {"maxOutputTokens": self._target.max_tokens}
        return body

    def _alternating(self) -> list[JsonValue]:
        """Return the contents. The first content is a user's; if necessary, it is the placeholder."""
        if not self._contents or self._contents[0][0] != "user":
            self._contents.insert(0, ("user", [{"text": PLACEHOLDER}]))
        if not is_before_gemini_3(self._target.model):
            sign_current_turn(self._contents)
        return [{"role": role, "parts": [*parts]} for role, parts in self._contents]

    def _offered(self) -> Json:
        """Return the tools and the tool choice."""
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
            # The model knows neither ids that lanebus generated nor ids of other providers.
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
