"""Build a request: the interface of a provider's form, and the steps that are the same for all providers."""

import base64
import hashlib
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from pydantic import JsonValue

from lanebus.bus.messages import (
    AssistantMessage,
    Block,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    LlmMessage,
    MediaRef,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    UserMessage,
    sniff,
)
from lanebus.handlers.context import Context
from lanebus.handlers.providers.options import ContentRefused, RequestOptions, Target

Json = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A request in plain dicts: no SDK is needed to build or read it."""

    body: Json
    """The whole JSON body. The caller owns it and may change it."""
    warnings: tuple[str, ...] = ()
    """One text per part of the context that was left out or changed, with the part's place.

    "messages.3: audio left out: …" is about the context's message with index 3. The body may have other indexes.
    "entry 7: …" is about the entry at position 7 in the log.
    """
    call_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Id of a tool call on the wire → the call's id in the log. Has only ids that differ."""
    tool_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a tool on the wire → the tool's own name. Has only names that differ.

    Pass this map as `names` to read the answer.
    """


# Replace tool call ids and tool names that a provider does not allow, and map the replacements back.
#
# Within a request, two calls never share an id, and two tools never share a name. The same calls in the same order get
# the same ids. So when a history grows, its earlier ids do not change, and the provider's prompt cache still matches.


class WirePattern(NamedTuple):
    """The pattern of the ids or names that a provider allows."""

    legal: re.Pattern[str]
    """Matches a whole id or name that is allowed."""
    illegal_character: re.Pattern[str]
    limit: int
    """Maximum number of characters of an id or name."""
    start: str = ""
    """Prefix that is added to a generated id or name if its first character is not allowed at the start."""

    @classmethod
    def of(cls, characters: str, limit: int, *, first: str | None = None) -> "WirePattern":
        """Make a pattern.

        Args:
            characters: the allowed characters, as the inside of a character class of a regular expression.
            limit: maximum number of characters.
            first: the characters allowed at the start, in the same form. None allows all of `characters`.
        """
        head = first or characters
        legal = re.compile(rf"[{head}][{characters}]{{0,{limit - 1}}}")
        return cls(legal, re.compile(rf"[^{characters}]"), limit, "_" if first else "")

    def made(self, text: str, taken: Collection[str], *, readable: bool = False) -> str:
        """Return the text if it is legal and not taken. Otherwise return an id or name generated from the text.

        Args:
            text: the id or name.
            taken: ids or names that are already in use.
            readable: whether to first try the text with its illegal characters replaced by "_". A later text that
                equals the result is then taken, and gets a generated name although it is legal.
        """
        return self.chosen(self.candidates(text, readable=readable), taken)

    def chosen(self, candidates: Iterator[str], taken: Collection[str]) -> str:
        """Return the first candidate that is legal and not taken."""
        return next(one for one in candidates if one not in taken and self.legal.fullmatch(one))

    def candidates(self, text: str, *, readable: bool = False) -> Iterator[str]:
        """Yield the text, followed by an endless series of ids or names generated from the text."""
        yield text
        plain = self.illegal_character.sub("_", text)
        if not self.legal.fullmatch(plain[:1]):
            plain = self.start + plain
        if readable:
            yield plain
        for repeat in count():
            # The digest covers the whole text. Without it, "a.b" and "a:b" would become the same name.
            digest = hashlib.sha256(f"{text}\0{repeat}".encode(errors="surrogatepass")).hexdigest()[:12]
            yield f"{plain[: self.limit - 13]}_{digest}"


class WireIds:
    """Assigns an id on the wire to each tool call of one request. An id that another call already has is replaced."""

    def __init__(self, pattern: WirePattern) -> None:
        self._pattern = pattern
        self._taken: set[str] = set()
        # Some providers repeat ids in each answer. The iterator of candidates is kept: a thousand calls with the same
        # id would otherwise try up to a thousand candidates each.
        self._candidates: dict[str, Iterator[str]] = {}
        self._unanswered: deque[str] = deque()
        self.originals: dict[str, str] = {}
        """Id on the wire → id in the log. Has only ids that differ."""

    def take_all(self, answer: AssistantMessage) -> list[str]:
        """Return the wire ids of an answer's calls, in order. Also queue these ids for `take_unanswered`."""
        ids = [self.take(call.id) for call in answer.tool_calls()]
        self._unanswered.extend(ids)
        return ids

    def take_unanswered(self) -> str:
        """Return the wire id of the first call that has no result yet, and remove it from the queue.

        Raises:
            IndexError: every call has a result.
        """
        return self._unanswered.popleft()

    def take(self, call_id: str) -> str:
        """Return the call's own id if it is legal and not taken. Otherwise return an id generated from `call_id`."""
        candidates = self._candidates.setdefault(call_id, self._pattern.candidates(call_id))
        wire_id = self._pattern.chosen(candidates, self._taken)
        self._taken.add(wire_id)
        if wire_id != call_id:
            self.originals[wire_id] = call_id
        return wire_id


class WireNames:
    """Assigns a name on the wire to each tool of one request. All calls of a tool get the same name."""

    def __init__(self, pattern: WirePattern, offered: Iterable[str] = ()) -> None:
        """Make an empty set of names.

        Args:
            pattern: the names that the provider allows.
            offered: names of the tools that the request offers. An offered tool with a legal name keeps its name, also
                if an earlier call in the history needs a generated name.
        """
        self._pattern = pattern
        self._names: dict[str, str] = {name: name for name in offered if pattern.legal.fullmatch(name)}

    def of(self, name: str) -> str:
        """Return the tool's own name if it is legal and not taken. Otherwise return a name generated from `name`."""
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = self._pattern.made(name, self._names.values(), readable=True)
        return known

    @property
    def originals(self) -> dict[str, str]:
        """Name on the wire → the tool's own name. Has only names that differ."""
        return {wire: name for name, wire in self._names.items() if wire != name}


# The interface of a provider's form, and the steps that are the same for all providers.


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


# Prepare blocks for a request: the steps that are the same for all providers.

NO_OUTPUT = "(no output)"
"""Text of a failed tool's empty result. Some APIs refuse an error without text, and models overlook it."""


def arguments_of(call: ToolCallBlock, losses: list[str]) -> Json:
    """Return a copy of the arguments as the JSON object that APIs require. A change is appended to `losses`."""
    arguments: JsonValue = call.arguments
    if call.arguments_raw and not arguments:
        arguments = call.arguments_raw
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        losses.append(f"arguments of tool call {call.id!r} are no object, sent as {{'value': …}}")
        return {"value": copied(arguments)}
    return {key: copied(value) for key, value in arguments.items()}


def called(call: ToolCallBlock, names: WireNames, losses: list[str]) -> str:
    """Return the tool's name on the wire. If it differs from the tool's own name, append a loss."""
    name = names.of(call.name)
    if name != call.name:
        losses.append(f"tool name {call.name!r} sent as {name!r}")
    return name


def copied(value: JsonValue) -> JsonValue:
    """Return a deep copy, so that a caller that changes the request does not change the message."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def flat(content: Iterable[Block]) -> Iterable[Block]:
    """Yield the blocks, with each nested result replaced by its content. No API accepts results inside results."""
    for block in content:
        if isinstance(block, ToolResultBlock):
            yield from flat(block.content)
        else:
            yield block


def is_failed(message: ToolResultMessage) -> bool:
    """Return whether the tool failed: `is_error` is True or `status` is "failed"."""
    return message.is_error or message.status == "failed"


def joined(content: Iterable[Block]) -> str:
    """Return all text of a result, without separators."""
    return "".join(block.text for block in flat(content) if isinstance(block, TextBlock))


def rendered_blocks(
    content: Iterable[Block],
    render: Callable[[Block], Json | str | None],
    *,
    taken: tuple[type[Block], ...],
    reason: str,
    losses: list[str],
) -> list[Json]:
    """Render the blocks that the API accepts at one place of a request. Each block that is left out is a loss.

    Args:
        content: the blocks.
        render: returns the block's JSON, the reason as text if the block cannot be sent, or None if the block is empty.
        taken: the classes of blocks that the API accepts at the place.
        reason: why blocks of other classes cannot be sent.
        losses: list to which each loss is appended.
    """
    found: list[Json] = []
    for block in content:
        rendered = render(block) if isinstance(block, taken) else reason
        if isinstance(rendered, dict):
            found.append(rendered)
        elif rendered:
            losses.append(f"{name_of(block)} left out: {rendered}")
    return found


def name_of(block: Block) -> str:
    """Return the name of a block for warnings."""
    return f"error {block.message!r}" if isinstance(block, ErrorBlock) else block.type


# Handle thinking that an API does not accept back: it is sent as text, or left out.


def as_text(block: ThinkingBlock | RedactedThinkingBlock, target: Target) -> str | None:
    """Return the thinking as text with a prefix; None means that the thinking is left out.

    Thinking becomes text only if `foreign_thinking` is "text". Redacted and empty thinking never becomes text.

    Source: the prefix is from the `two-lane-agent` system.
    """
    if isinstance(block, RedactedThinkingBlock) or target.foreign_thinking == "drop" or not block.text.strip():
        return None
    return f"[Reasoning] {block.text}"


def thinking_left_out(places: Sequence[str]) -> tuple[str, ...]:
    """Return one warning for all thinking that was left out; nothing if `places` is empty.

    There is no warning per message, because a long session has thinking in most answers. Strict mode does not refuse
    this loss, because `foreign_thinking` decides about it.

    Args:
        places: for each message whose thinking was left out, its place, such as "messages.3".
    """
    if not places:
        return ()
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return (f"{places[0]}{more}: thinking left out: it cannot go back as thinking, and is not told as text",)


# Details of blocks that no provider's request has a field for. They are never sent, and one loss is reported for each
# message that has such details.


def details_left_out(place: str, messages: Iterable[LlmMessage]) -> Iterator[str]:
    """Yield one loss for each message whose blocks have details that no request has a field for.

    A detail that can be derived from the content again, such as a transcript, thumbnail or excerpt, is no loss.

    Args:
        place: prefix such as "messages"; the message's index follows it.
        messages: the messages to check.
    """
    for index, message in enumerate(messages):
        names = dict.fromkeys(name for block in flat(message.content) for name in _details(block))
        if names:
            yield f"{place}.{index}: {', '.join(names)} left out: no request has a field for it"


def _details(block: Block) -> Iterator[str]:
    match block:
        case TextBlock(annotations=annotations) if annotations:
            yield "annotations of a text"
        case ImageBlock():
            if block.alt_text:
                yield "alt text of an image"
            if block.bbox:
                yield "bounding box of an image"
        case DocumentBlock(pages=pages) if pages:
            yield "page numbers of a document"
        case _:
            pass


# Read the type and location of media from a reference. Nothing is opened or fetched.


def inline_type(media: MediaRef) -> str | None:
    """Return the media type that the first bytes show, or else the declared type. APIs refuse a wrong declared type."""
    return sniff(base64.b64decode((media.data or "")[:1024])) or media.mime_type


def is_web(url: str | None) -> bool:
    """Return whether a provider's server can fetch the URL: its scheme is http or https."""
    return url is not None and urlsplit(url).scheme.lower() in {"http", "https"}


def unreachable(media: MediaRef) -> str:
    """Return the reason why `media` cannot be sent: it is in the media store, or its URL is not a web URL."""
    return "its content is in the media store" if media.kind == "sha256" else "its URL is not of the web"
