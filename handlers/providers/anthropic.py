"""Write requests to Anthropic's Messages API and read its answers. The request is plain dicts; no SDK is imported."""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AnnotationRef,
    AssistantMessage,
    Block,
    DocumentBlock,
    ImageBlock,
    LlmMessage,
    MediaRef,
    Rates,
    RedactedThinkingBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UnknownBlock,
    Usage,
    UserMessage,
    require_json,
)
from lanebus.handlers.context import Context
from lanebus.handlers.providers.answer import (
    NO_NAMES,
    AnswerState,
    ModelEvent,
    Piece,
    count_of,
    priced,
    read_call,
    require_response,
    text_of,
)
from lanebus.handlers.providers.request import (
    NO_OUTPUT,
    Json,
    ProviderRequest,
    RequestOptions,
    Target,
    WireIds,
    WireNames,
    WirePattern,
    arguments_of,
    as_text,
    build_request,
    called,
    copied,
    flat,
    inline_type,
    is_failed,
    is_web,
    rendered_blocks,
    unreachable,
)

# Source: the Messages API and the parameter types of its Python SDK (2.11).

CALL_ID = WirePattern.of("a-zA-Z0-9_-", 64)
TOOL_NAME = WirePattern.of("a-zA-Z0-9_-", 128)

MAX_TOKENS = 4096
"""Default of `max_tokens`. The API requires a limit."""

_CHOICE = {"auto": "auto", "required": "any", "named": "tool"}

_UNMARKED = frozenset({"thinking", "redacted_thinking"})

PLACEHOLDER = "..."
"""Text of the user message that is added if the context does not start with a user message."""


def to_anthropic(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """Return the request that sends the context to a model. The request's warnings include the context's faults.

    Roles alternate and start with the user. Tool results come first in the user message after their calls. Metadata,
    raw provider objects, usage and names are not sent.

    With `cache`, the body has up to three marks, and the API caches the request up to each mark. The marks are at the
    end of the instructions, at the last tool, and at the second last message. The `two-lane-agent` system has the same
    marks.

    Args:
        context: the context to send.
        options: see `RequestOptions`; `max_tokens` defaults to 4096.

    Raises:
        NoModel: no model is passed, and the session names no model.
        ToolNotOffered: the tool choice names a tool that is not offered.
        ContentRefused: `strict` is True, and a part of the context would be left out or changed.
    """
    return build_request(PROVIDER, context, options, _Form)


class _Form:
    """Builds the request: turns with alternating roles."""

    def __init__(self, target: Target) -> None:
        self._system: list[Json] = []
        self._ids = WireIds(CALL_ID)
        self.call_ids = self._ids.originals
        self.names = WireNames(TOOL_NAME, (tool.name for tool in target.tools))
        self._target = target
        self._turns: list[tuple[str, list[Json]]] = []
        self._last_blocks: deque[Json] = deque(maxlen=2)
        """For each of the last two messages, the last block that can be marked for the cache."""

    def instruct(self, message: LlmMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._system += system_blocks(message, self._target, losses)

    def ask(self, message: UserMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._add("user", user_blocks(message, self._target, losses))

    def answer(self, index: int, message: AssistantMessage, losses: list[str]) -> bool:
        """See `Form`."""
        del index
        ids = self._ids.take_all(message)
        blocks, left_out = assistant_blocks(message, ids, self.names, self._target, losses)
        self._add("assistant", blocks)
        return left_out

    def give_result(self, message: ToolResultMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._add("user", [result_block(message, self._ids.take_unanswered(), self._target, losses)])

    def body(self) -> Json:
        """See `Form`."""
        target = self._target
        body: Json = {"model": target.model, "max_tokens": target.max_tokens or MAX_TOKENS}
        if self._system:
            body["system"] = [*self._system]
        body["messages"] = self._messages()
        body |= self._offered()
        if target.cache:
            self._mark(body)
        if target.stream:
            body["stream"] = True
        return body

    def _messages(self) -> list[JsonValue]:
        """Return the turns as messages.

        The API requires that the first message is a user message, so a placeholder is added if necessary. The API
        refuses white space at the end of a last assistant message, so this white space is stripped.
        """
        self._strip_end()
        if not self._turns or self._turns[0][0] != "user":
            self._turns.insert(0, ("user", [{"type": "text", "text": PLACEHOLDER}]))
        return [{"role": role, "content": [*blocks]} for role, blocks in self._turns]

    def _mark(self, body: Json) -> None:
        """Add the marks up to which the provider should cache the request."""
        tools = body.get("tools")
        marked = [self._system[-1]] if self._system else []
        if isinstance(tools, list) and tools and isinstance(last := tools[-1], dict):
            marked.append(last)
        if len(self._last_blocks) == 2:  # the second last message
            marked.append(self._last_blocks[0])
        for block in marked:
            block["cache_control"] = {"type": "ephemeral"}

    def _offered(self) -> Json:
        """Return the tools and the tool choice. With choice "none", no tools are offered."""
        target = self._target
        choice = target.tool_choice
        if not target.tools or (choice and choice.mode == "none"):
            return {}
        tools: list[JsonValue] = [
            {"name": self.names.of(tool.name), "description": tool.description, "input_schema": copied(tool.schema)}
            for tool in target.tools
        ]
        if choice is None:
            return {"tools": tools}
        named: Json = {"name": self.names.of(choice.name or "")} if choice.mode == "named" else {}
        return {"tools": tools, "tool_choice": {"type": _CHOICE[choice.mode], **named}}

    def _add(self, role: str, blocks: list[Json]) -> None:
        if not blocks:
            return
        self._last_blocks.extend([block for block in blocks if block["type"] not in _UNMARKED][-1:])
        if self._turns and self._turns[-1][0] == role:
            self._turns[-1][1].extend(blocks)
        else:
            self._turns.append((role, blocks))

    def _strip_end(self) -> None:
        """Strip white space from the end of the request if the last turn is the assistant's.

        The model continues such a turn, and the API refuses white space at its end.
        """
        if self._turns and self._turns[-1][0] == "assistant":
            last = self._turns[-1][1][-1]
            if isinstance(text := last.get("text"), str):
                last["text"] = text.rstrip()


# Render the blocks of one message in Anthropic's form.
#
# Content that the API cannot represent is left out and reported as a loss.

PROVIDER = "anthropic"

_SERVER_SIDE = frozenset(
    {
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "container_upload",
        "compaction",
    }
)
"""Types of the blocks that the provider's own tools write. The API accepts such blocks back in a later request.

After a pause, the API continues from such a block.
"""


def system_blocks(message: LlmMessage, target: Target, losses: list[str]) -> list[Json]:
    """Render instructions. Content other than text is a loss, because the API accepts only text in instructions."""
    return _filled(message.content, target, losses, (TextBlock,), "in instructions only text is taken")


def user_blocks(message: LlmMessage, target: Target, losses: list[str]) -> list[Json]:
    """Render a user message. The message holds no tool results: the context has them as separate messages."""
    return _filled(message.content, target, losses, (TextBlock, ImageBlock, DocumentBlock), "users cannot send it")


def assistant_blocks(
    message: AssistantMessage, ids: Sequence[str], names: WireNames, target: Target, losses: list[str]
) -> tuple[list[Json], bool]:
    """Render an assistant message. The order of its blocks is kept.

    Thinking, and the blocks of the provider's own tools, go back unchanged to the model that wrote them. The API
    accepts no message that ends with thinking, so such thinking is left out.

    Args:
        message: the message to render.
        ids: ids of the message's tool calls on the wire, in order.
        names: names of the tools on the wire.
        target: the options of the request.
        losses: list to which each loss is appended.

    Returns:
        The blocks, and whether thinking was left out.
    """
    own = target.wrote(message)
    remaining = iter(ids)
    blocks: list[Json] = []
    left_out = False
    for block in message.content:
        match block:
            case RedactedThinkingBlock(data=data) if own:
                blocks.append({"type": "redacted_thinking", "data": data})
            case ThinkingBlock(text=text, signature=str(signature)) if own and signature:
                blocks.append({"type": "thinking", "thinking": text, "signature": signature})
            case ThinkingBlock() | RedactedThinkingBlock():
                thinking = as_text(block, target)
                if thinking is None:
                    left_out = True
                else:
                    blocks.append({"type": "text", "text": thinking})
            case ToolCallBlock():
                blocks.append(_tool_use(block, next(remaining), names, losses))
            case UnknownBlock(raw=raw) if own and raw.get("type") in _SERVER_SIDE:
                blocks.append({key: copied(value) for key, value in raw.items()})
            case _:
                blocks += _filled((block,), target, losses, (TextBlock,), "assistants cannot send it")
    while blocks and blocks[-1]["type"] in {"thinking", "redacted_thinking"}:
        del blocks[-1]
        losses.append("thinking left out: it ends the message")
    return blocks, left_out


def result_block(message: ToolResultMessage, wire_id: str, target: Target, losses: list[str]) -> Json:
    """Render a tool's result. One text becomes a bare string, other content an array of blocks.

    A result without content becomes its structured JSON as text. A failed result is sent with `is_error` and only its
    text, because the API refuses other content in it.
    """
    failed = is_failed(message)
    taken = (TextBlock, DocumentBlock) if failed else (TextBlock, ImageBlock, DocumentBlock)
    reason = "the result of a failed call holds text alone" if failed else "results cannot hold it"
    blocks = _filled(flat(message.content), target, losses, taken, reason)
    if failed:
        blocks = _texts_alone(blocks, reason, losses)
    result: Json = {"type": "tool_result", "tool_use_id": wire_id}
    content: JsonValue = [*blocks]
    if not blocks:
        text = None if message.structured is None else json.dumps(message.structured, ensure_ascii=False)
        content = text or (NO_OUTPUT if failed else None)
    elif len(blocks) == 1 and blocks[0]["type"] == "text":
        content = blocks[0]["text"]
    if content is not None:
        result["content"] = content
    if failed:
        result["is_error"] = True
    return result


def _texts_alone(blocks: Iterable[Json], reason: str, losses: list[str]) -> list[Json]:
    """Return only the text blocks. A document that is plain text becomes a text block; other blocks are losses."""
    texts: list[Json] = []
    for block in blocks:
        match block:
            case {"type": "document", "source": {"type": "text", "data": text}}:
                texts.append({"type": "text", "text": text})
            case {"type": "text"}:
                texts.append(block)
            case _:
                losses.append(f"{block['type']} left out: {reason}")
    return texts


def _filled(
    content: Iterable[Block], target: Target, losses: list[str], taken: tuple[type[Block], ...], reason: str
) -> list[Json]:
    return rendered_blocks(content, lambda block: _rendered(block, target), taken=taken, reason=reason, losses=losses)


def _rendered(block: Block, target: Target) -> Json | str | None:
    """Return the block's JSON, the reason as text if the block cannot be sent, or None if the block is empty.

    Text of only white space is empty, because the API refuses it.
    """
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case ImageBlock():
            return image_block(target.resolved(block.media))
        case DocumentBlock():
            return document_block(block, target.resolved(block.media))
        case _:
            return "there is no form for it"


def _tool_use(call: ToolCallBlock, wire_id: str, names: WireNames, losses: list[str]) -> Json:
    name = called(call, names, losses)
    return {"type": "tool_use", "id": wire_id, "name": name, "input": arguments_of(call, losses)}


# Render images and documents in Anthropic's form. A reference is passed on or left out, never fetched.

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"


def image_block(media: MediaRef) -> Json | str:
    """Return the image block. If the image cannot be sent, return the reason as text."""
    match media.kind:
        case "data":
            media_type = inline_type(media)
            if media_type not in _IMAGE_TYPES:
                return f"{media_type or 'unknown type'} is none of {', '.join(sorted(_IMAGE_TYPES))}"
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": media.data}}
        case "url" if is_web(media.url):
            return {"type": "image", "source": {"type": "url", "url": media.url}}
        case "file_id":
            return {"type": "image", "source": {"type": "file", "file_id": media.file_id}}
        case _:
            return unreachable(media)


def document_block(block: DocumentBlock, media: MediaRef) -> Json | str:
    """Return the document at `media` as a block. If `media` cannot be sent, the block holds the text extracted from the
    document.

    If there is no such text, return the reason as text.
    """
    source = _document_source(media)
    if isinstance(source, str):
        text = next((text for text in (block.text, block.excerpt) if text and text.strip()), None)
        if text is None:
            return source
        source = _plain_text(text)
    title: Json = {"title": media.filename} if media.filename else {}
    return {"type": "document", "source": source, **title}


def _document_source(media: MediaRef) -> Json | str:
    match media.kind:
        case "data":
            media_type = inline_type(media) or "unknown type"
            if media_type == _PDF:
                return {"type": "base64", "media_type": _PDF, "data": media.data or ""}
            return _decoded(media) if media_type.startswith("text/") else f"{media_type} is neither PDF nor text"
        case "url" if is_web(media.url):
            if media.mime_type not in {None, _PDF}:
                return f"{media.mime_type} at a URL, only PDF is read there"
            return {"type": "url", "url": media.url}
        case "file_id":
            return {"type": "file", "file_id": media.file_id}
        case _:
            return unreachable(media)


def _decoded(media: MediaRef) -> Json | str:
    try:
        text = media.decoded().decode("utf-8")
    except UnicodeDecodeError:
        return "its text is not UTF-8"
    return _plain_text(text) if text.strip() else "its text is empty"


def _plain_text(text: str) -> Json:
    return {"type": "text", "media_type": "text/plain", "data": text}


# Read answers of Anthropic's Messages API, whole or as a stream of events.

_STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "toolUse",
    "pause_turn": "paused",
    "refusal": "guardRail",
}
_KINDS = frozenset(
    {"message_start", "message_delta", "message_stop", "error"}
    | {"content_block_start", "content_block_delta", "content_block_stop"}
)


def from_anthropic(
    response: Json, *, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
) -> AssistantMessage:
    """Return the message of a whole response of the Messages API.

    Args:
        response: the response's JSON.
        model: the requested model's name; None uses the model name in the response.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.

    Raises:
        DecodeError: `response` is not a response of the Messages API.
    """
    require_response(response)
    if response.get("type") != "message" or not isinstance(content := response.get("content"), list):
        raise DecodeError("type", "a response of the Messages API is of type 'message' and has a list as content")
    if not isinstance(response.get("usage"), dict):
        raise DecodeError("usage", "a response of the Messages API has a usage")
    answer = AnthropicAnswer(model, rates, names)
    answer.take({"type": "message_start", "message": response})
    for index, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise DecodeError(f"content.{index}", "a block is a JSON object with a type")
        _require_block(block, f"content.{index}")
        answer.take({"type": "content_block_start", "index": index, "content_block": block})
        answer.take({"type": "content_block_stop", "index": index})
    answer.take({"type": "message_delta", "delta": {"stop_reason": response.get("stop_reason")}, "usage": {}})
    answer.take({"type": "message_stop"})
    return answer.message()


class AnthropicAnswer(AnswerState):
    """Builds a message from the stream's events; see `Answer`.

    Args:
        model: the requested model's name; None uses the model name in the stream.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.
    """

    def __init__(
        self, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
    ) -> None:
        super().__init__(model, rates, names)
        self._blocks: dict[int, Json] = {}
        self._fragments: dict[int, list[str]] = {}
        self._open: set[int] = set()
        self._usage: Json = {}
        self.is_counted = False

    def take(self, event: Json) -> list[ModelEvent]:
        """Add one event of the stream, and return the model events that it adds; see `Answer.take`."""
        require_json(event)
        match event:
            case {"type": "message_start", "message": dict(message)} if isinstance(message.get("usage"), dict):
                self._identify(message)
                return self._counted(message)
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)} if _is_typed(block):
                return self._start(index, block)
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)} if (
                index in self._blocks and _is_typed(delta)
            ):
                return self._grow(index, delta)
            case {"type": "content_block_stop", "index": int(index)}:
                self._open.discard(index)
            case {"type": "message_delta", "delta": dict(delta)}:
                self._stop = text_of(delta, "stop_reason") or self._stop
                self.is_counted = isinstance(event.get("usage"), dict)
                return self._counted(event)
            case {"type": "message_stop"}:
                self.is_complete = True
            case {"type": "error", "error": dict(error)}:
                self._fail(error, "type")  # the SDK raises an exception instead
            case {"type": str(kind)} if kind not in _KINDS:
                pass
            case _:
                raise DecodeError(text_of(event, "type"), "is not an event of the Messages API")
        return []

    def message(self, fault: str | None = None) -> AssistantMessage:
        """Return the message so far; see `Answer.message`."""
        fault = fault or self._error
        whole = (
            index for index in sorted(self._blocks) if not fault or index not in self._open or not self._is_call(index)
        )
        return self._message(
            PROVIDER,
            tuple(self._block(index) for index in whole),
            stop=(_STOP_REASONS.get(self._stop or "", "stop"), self._stop),
            usage=self._normalised() if self._usage else None,
            fault=fault,
        )

    def _start(self, index: int, block: Json) -> list[ModelEvent]:
        _require_block(block, "content_block")
        self._blocks[index] = {**block}
        self._fragments[index] = []
        self._open.add(index)
        if block["type"] == "tool_use":
            name = text_of(block, "name")
            return [Piece("toolCall", "", index, self._names.get(name, name))]
        text, thinking = text_of(block, "text"), text_of(block, "thinking")
        return [Piece("text" if text else "thinking", text or thinking, index)] if text or thinking else []

    def _grow(self, index: int, delta: Json) -> list[ModelEvent]:
        block = self._blocks[index]
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                block["text"] = f"{block.get('text') or ''}{text}"
                return [Piece("text", text, index)]
            case {"type": "thinking_delta", "thinking": str(text)}:
                block["thinking"] = f"{block.get('thinking') or ''}{text}"
                return [Piece("thinking", text, index)]
            case {"type": "signature_delta", "signature": str(signature)}:
                block["signature"] = signature
            case {"type": "input_json_delta", "partial_json": str(fragment)}:
                self._fragments[index].append(fragment)
                return [Piece("toolCall", fragment, index)] if self._is_call(index) else []
            case {"type": "citations_delta", "citation": dict(citation)}:
                known = block.get("citations")
                block["citations"] = [*(known if isinstance(known, list) else []), citation]
            case _:
                pass
        return []

    def _is_call(self, index: int) -> bool:
        return self._blocks[index]["type"] == "tool_use"

    def _block(self, index: int) -> Block:
        block = self._blocks[index]
        match block:
            case {"type": "text"}:
                citations = block.get("citations")
                refs = (
                    tuple(_ref(each) for each in citations if isinstance(each, dict))
                    if isinstance(citations, list)
                    else ()
                )
                return TextBlock(text=text_of(block, "text"), annotations=refs or None)
            case {"type": "thinking"}:
                return ThinkingBlock(text=text_of(block, "thinking"), signature=text_of(block, "signature") or None)
            case {"type": "redacted_thinking"}:
                return RedactedThinkingBlock(data=text_of(block, "data"))
            case {"type": "tool_use"}:
                return self._call(index, block)
            case _:
                # A block of the provider's own tools also gets its input in pieces. The API refuses the block later if
                # the input is not valid JSON.
                fragments = "".join(self._fragments[index])
                call = read_call("", "", fragments, NO_NAMES)
                return UnknownBlock(raw={**block, "input": call.arguments} if fragments else block)

    def _call(self, index: int, block: Json) -> ToolCallBlock:
        fragments = "".join(self._fragments[index])
        call = read_call(text_of(block, "id"), text_of(block, "name"), fragments, self._names)
        # A stream starts a call with an empty object and sends the arguments later. A whole response has them at once.
        return call if fragments else call.model_copy(update={"arguments": block.get("input") or {}})

    def _counted(self, event: Json) -> list[ModelEvent]:
        # Each usage counts from the beginning of the answer, so its counts replace the previous counts.
        usage = event.get("usage")
        if not isinstance(usage, dict):
            return []
        self._usage.update({name: value for name, value in usage.items() if value is not None})
        return [self._normalised()]

    def _normalised(self) -> Usage:
        """Return the usage. This API's `input_tokens` does not include cached tokens."""
        details = self._usage.get("output_tokens_details")
        reasoning = details.get("thinking_tokens") if isinstance(details, dict) else 0
        counts = [count_of(self._usage.get(name)) for name in _COUNTS]
        usage = Usage(
            input=counts[0],
            output=counts[1],
            cache_read=counts[2],
            cache_write=counts[3],
            reasoning=count_of(reasoning),
            total_tokens=sum(counts),
            raw={**self._usage},
        )
        return priced(usage, self._rates)


_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


_TEXTS = {
    "text": ("text",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name"),
}
_NEEDED = ("data", "id", "name")
"""Text fields that a block must have at its start, because no later event sets them."""


def _require_block(block: Json, path: str) -> None:
    """Raise DecodeError if a field that the block's type needs is missing or invalid.

    Without this check, such a field would be read as empty text.
    """
    for name in _TEXTS.get(text_of(block, "type"), ()):
        value = block.get(name)
        if not isinstance(value, str) and (value is not None or name in _NEEDED):
            raise DecodeError(f"{path}.{name}", "wants a text")
    if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict | None):
        raise DecodeError(f"{path}.input", "wants a JSON object")


def _is_typed(value: Json) -> bool:
    return isinstance(value.get("type"), str)


def _ref(citation: Json) -> AnnotationRef:
    return AnnotationRef(
        url=text_of(citation, "url") or None,
        file_id=text_of(citation, "file_id") or None,
        page=_number(citation, "start_page_number"),
        index=_number(citation, "document_index"),
        title=text_of(citation, "title") or text_of(citation, "document_title") or None,
    )


def _number(citation: Json, name: str) -> int | None:
    value = citation.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
