"""What a model was asked in a turn, from the log alone."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from lanebus.bus.errors import CursorTrimmed, MessageError
from lanebus.bus.log.head import SessionHead
from lanebus.bus.media.resolve import resolve_media
from lanebus.bus.messages.events import MessageStarted, RequestDefined, ToolDefinition, TurnStarted, parse_event
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import AssistantMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import START, Cursor, Envelope
from lanebus.handlers.agent.errors import RequestUnknown
from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS, ModelRequest
from lanebus.handlers.agent.models.request_form import form_request, read_options
from lanebus.handlers.agent.turn.visible_context import visible_context
from lanebus.handlers.context.build import build_context
from lanebus.handlers.context.read_marks import deferred_positions, read_position
from lanebus.handlers.providers.common.request import ProviderRequest
from lanebus.handlers.providers.common.tools import ToolSpec
from lanebus.handlers.providers.registry import PROVIDERS

__all__ = ("AskedRequest", "read_request", "rebuild_request")

_KINDS = frozenset({RequestDefined.KIND, TurnStarted.KIND, MessageStarted.KIND})


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """One call of a model, as the log tells it."""

    request: ModelRequest
    """without tools if there is no definition"""
    definition: RequestDefined | None
    """what it had beside the context; None if the log does not tell, as one that an older version wrote"""

    def form(self) -> ProviderRequest | None:
        """The body that the model's own adapter made of it; None if it is not known which one that was."""
        definition = self.definition
        if definition is None or definition.api is None or definition.api not in PROVIDERS:
            return None
        options = read_options(definition.options or {})
        return form_request(PROVIDERS[definition.api], definition.model, self.request, options)


async def rebuild_request(session: Session, turn_id: TurnId) -> ModelRequest:
    """The request that a turn's answer came of, the very one that the model was handed; where there is no answer, the
    last one of the turn. A turn of a parent is asked for in the fork as in the parent.

    Raises:
        RequestUnknown: no model was asked in the turn, or the log does not tell with which tools.
        StreamError, Unavailable, MediaUnavailable: as reading the session and its media does.
    """
    asked = await read_request(session, turn_id)
    if asked.definition is None:
        raise RequestUnknown(session.id, turn_id, "the log does not tell which tools it had")
    return asked.request


async def read_request(session: Session, turn_id: TurnId) -> AskedRequest:
    """The same, with what it is made of; also where the log does not tell the tools.

    Raises:
        RequestUnknown: no model was asked in the turn.
        StreamError, Unavailable, MediaUnavailable: as reading the session and its media does.
    """
    head = await session.head()
    answer = await _answer_of(session, turn_id, head.position)
    told = await _told(session, turn_id, head)
    begun = told.begun_of(answer)
    if begun is None and (answer is None or not _is_marked(answer)):
        raise RequestUnknown(session.id, turn_id, "no model was asked in it")
    shown, held = _shown(begun, answer)
    context = await build_context(session, at=shown)
    definition = told.definition_of(begun)
    request = ModelRequest(
        visible_context(context, held),
        () if definition is None else tuple(map(_spec, definition.tools)),
        DEFAULT_MAX_TOKENS if definition is None else definition.max_tokens,
        await resolve_media(context.messages, session.media),
        None if not told.begun else f"{turn_id}@{told.begun[0].incarnation}",
    )
    return AskedRequest(request, definition)


@dataclass(frozen=True, slots=True)
class _Begun:
    """The model was asked."""

    position: int
    event: MessageStarted
    offered: str | None
    """hash of what it was offered"""
    incarnation: str
    """that wrote it"""


@dataclass(frozen=True, slots=True)
class _Told:
    """What the extension lane tells of a turn."""

    definitions: dict[str, RequestDefined]
    begun: Sequence[_Begun]

    def begun_of(self, answer: Envelope | None) -> _Begun | None:
        """The call that the answer came of, the last one if there is none."""
        name = answer.message.id if answer is not None and isinstance(answer.message, AssistantMessage) else None
        own = [each for each in self.begun if each.event.message_id == name]
        return next(iter(own or self.begun[-1:]), None)

    def definition_of(self, begun: _Begun | None) -> RequestDefined | None:
        """None if the log does not tell, or not any more."""
        return None if begun is None or begun.offered is None else self.definitions.get(begun.offered)


async def _told(session: Session, turn_id: TurnId, head: SessionHead) -> _Told:
    try:
        return await _read_told(session, turn_id, START, head.position)
    except CursorTrimmed:  # what is left may be enough
        return await _read_told(session, turn_id, head.cursor_at(head.trimmed), head.position)


async def _read_told(session: Session, turn_id: TurnId, after: Cursor, until: int) -> _Told:
    definitions: dict[str, RequestDefined] = {}
    begun: list[_Begun] = []
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
                    begun.append(_Begun(envelope.position, event, offered, envelope.incarnation))
                case _:
                    pass
    return _Told(definitions, begun)


async def _answer_of(session: Session, turn_id: TurnId, until: int) -> Envelope | None:
    selected = session.read(lanes={Lane.LLM}, kinds={"assistant"}, until=until)
    async with aclosing(selected) as entries:
        async for envelope in entries:
            if isinstance(envelope.message, AssistantMessage) and envelope.message.turn_id == turn_id:
                return envelope
    return None


def _is_marked(answer: Envelope) -> bool:
    """It is an agent's own answer, which tells how far its model had read. The word that ends a loop has no id."""
    is_answer = isinstance(answer.message, AssistantMessage) and answer.message.id is not None
    return is_answer and read_position(answer) not in {None, answer.position}


def _shown(begun: _Begun | None, answer: Envelope | None) -> tuple[int, frozenset[int]]:
    """Up to where the model was shown the session, but for what."""
    if begun is not None and begun.event.shown is not None:
        return begun.event.shown, frozenset(begun.event.held or ())
    if answer is not None and _is_marked(answer):
        return read_position(answer) or 0, deferred_positions(answer)
    if begun is None:
        raise AssertionError
    return begun.position, frozenset(begun.event.held or ())


def _spec(tool: ToolDefinition) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.input_schema)


def _event(envelope: Envelope) -> object:
    try:
        return parse_event(envelope.message) if isinstance(envelope.message, ExtensionMessage) else None
    except MessageError:
        return None
