"""The request of a turn in the log: its definition, recorded at the turn's start, and its replay."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple, Protocol

from pydantic_core import PydanticSerializationError

from lanebus.bus import MediaStore, Session, SessionHead, resolve_media
from lanebus.bus.errors import CursorTrimmed, InvalidContent, MessageError
from lanebus.bus.messages import (
    AssistantMessage,
    ExtensionMessage,
    Lane,
    LlmMessage,
    MediaRef,
    MessageStarted,
    RequestDefined,
    ToolDefinition,
    TurnId,
    TurnStarted,
    parse_event,
)
from lanebus.bus.wire import START, Cursor, Envelope
from lanebus.handlers.agent.commands import read_turn_id
from lanebus.handlers.agent.errors import RequestDamaged, RequestUnknown
from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS, Model, ModelRequest, Optioned
from lanebus.handlers.agent.models.provider_model import form_request, read_options
from lanebus.handlers.context import Context, build_context, deferred_positions, read_position, visible_context
from lanebus.handlers.providers import PROVIDERS, ProviderRequest, ToolSpec

# The definition of a request in the log: everything besides the context, that is the tools and options, and a hash of
# these.

_HASH_LENGTH = 32

_log = logging.getLogger(__name__)


class Offer(NamedTuple):
    """The tools of one request, and the definition to record."""

    tools: tuple[ToolSpec, ...]
    definition: RequestDefined | None
    """the event that records the tools and options; None if the log cannot contain these"""


def define_request(model: Model, tools: Sequence[ToolSpec], max_tokens: int) -> RequestDefined | None:
    """Return the event that records the tools and options of a request; None if these are not valid JSON. Pure."""
    optioned = model if isinstance(model, Optioned) else None
    try:
        definition = RequestDefined(
            hash="",
            provider=model.provider,
            model=model.name,
            api=None if optioned is None else optioned.api,
            tools=tuple(
                ToolDefinition(name=tool.name, description=tool.description, input_schema=tool.schema) for tool in tools
            ),
            max_tokens=max_tokens,
            options=None if optioned is None else {**optioned.request_options} or None,
        )
        return definition.model_copy(update={"hash": definition_hash(definition)})
    except (InvalidContent, PydanticSerializationError, RecursionError) as error:
        _log.warning("the tools and options of %s cannot be recorded: %s", model.name, type(error).__name__)
        return None


def definition_hash(definition: RequestDefined) -> str:
    """Return the hash of a definition's content, that is, without its field `hash`."""
    # Not sorted: the order of tools and fields is part of the request.
    content = definition.model_copy(update={"hash": ""}).to_json_bytes()
    return sha256(content).hexdigest()[:_HASH_LENGTH]


class Definitions:
    """Keeps the last definition until the tools change."""

    def __init__(self) -> None:
        self._last: Offer | None = None

    def offer(self, model: Model, tools: Sequence[ToolSpec], max_tokens: int) -> Offer:
        """Return the tools of the next request, with the definition to record.

        `model` and `max_tokens` must be the same in each call.
        """
        specs = tuple(tools)
        # Most tools return the same spec object each time, so this mostly compares identities.
        if self._last is None or self._last.tools != specs:
            self._last = Offer(specs, define_request(model, specs, max_tokens))
        return self._last

    def leave_out(self, offer: Offer) -> None:
        """Remove a definition that is too large for the log. Later offers of the same tools have no definition."""
        self._last = offer._replace(definition=None)


# Rebuild the request of a turn from the log.

_KINDS = frozenset({RequestDefined.KIND, TurnStarted.KIND, MessageStarted.KIND})


class ResolveMedia(Protocol):
    """Loads the media that messages refer to, as `resolve_media` does."""

    def __call__(self, messages: Sequence[LlmMessage], store: MediaStore, /) -> Awaitable[Mapping[str, MediaRef]]: ...


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """The request of one model call, rebuilt from the log."""

    request: ModelRequest
    """the request; it has no tools if `definition` is None"""
    definition: RequestDefined | None
    """tools and options of the request; None if they are not in the log, for example in the log of an older version"""

    def form(self) -> ProviderRequest | None:
        """Return the body that the model's adapter sent; None if the log does not name the adapter."""
        definition = self.definition
        if definition is None or definition.api is None or definition.api not in PROVIDERS:
            return None
        options = read_options(definition.options or {})
        return form_request(PROVIDERS[definition.api], definition.model, self.request, options)


async def rebuild_request(session: Session, turn_id: TurnId) -> ModelRequest:
    """Return exactly the request that led to a turn's answer; without an answer, the turn's last request.

    Args:
        session: the session, or a fork of it.
        turn_id: the turn; in a fork, it may be a turn of the parent.

    Raises:
        RequestUnknown: no model was called in the turn, or the log does not have the request's tools.
        RequestDamaged: the content of the recorded tools and options does not match their hash.
        StreamError: as for `Session.read`.
        Unavailable: as for `Session.read` and `resolve_media`.
        SetupError: as for `resolve_media`.
    """
    asked = await read_request(session, turn_id)
    if asked.definition is None:
        raise RequestUnknown(session.id, turn_id, "its tools are not in the log")
    return asked.request


async def read_request(
    session: Session,
    turn_id: TurnId | str,
    *,
    resolve: ResolveMedia = resolve_media,
    build: Callable[[Session, int], Awaitable[Context]] | None = None,
) -> AskedRequest:
    """Return exactly the request that led to a turn's answer, with its definition; without an answer, the turn's last
    request. Without a definition, the request has no tools.

    Args:
        session: the session, or a fork of it.
        turn_id: the turn, or its text such as "main.3#0"; in a fork, it may be a turn of the parent.
        resolve: loads the stored media of the request. The default puts their bytes into the request.
        build: returns the session's context after a position; None means `build_context`. Its errors are raised too.

    Raises:
        InvalidArgument: `session` is no Session, or `turn_id` no turn id.
        DecodeError: the text is no turn id.
        RequestUnknown: no model was called in the turn.
        RequestDamaged: the content of the recorded tools and options does not match their hash.
        StreamError: as for `Session.read`.
        Unavailable: as for `Session.read` and `resolve_media`.
        SetupError: as for `resolve_media`.
    """
    turn_id = read_turn_id(session, turn_id)
    head = await session.head()
    answer = await _answer_of(session, turn_id, head.position)
    events = await _events(session, turn_id, head)
    call = events.call_of(answer)
    if call is None and (answer is None or not _has_read_position(answer)):
        raise RequestUnknown(session.id, turn_id, "the session has no such turn, or no model was called in it")
    shown, deferred = _shown(call, answer)
    context = await (build_context(session, at=shown) if build is None else build(session, shown))
    definition = events.definition_of(call)
    if definition is not None and definition_hash(definition) != definition.hash:
        raise RequestDamaged(session.id, turn_id, definition.hash)
    request = ModelRequest(
        visible_context(context, deferred),
        () if definition is None else tuple(map(_spec, definition.tools)),
        DEFAULT_MAX_TOKENS if definition is None else definition.max_tokens,
        await resolve(context.messages, session.media),
        None if not events.calls else f"{turn_id}@{events.calls[0].incarnation}",
    )
    return AskedRequest(request, definition)


@dataclass(frozen=True, slots=True)
class _Call:
    """A model call that began."""

    position: int
    event: MessageStarted
    offered: str | None
    """hash of the request's definition"""
    incarnation: str
    """the log's incarnation in which `event` was appended"""


@dataclass(frozen=True, slots=True)
class _Events:
    """The events of a turn in the extension lane."""

    definitions: dict[str, RequestDefined]
    calls: Sequence[_Call]

    def call_of(self, answer: Envelope | None) -> _Call | None:
        """Return the call that led to `answer`; if there is none, the last call."""
        name = answer.message.id if answer is not None and isinstance(answer.message, AssistantMessage) else None
        own = [each for each in self.calls if each.event.message_id == name]
        return next(iter(own or self.calls[-1:]), None)

    def definition_of(self, call: _Call | None) -> RequestDefined | None:
        """Return the definition of a call; None if the log has no definition, or it was trimmed."""
        return None if call is None or call.offered is None else self.definitions.get(call.offered)


async def _events(session: Session, turn_id: TurnId, head: SessionHead) -> _Events:
    try:
        return await _read_events(session, turn_id, START, head.position)
    except CursorTrimmed:  # the entries that were not trimmed may be enough
        return await _read_events(session, turn_id, head.cursor_at(head.trimmed), head.position)


async def _read_events(session: Session, turn_id: TurnId, after: Cursor, until: int) -> _Events:
    definitions: dict[str, RequestDefined] = {}
    calls: list[_Call] = []
    offered: str | None = None
    selected = session.read(lanes={Lane.EXTENSION}, kinds=_KINDS, after=after, until=until)
    async with aclosing(selected) as entries:
        async for envelope in entries:
            match _event(envelope):
                case RequestDefined(hash=hash) as definition:
                    definitions[hash] = definition
                case TurnStarted(turn_id=started, request=request) if started == turn_id:
                    offered = request
                case MessageStarted(turn_id=started) as event if started == turn_id:
                    calls.append(_Call(envelope.position, event, offered, envelope.incarnation))
                case _:
                    pass
    return _Events(definitions, calls)


async def _answer_of(session: Session, turn_id: TurnId, until: int) -> Envelope | None:
    selected = session.read(lanes={Lane.LLM}, kinds={"assistant"}, until=until)
    async with aclosing(selected) as entries:
        async for envelope in entries:
            if isinstance(envelope.message, AssistantMessage) and envelope.message.turn_id == turn_id:
                return envelope
    return None


def _has_read_position(answer: Envelope) -> bool:
    """Whether the answer records how far its model had read. An empty answer that ends a loop, which has no id, does
    not."""
    is_answer = isinstance(answer.message, AssistantMessage) and answer.message.id is not None
    return is_answer and read_position(answer) not in {None, answer.position}


def _shown(call: _Call | None, answer: Envelope | None) -> tuple[int, frozenset[int]]:
    """Return the position up to which the model was shown the session, and the positions before it that the model was
    not shown."""
    if call is not None and call.event.shown is not None:
        return call.event.shown, frozenset(call.event.held or ())
    if answer is not None and _has_read_position(answer):
        return read_position(answer) or 0, deferred_positions(answer)
    if call is None:
        raise AssertionError
    return call.position, frozenset(call.event.held or ())


def _spec(tool: ToolDefinition) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.input_schema)


def _event(envelope: Envelope) -> object:
    try:
        return parse_event(envelope.message) if isinstance(envelope.message, ExtensionMessage) else None
    except MessageError:
        return None
