"""The turns and the timeline of a session, for lists and waterfalls, and what the model saw.

The bytes of stored media are replaced by a short text. So a look back in a session with pictures does not load
them each time.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, cast

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from lanebus.bus import MediaStore, Session, media_of, run_in_thread
from lanebus.bus.messages import Compaction, Frozen, Lane, LlmMessage, MediaRef, RequestDefined, TurnId, Usage
from lanebus.bus.wire import Envelope
from lanebus.handlers.agent import DEFAULT_MAX_TOKENS, read_request
from lanebus.handlers.context import Breather, Context, PastContexts
from lanebus.handlers.projections import (
    TIMELINE,
    CallMark,
    CompactionMark,
    Loop,
    LoopMark,
    OpenDecision,
    Projected,
    TimelineState,
    ToolMark,
    ToolRun,
    Turn,
    TurnMark,
    Views,
    WaitMark,
    projection,
    summary,
    total_usage,
)
from lanebus.handlers.providers import PROVIDERS, ProviderRequest, ToolSpec
from lanebus.handlers.serve.api.bodies import TokensAnswer
from lanebus.handlers.serve.api.endpoint import POSITION, ApiContext, ApiEndpoint, count_parameter, text_parameter
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS
from lanebus.handlers.serve.replies import RequestRefused, json_bytes

# The JSON of turns, timelines and requests, as types: the OpenAPI document has their schemas.


class ModelCallAnswer(TypedDict):
    """A call of the model."""

    position: int | None
    started: float | None
    """null if nobody recorded it, as in imported history"""
    ended: float | None
    message: int | None
    """position of the answer"""
    messageId: str | None
    stopReason: str | None


class WaitAnswer(TypedDict):
    """A wait of a tool call for a person."""

    position: int | None
    why: Literal["approval", "unknown"]
    since: float
    until: float | None
    decision: Literal["approve", "deny"] | None
    command: int | None
    """position of the decision's command"""
    by: str | None


class ToolAnswer(TypedDict):
    """A tool call of a turn."""

    id: str
    name: str
    isError: bool | None
    outcome: str | None
    result: int | None
    """position of the result"""
    started: float | None
    ended: float | None
    startedPosition: int | None
    endedPosition: int | None
    attempts: int
    waits: list[WaitAnswer]
    childLoop: str | None
    childSession: str | None
    childAgent: str | None


class TurnAnswer(TypedDict):
    """One turn: calls of the model with its tools."""

    index: int
    turnId: str | None
    loopId: str | None
    turnIndex: int | None
    trigger: str | None
    status: Literal["running", "completed", "failed", "aborted"]
    stopReason: str | None
    isRetry: bool
    provider: str | None
    model: str | None
    prompts: list[int]
    """positions of the user's messages"""
    message: int | None
    """position of the model's answer"""
    calls: list[ModelCallAnswer]
    tools: list[ToolAnswer]
    usage: TokensAnswer | None
    started: float
    ended: float | None
    startedPosition: int | None
    endedPosition: int | None
    lastPosition: int
    entries: int


class TurnsAnswer(TypedDict):
    """A window of the turns, oldest first."""

    count: int
    """number of all turns"""
    countedFrom: int | None
    """first counted position, if earlier entries were trimmed before they were counted"""
    turns: list[TurnAnswer]


class LoopAnswer(TypedDict):
    """A loop of a timeline."""

    loopId: str
    agent: str | None
    parent: str | None
    continuation: str | None
    status: str
    stopReason: str | None
    isSelected: bool | None
    usage: TokensAnswer | None
    started: float | None
    ended: float | None
    startedPosition: int | None
    endedPosition: int | None


class CompactionAnswer(TypedDict):
    """A compaction of a timeline."""

    loopId: str | None
    status: str
    tokensBefore: int | None
    tokensAfter: int | None
    started: float | None
    ended: float | None
    startedPosition: int | None
    endedPosition: int | None


class TimelineAnswer(TurnsAnswer):
    """A window of the turns with its loops and compactions, and the bounds of the session."""

    position: int
    first: int
    """index of the first turn of the window"""
    started: float | None
    ended: float | None
    usage: TokensAnswer
    loops: list[LoopAnswer]
    compactions: list[CompactionAnswer]


class RequestPart(TypedDict):
    """A message of a request."""

    index: int
    role: str
    position: int | None
    """position of its entry; null if it was made of several"""
    isMadeUp: bool
    """whether the log has no result of this tool call, and the model gets a placeholder"""


class ContextAnswer(TypedDict):
    """A request to a model, and where its messages come from."""

    position: int
    provider: str
    model: str | None
    system: list[RequestPart]
    messages: list[RequestPart]
    warnings: list[str]
    request: JsonValue
    """body of the request in the form of the provider"""


class TurnRequestAnswer(ContextAnswer):
    """The recorded request of a turn."""

    turnId: str
    isExact: bool
    """whether `request` is the body that was sent"""
    hasDefinition: bool


# The endpoints of turns, the timeline and requests.

_FIRST = count_parameter("first", "index of the first turn, from 0; without it, the newest turns are returned")
_LIMIT = count_parameter("limit", "maximum number of turns; one over 200 counts as 200", least=1)
_PROVIDER = text_parameter("provider", "the API of the request; without it, that of the session's model", [*PROVIDERS])
_MODEL = text_parameter("model", "the model of the request; without it, that of the session at the position")


async def turns(api: ApiContext, request: Request) -> Response:
    """Return `{"count": <all turns>, "countedFrom": …, "turns": […]}`: the newest turns, or those from `?first=` on.

    Each turn has its positions, its model calls, and its tool calls with their waits for a person.
    """
    session, first, limit = api.session(request), _FIRST.of(request), _limit(api, request)
    await api.gate.require(request, "read.turns", session=session.id, lanes=Lane)
    return api.view(lambda: turns_view(api.views, session, limit, first=first))


async def timeline(api: ApiContext, request: Request) -> Response:
    """Return the turns of a window as a waterfall: with their loops and compactions, and the bounds of the session.

    The window is that of `GET …/turns`. Times are seconds UTC by the server's clock; imported turns have those of their
    authors. The log does not say when the first piece of an answer arrived.
    """
    session, first, limit = api.session(request), _FIRST.of(request), _limit(api, request)
    await api.gate.require(request, "read.timeline", session=session.id, lanes=Lane)
    return api.view(lambda: timeline_view(api.views, session, limit, first=first))


async def turn_request(api: ApiContext, request: Request) -> Response:
    """Return the recorded request of a turn, such as `main.3%230`. 400 if no model was called in it.

    With `isExact`, `request` is the body that the model's adapter sent, with a text in place of stored media.
    """
    session, provider, turn = api.session(request), _PROVIDER.of(request), str(request.path_params["turn"])
    await api.gate.require(request, "read.request", session=session.id, lanes=Lane)
    most = api.bounds.request_bytes
    return api.view(lambda: turn_request_json(api.contexts, session, turn, provider=provider, most_bytes=most))


async def context(api: ApiContext, request: Request) -> Response:
    """Return the request that a model would get at `?position=`, and the positions that its messages come from.

    Tools and options are those of the newest request before the position. 413 if it is larger than 8 MiB.
    """
    session, position = api.session(request), POSITION.of(request)
    provider, model = _PROVIDER.of(request), _MODEL.of(request)
    await api.gate.require(request, "read.context", session=session.id, lanes=Lane)
    return api.view(
        lambda: context_json(
            api.views,
            api.contexts,
            session,
            position=position,
            provider=provider,
            model=model,
            most_bytes=api.bounds.request_bytes,
        )
    )


def _limit(api: ApiContext, request: Request) -> int:
    return min(_LIMIT.of(request) or api.bounds.turns, api.bounds.turns)


_SESSION = "/api/sessions/{session}"
ENDPOINTS = (
    ApiEndpoint(path=f"{_SESSION}/turns", handler=turns, parameters=(_FIRST, _LIMIT), answer=TurnsAnswer),
    ApiEndpoint(
        path=f"{_SESSION}/turns/{{turn}}/request",
        handler=turn_request,
        parameters=(_PROVIDER,),
        answer=TurnRequestAnswer,
        errors=(413,),
    ),
    ApiEndpoint(path=f"{_SESSION}/timeline", handler=timeline, parameters=(_FIRST, _LIMIT), answer=TimelineAnswer),
    ApiEndpoint(
        path=f"{_SESSION}/context",
        handler=context,
        parameters=(POSITION, _PROVIDER, _MODEL),
        answer=ContextAnswer,
        errors=(413,),
    ),
)


# The turns and the timeline of a session as JSON, for lists and waterfalls.

_NO_MARK = ToolMark(id="")


async def turns_view(
    views: Views, session: Session, limit: int = DEFAULT_UI_BOUNDS.turns, *, first: int | None = None
) -> Mapping[str, object]:
    """Return `{"count": <all turns>, "countedFrom": …, "turns": [<oldest first>]}`.

    `countedFrom` is the first counted position if earlier entries were trimmed before they were counted, else null.

    Args:
        views: cached states of the projections.
        session: the session.
        limit: maximum number of turns to return.
        first: index of the first turn to return, from 0; None returns the newest turns.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, TIMELINE)
    return {
        "count": len(now.state.marks),
        "countedFrom": now.counted_from,
        "turns": [_turn_json(now.state, index) for index in _window(now, first, limit)],
    }


async def timeline_view(
    views: Views, session: Session, limit: int = DEFAULT_UI_BOUNDS.turns, *, first: int | None = None
) -> Mapping[str, object]:
    """Return the turns of a window, with the loops and compactions among them.

    `started` and `ended` are those of the whole session, and `usage` is that of all its turns.

    Args:
        views: cached states of the projections.
        session: the session.
        limit: maximum number of turns to return.
        first: index of the first turn to return, from 0; None returns the newest turns.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, TIMELINE)
    state, window = now.state, _window(now, first, limit)
    shown = [_turn_json(state, index) for index in window]
    names = {turn.loop_id for turn in (state.turns.turn_chunks[index] for index in window)}
    begin = state.marks[window[0]].position if window else 0
    end = state.marks[window[-1] + 1].position if window and window[-1] + 1 < len(state.marks) else None
    is_newest = end is None
    return {
        "position": now.position,
        "count": len(state.marks),
        "countedFrom": now.counted_from,
        "first": window.start,
        "started": _began(state),
        "ended": None if state.turns.running else _ended(state),
        "usage": {**summary(total_usage(state.turns))},
        "loops": [
            _loop_json(loop, mark)
            for loop, mark in zip(state.turns.loop_chunks, state.loops, strict=True)
            if loop.loop_id in names or (is_newest and loop.ended is None)
        ],
        "turns": shown,
        "compactions": [
            _compaction_json(each)
            for each in state.compactions
            if each.position >= begin and (end is None or each.position < end)
        ],
    }


def _window(now: Projected[TimelineState], first: int | None, limit: int) -> range:
    count = len(now.state.marks)
    start = max(0, count - limit) if first is None else min(first, count)
    return range(start, min(start + limit, count))


def _began(state: TimelineState) -> float | None:
    return None if not state.marks else _start(state.turns.turn_chunks[0], state.marks[0])


def _ended(state: TimelineState) -> float | None:
    return None if not state.marks else state.turns.turn_chunks[len(state.marks) - 1].ended


def _start(turn: Turn, mark: TurnMark) -> float:
    return min([turn.started, *(call.started for call in mark.calls if call.started is not None)])


def _turn_json(state: TimelineState, index: int) -> Mapping[str, object]:
    turn, mark = state.turns.turn_chunks[index], state.marks[index]
    before = state.turns.turn_chunks[index - 1] if index else None
    is_retry = before is not None and before.status == "failed" and before.loop_id == turn.loop_id is not None
    turn_id, tools = turn.turn_id, {tool.id: tool for tool in mark.tools}
    pending = dict[str, OpenDecision]()
    for decision in state.decisions.values():
        pending.setdefault(decision.tool_call_id, decision)  # a worker applies the first
    return {
        "index": index,
        "turnId": None if turn_id is None else str(turn_id),
        "loopId": None if turn_id is None else turn_id.loop_id,
        "turnIndex": None if turn_id is None else turn_id.turn_index,
        "trigger": turn.trigger,
        "status": turn.status,
        "stopReason": turn.stop_reason,
        "isRetry": is_retry,
        "provider": turn.provider,
        "model": turn.model,
        "prompts": list(turn.prompts),
        "message": turn.message,
        "calls": [_call_json(call) for call in mark.calls],
        "tools": [_tool_json(run, tools.get(run.id, _NO_MARK), pending.get(run.id)) for run in turn.tools],
        "usage": _usage_json(turn.usage),
        "started": _start(turn, mark),
        "ended": turn.ended,
        "startedPosition": mark.position,
        "endedPosition": mark.ended_at,
        "lastPosition": max([mark.last, *_positions(turn)]),
        "entries": mark.entries,
    }


def _positions(turn: Turn) -> Iterator[int]:
    yield from turn.results
    if turn.message is not None:
        yield turn.message


def _usage_json(usage: Usage | None) -> Mapping[str, object] | None:
    return None if usage is None else {**summary(usage)}


def _call_json(call: CallMark) -> Mapping[str, object]:
    return {
        "position": call.position,
        "started": call.started,
        "ended": call.ended,
        "message": call.answer,
        "messageId": call.message_id,
        "stopReason": call.stop_reason,
    }


def _tool_json(run: ToolRun, mark: ToolMark, pending: OpenDecision | None) -> Mapping[str, object]:
    return {
        "id": run.id,
        "name": run.name,
        "isError": run.is_error,
        "outcome": run.outcome,
        "result": run.result,
        "started": run.started,
        "ended": run.ended,
        "startedPosition": mark.position,
        "endedPosition": mark.ended_at,
        "attempts": run.attempts,
        "waits": [_wait_json(wait, pending) for wait in mark.waits],
        "childLoop": run.child_loop,
        "childSession": mark.child,
        "childAgent": mark.child_agent,
    }


def _wait_json(wait: WaitMark, pending: OpenDecision | None) -> Mapping[str, object]:
    """Return a wait. A decision that no worker has applied has no `command` yet."""
    decided = wait if pending is None or wait.until is not None else pending
    return {
        "position": wait.position,
        "why": wait.why,
        "since": wait.since,
        "until": wait.until,
        "decision": decided.decision,
        "command": wait.command,
        "by": decided.by,
    }


def _loop_json(loop: Loop, mark: LoopMark) -> Mapping[str, object]:
    return {
        "loopId": loop.loop_id,
        "agent": loop.agent,
        "parent": loop.parent,
        "continuation": loop.continuation,
        "status": loop.status,
        "stopReason": loop.stop_reason,
        "isSelected": loop.is_selected,
        "usage": _usage_json(loop.said_usage),
        "started": loop.started,
        "ended": loop.ended,
        "startedPosition": mark.position,
        "endedPosition": mark.ended_at,
    }


def _compaction_json(mark: CompactionMark) -> Mapping[str, object]:
    return {
        "loopId": mark.loop_id,
        "status": mark.status,
        "tokensBefore": mark.tokens_before,
        "tokensAfter": mark.tokens_after,
        "started": mark.started,
        "ended": mark.ended,
        "startedPosition": mark.position,
        "endedPosition": mark.ended_at,
    }


# What a model saw: the request of a session at a position, and the recorded request of a turn.


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
