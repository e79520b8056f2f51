"""Build a request: its options and tools, the interface of a provider's form, and what all providers share."""

import base64
import hashlib
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import count
from typing import Literal, NamedTuple, Protocol, Self, TypedDict, cast, get_args
from urllib.parse import urlsplit

from pydantic import JsonValue

from lanebus.bus.errors import (
    DecodeError,
    InvalidArgument,
    MessageError,
    SetupError,
    require_choice,
    require_count,
    require_flag,
    require_instance,
    require_text,
)
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

# The tools that a request offers, independent of the provider.


class _Spec(NamedTuple):
    name: str
    description: str
    schema: dict[str, JsonValue]
    """JSON schema of the tool's arguments. The arguments are a JSON object."""


class ToolSpec(_Spec):
    """A tool as a model sees it.

    Raises:
        InvalidArgument: `name` is no text or empty, `description` is no text, or `schema` is no dict.
    """

    __slots__ = ()

    def __new__(cls, name: str, description: str, schema: dict[str, JsonValue]) -> Self:
        require_text("name", name, is_filled=True)
        require_text("description", description)
        require_instance("schema", schema, dict, 'pass a JSON schema, such as {"type": "object"}')
        return super().__new__(cls, name, description, schema)

    @classmethod
    def read(cls, value: JsonValue, path: str = "") -> Self:
        """Read a tool from its JSON, in the form of any provider.

        The schema's key is `schema`, `input_schema`, `inputSchema` or `parameters`. The whole tool may be nested in
        `function`.

        Args:
            value: the tool's JSON.
            path: path of `value`, for errors.

        Raises:
            DecodeError: the tool has no name, or its schema is not an object.
        """
        if isinstance(value, dict) and isinstance(function := value.get("function"), dict):
            value = function
        if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or not name:
            raise DecodeError(path, "a tool is a JSON object with a name")
        keys = [key for key in ("schema", "input_schema", "inputSchema", "parameters") if key in value]
        schema: JsonValue = value[keys[0]] if keys else {"type": "object"}
        if not isinstance(schema, dict):
            raise DecodeError(f"{path}.{keys[0]}" if path else keys[0], "a schema is a JSON object")
        description = value.get("description")
        return cls(name, description if isinstance(description, str) else "", schema)


class _Choice(NamedTuple):
    mode: Literal["auto", "required", "none", "named"]
    name: str | None = None
    """Name of the tool that the model must call, if `mode` is "named"; otherwise None."""


class ToolChoice(_Choice):
    """Whether the model may, must or must not call a tool.

    Raises:
        InvalidArgument: there is no such `mode`, or the mode "named" has no `name`.
    """

    __slots__ = ()

    def __new__(cls, mode: Literal["auto", "required", "none", "named"], name: str | None = None) -> Self:
        require_choice("mode", mode, ("auto", "required", "none", "named"))
        require_text("name", name, is_optional=mode != "named", is_filled=mode == "named")
        return super().__new__(cls, mode, name)


# The options of a request. All providers use the same option names.

ForeignThinking = Literal["drop", "text"]

ERROR_PREFIX = "[TOOL ERROR] "
"""Default prefix of a failed tool's result, for APIs that have no field for failures."""


class FormOptions(TypedDict, total=False):
    """Options for all requests to a model. All options are optional."""

    tool_choice: ToolChoice | None
    """Whether the model may, must or must not call a tool. Default: the model chooses."""
    strict: bool
    """Refuse content that the API cannot represent, instead of leaving it out with a warning. Default: False."""
    foreign_thinking: ForeignThinking
    """How to treat thinking that another model wrote, or that has no signature: leave it out ("drop") or send it as
    text ("text"). Default: "drop".
    """
    error_prefix: str
    """Prefix of a failed tool's result, for APIs that have no field for failures. Default: `ERROR_PREFIX`."""
    cache: bool
    """Mark the parts of the request that the provider should cache, for APIs that need such marks. Default: False."""
    merge_developer: bool
    """Send developer instructions with the role "system", even if the API has a role for them. Default: False."""
    store: bool | None
    """Whether OpenAI may store the exchange. Default: not specified."""


class RequestOptions(FormOptions, total=False):
    """Options of a single request, in addition to the options of `FormOptions`."""

    model: str | None
    """The model to call. Default: the context's model."""
    max_tokens: int | None
    """Maximum number of tokens of the answer. Default: the API's own limit, or 4096 if the API requires one."""
    tools: Sequence[ToolSpec]
    """The tools that the model may call. Default: none."""
    media: Mapping[str, MediaRef]
    """Address of stored media → the same media inline or at a URL, as `resolve_media` returns. Default: empty."""
    stream: bool
    """Ask for server-sent events. Default: False."""


def _require_options(options: RequestOptions) -> None:
    """Raise InvalidArgument unless each option exists and has a valid value."""
    given = cast("Mapping[str, object]", options)
    known = {**FormOptions.__annotations__, **RequestOptions.__annotations__}
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            advice = f"did you mean `{near[0]}`?" if near else f"the options are {', '.join(sorted(known))}"
            raise InvalidArgument(name, given[name], f"no such option: {advice}")
    require_text("model", given.get("model"), is_optional=True)
    require_count("max_tokens", given.get("max_tokens"), least=1, is_optional=True)
    names = [tool.name for tool in options.get("tools", ())]
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise InvalidArgument("tools", twice, "give each tool a name of its own")
    require_instance(
        "tool_choice", given.get("tool_choice"), ToolChoice, 'pass ToolChoice("required")', is_optional=True
    )
    require_choice("foreign_thinking", given.get("foreign_thinking", "drop"), get_args(ForeignThinking))
    require_text("error_prefix", given.get("error_prefix", ""))
    for name in ("strict", "cache", "merge_developer", "stream"):
        require_flag(name, given.get(name, False))
    require_flag("store", given.get("store"), is_optional=True)
    require_instance("media", given.get("media", {}), Mapping, "pass what `resolve_media` returns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The options of one request, with defaults filled in."""

    provider: str
    model: str
    max_tokens: int | None = None
    tools: Sequence[ToolSpec] = ()
    tool_choice: ToolChoice | None = None
    strict: bool = False
    foreign_thinking: ForeignThinking = "drop"
    error_prefix: str = ERROR_PREFIX
    media: Mapping[str, MediaRef] = field(default_factory=dict[str, MediaRef])
    stream: bool = False
    cache: bool = False
    merge_developer: bool = False
    store: bool | None = None

    @classmethod
    def of(cls, provider: str, context: Context, options: RequestOptions) -> Self:
        """Return the options with defaults filled in. The default model is the context's model.

        A tool choice is ignored if no tools are offered.

        Raises:
            InvalidArgument: an option does not exist or has a wrong type.
            NoModel: no model is passed, and the session names no model.
            ToolNotOffered: the tool choice names a tool that is not offered.
        """
        _require_options(options)
        model = options.get("model") or context.model
        if model is None:
            raise NoModel(context.session)
        rest = {name: value for name, value in options.items() if name != "model"}
        target = replace(cls(provider=provider, model=model), **rest)  # type: ignore[arg-type]  # as their names say
        offered, choice = tuple(tool.name for tool in target.tools), target.tool_choice
        if choice is not None and choice.mode == "named" and offered and choice.name not in offered:
            raise ToolNotOffered(choice.name or "", offered)
        return target

    def wrote(self, message: AssistantMessage) -> bool:
        """Return whether this target's model and provider wrote the message.

        Return False if the message does not name a model and a provider.
        """
        return message.provider == self.provider and message.model == self.model

    def resolved(self, media: MediaRef) -> MediaRef:
        """Replace a reference to stored media by the media in the option `media`. If the option does not have the
        reference's address, return the reference unchanged.

        The result keeps the reference's own file name and media type, because several references may share one content.
        """
        found = self.media.get(media.address or "")
        if found is None:
            return media
        return media.model_copy(
            update={
                "kind": found.kind,
                "data": found.data,
                "url": found.url,
                "file_id": found.file_id,
                "mime_type": media.mime_type or found.mime_type,
            }
        )


# Errors in building a request.


class ToolNotOffered(SetupError):
    """The tool choice names a tool that the request does not offer.

    Fields: `name` of the tool; `offered`, the names of the offered tools.
    """

    def __init__(self, name: str, offered: tuple[str, ...]) -> None:
        known = ", ".join(map(repr, offered))
        super().__init__(f"the tool choice names {name!r}, which is not offered", f"choose one of {known}, or offer it")
        self.name, self.offered = name, offered


class NoModel(MessageError):
    """The request needs a model, but the caller passed none and the session names none.

    Fields: `session`, the session's id.
    """

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} names no model yet", "pass one as `model`")
        self.session = session


class ContentRefused(MessageError):
    """Strict mode: the provider's API cannot represent a part of the context.

    Fields: `provider`; `losses`, one text per part that would be left out or changed, with the part's place.
    """

    def __init__(self, provider: str, losses: tuple[str, ...]) -> None:
        super().__init__(f"{provider} cannot carry: {'; '.join(losses)}", "change it, or turn strict mode off")
        self.provider, self.losses = provider, losses


# Build a request: the interface of a provider's form, and the steps that are the same for all providers.


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
