"""What a model saw: the request of a session at a position, and the recorded request of a turn.

The bytes of stored media are replaced by a short text. So a look back in a session with pictures does not load
them each time.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from lanebus.bus import MediaStore, Session, media_of, run_in_thread
from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import Compaction, Frozen, Lane, LlmMessage, MediaRef, RequestDefined, TurnId
from lanebus.bus.wire import Envelope
from lanebus.handlers.agent import DEFAULT_MAX_TOKENS, read_request
from lanebus.handlers.context import Breather, Context, PastContexts
from lanebus.handlers.projections import Views, projection
from lanebus.handlers.providers import PROVIDERS, ProviderRequest, ToolSpec
from lanebus.handlers.serve.replies import RequestRefused, json_bytes


class RequestTooLarge(RequestRefused):
    """A request is larger than the server sends."""

    def __init__(self, most_bytes: int) -> None:
        fault = f"the request has more than {most_bytes} bytes: ask for an earlier position, or read the entries"
        super().__init__(413, "request_too_large", fault)


_LEVELS = len(("answer", "request", "messages", "message", "content"))
"""levels of an answer that are written piece by piece; a piece is about a block of a message"""

_ENCODED = re.compile(rb"c3RvcmVkIG1lZGlh[A-Za-z0-9+/]+={0,2}")
"""what `_encoded` returns: "stored media" in base64, and more"""


class _Placed(Frozen):
    position: int
    event: RequestDefined


@projection("lanebus.definitions", version=1, lanes={Lane.EXTENSION}, kinds={RequestDefined.KIND})
def _definitions(known: tuple[_Placed, ...], event: RequestDefined, envelope: Envelope) -> tuple[_Placed, ...]:
    return (*known, _Placed(position=envelope.position, event=event))


def check_provider(name: str | None) -> str | None:
    """Return the name of a provider's API; None if `name` is None.

    Raises:
        DecodeError: there is no such provider.
    """
    if name is not None and name not in PROVIDERS:
        raise DecodeError("provider", f"must be one of {', '.join(PROVIDERS)}")
    return name


async def context_json(
    views: Views,
    contexts: PastContexts,
    session: Session,
    *,
    position: int | None,
    provider: str | None,
    model: str | None,
    most_bytes: int,
) -> bytes:
    """Return the request that a model would get at a position, and the entries that its messages come from.

    Tools and options are those of the newest request before the position.

    Args:
        views: cached states of the projections.
        contexts: cached contexts.
        session: the session.
        position: last position that the model would see; None means the end.
        provider: name of an API; None means that of the session's requests, else "anthropic".
        model: the model; None means that of the session at the position.
        most_bytes: maximum size of the answer.

    Raises:
        RequestTooLarge: the answer is larger.
        ContextTooLarge: the context is larger than the cache.
        NoModel: the session names no model at the position, and no model is given.
        NoSuchPosition: the session does not have the position.
        BusError: the log could not be read.
    """
    until = (await session.head()).position if position is None else position
    context = await contexts.at(session, until)
    defined = await _definition(views, session, until)
    own = defined.api if defined is not None and defined.api in PROVIDERS else None
    name = provider or own or "anthropic"
    tools = (
        ()
        if defined is None
        else tuple(ToolSpec(each.name, each.description, each.input_schema) for each in defined.tools)
    )

    def formed() -> tuple[ProviderRequest, Mapping[str, MediaRef]]:
        media = _placeholders(context.messages)
        form = PROVIDERS[name].to_request(
            context,
            model=model or context.model or (None if defined is None else defined.model),
            max_tokens=DEFAULT_MAX_TOKENS if defined is None else defined.max_tokens,
            tools=tools,
            media=media,
        )
        return form, media

    form, media = await run_in_thread(formed)
    place: dict[str, object] = {
        "position": until,
        "provider": name,
        "model": model or context.model or (defined and defined.model),
        "system": _system(context),
        "messages": _parts(context),
    }
    return await _rendered(place, form, media, most_bytes)


async def turn_request_json(
    contexts: PastContexts, session: Session, turn: str, *, provider: str | None, most_bytes: int
) -> bytes:
    """Return the request that led to a turn's answer.

    With `isExact`, it is the body that the model's adapter sent. Otherwise the log does not name the adapter, or
    another `provider` was wanted, and the body is what that provider would have got.

    Args:
        contexts: cached contexts.
        session: the session.
        turn: id of the turn, such as `support-42.main.3#0` or `main.3#0`.
        provider: name of an API; None means that of the turn.
        most_bytes: maximum size of the answer.

    Raises:
        RequestTooLarge: the answer is larger.
        ContextTooLarge: the context is larger than the cache.
        RequestUnknown: no model was called in the turn.
        RequestDamaged: the recorded tools and options do not match their hash.
        DecodeError: `turn` is no turn id.
        BusError: the log could not be read.
    """
    turn_id = TurnId.from_text(turn, session.id)
    asked = await read_request(session, turn_id, resolve=_resolve_placeholders, build=contexts.at)
    definition, request = asked.definition, asked.request
    own = None if definition is None else definition.api
    model = request.context.model if definition is None else definition.model

    def formed() -> tuple[ProviderRequest, str | None, bool]:
        form = asked.form() if provider in {None, own} else None
        if form is not None:
            return form, own, True
        name = provider or "anthropic"
        form = PROVIDERS[name].to_request(
            request.context, model=model, max_tokens=request.max_tokens, tools=request.tools, media=request.media
        )
        return form, name, False

    form, name, is_exact = await run_in_thread(formed)
    place: dict[str, object] = {
        "turnId": str(turn_id),
        "isExact": is_exact,
        "hasDefinition": definition is not None,
        "position": request.context.position,
        "provider": name,
        "model": model,
        "system": _system(request.context),
        "messages": _parts(request.context),
    }
    return await _rendered(place, form, request.media, most_bytes)


async def _definition(views: Views, session: Session, until: int) -> RequestDefined | None:
    """Return the newest definition of requests up to a position."""
    known = (await views.look(session, _definitions)).state
    return next((each.event for each in reversed(known) if each.position <= until), None)


def _system(context: Context) -> list[Mapping[str, object]]:
    return [_part(index, each) for index, each in enumerate(context.system)]


def _parts(context: Context) -> list[Mapping[str, object]]:
    """Return the messages of a context, each with the position of its entry; null if it was made of several."""
    positions = {id(entry.message): entry.position for entry in context.path}
    summary = context.path[0] if context.path and isinstance(context.path[0].message, Compaction) else None
    made_up = context.pairing.placeholders
    parts = [
        _part(index, message, positions.get(id(message)), is_made_up=index in made_up)
        for index, message in enumerate(context.messages)
    ]
    if summary is not None and parts and parts[0]["position"] is None:
        parts[0] = {**parts[0], "position": summary.position}
    return parts


def _part(
    index: int, message: LlmMessage, position: int | None = None, *, is_made_up: bool = False
) -> Mapping[str, object]:
    return {"index": index, "role": getattr(message, "role", ""), "position": position, "isMadeUp": is_made_up}


async def _resolve_placeholders(messages: Sequence[LlmMessage], store: MediaStore) -> Mapping[str, MediaRef]:
    del store
    return await run_in_thread(lambda: _placeholders(messages))


def _placeholders(messages: Iterable[LlmMessage]) -> dict[str, MediaRef]:
    """Return inline media that stand for stored media: their bytes are a text that names the stored ones."""
    return {
        address: MediaRef(kind="data", data=_encoded(address), mime_type=media.mime_type)
        for message in messages
        for media in media_of(message)
        if (address := media.address) is not None
    }


def _text_of(address: str) -> str:
    return f"stored media {address}"


def _encoded(address: str) -> str:
    return base64.b64encode(_text_of(address).encode()).decode("ascii")


async def _rendered(
    place: Mapping[str, object], form: ProviderRequest, media: Mapping[str, MediaRef], most_bytes: int
) -> bytes:
    """Return the answer as JSON. It is written in pieces, so that other tasks run and a large one is refused early."""
    texts = {_encoded(address).encode(): json_bytes(_text_of(address))[1:-1] for address in media}
    data, breather = bytearray(), Breather()
    for piece in _pieces({**place, "warnings": list(form.warnings), "request": form.body}, _LEVELS):
        data += _ENCODED.sub(lambda found: texts.get(found[0], found[0]), piece)
        if len(data) > most_bytes:
            raise RequestTooLarge(most_bytes)
        if breather.is_due:
            await breather.pause()
    return bytes(data)


def _pieces(value: object, levels: int) -> Iterator[bytes]:
    """Yield the JSON of a value in pieces: each item of its upper levels is one."""
    if levels and value and isinstance(value, Mapping):
        for index, (key, item) in enumerate(cast("Mapping[str, object]", value).items()):
            yield (b"," if index else b"{") + json_bytes(key) + b":"
            yield from _pieces(item, levels - 1)
        yield b"}"
    elif levels and value and isinstance(value, list | tuple):
        for index, item in enumerate(cast("Sequence[object]", value)):
            yield b"," if index else b"["
            yield from _pieces(item, levels - 1)
        yield b"]"
    else:
        yield json_bytes(value)
