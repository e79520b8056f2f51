"""The turns and the timeline of a session, and what the model saw."""

from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.providers.registry import PROVIDERS
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.parameters import POSITION, count_parameter, text_parameter
from lanebus.handlers.ui.api.turn_answers import ContextAnswer, TimelineAnswer, TurnRequestAnswer, TurnsAnswer
from lanebus.handlers.ui.requests import context_json, turn_request_json
from lanebus.handlers.ui.turn_json import timeline_view, turns_view

__all__ = ("ENDPOINTS",)

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
