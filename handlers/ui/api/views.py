"""Projections of a session: the agent's status, a tool call and the usage."""

from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.ui.api.answers import CallAnswer, StatusAnswer, UsageAnswer
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.parameter import Parameter
from lanebus.handlers.ui.call import call_view
from lanebus.handlers.ui.views import state_of, status_view, usage_view

__all__ = ("ENDPOINTS",)

_CALL_ID = Parameter(name="id", description="id of the tool call", parse=str, default="", is_required=True)


async def status(api: ApiContext, request: Request) -> Response:
    """Return what the agent does, which calls wait for a person, and which commands have no answer yet.

    `state` is that of the list of sessions. `failure` tells why the session is dead or tried again, to a token that may
    read its dead letters. A call with a `decision` waits for a worker, and no longer for a person.
    """
    session = api.session(request)
    await api.gate.require(request, "read.status", session=session.id, lanes=(Lane.EXTENSION,))

    async def looked() -> object:
        head = await session.head()
        state, work = await state_of(api.views, api.bus, head)
        letters = {} if work is None else await api.gate.visible_lanes(request, "read.dead_letters", [head])
        is_told = len(letters.get(session.id, ())) == len(Lane)
        return await status_view(api.views, session, state, work if is_told else None)

    return api.view(looked)


async def call(api: ApiContext, request: Request) -> Response:
    """Return one tool call of the newest loop: the call whose id is the query parameter `id`. 404 if there is none.

    The field `text` has all arguments, and the field `callHash` their hash. An approval that repeats this
    `callHash` is refused if the call's arguments have another hash.
    """
    session, call_id = api.session(request), _CALL_ID.of(request)
    await api.gate.require(request, "read.call", session=session.id, lanes=(Lane.LLM,))
    return api.view(lambda: call_view(api.views, session, call_id))


async def usage(api: ApiContext, request: Request) -> Response:
    """Return the tokens and the cost of the session."""
    session = api.session(request)
    await api.gate.require(request, "read.usage", session=session.id, lanes=Lane)
    return api.view(lambda: usage_view(api.views, session))


_SESSION = "/api/sessions/{session}"
ENDPOINTS = (
    ApiEndpoint(path=f"{_SESSION}/status", handler=status, answer=StatusAnswer),
    ApiEndpoint(path=f"{_SESSION}/call", handler=call, answer=CallAnswer, parameters=(_CALL_ID,)),
    ApiEndpoint(path=f"{_SESSION}/usage", handler=usage, answer=UsageAnswer),
)
