"""The turns and the timeline of a session, for lists and waterfalls, and what the model saw."""

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from lanebus.bus import Session
from lanebus.bus.messages import Lane, Usage
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
    summary,
    total_usage,
)
from lanebus.handlers.providers import PROVIDERS
from lanebus.handlers.serve.api.answers import TokensAnswer
from lanebus.handlers.serve.api.context import ApiContext
from lanebus.handlers.serve.api.endpoint import POSITION, ApiEndpoint, count_parameter, text_parameter
from lanebus.handlers.serve.api.model_requests import context_json, turn_request_json
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS

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
