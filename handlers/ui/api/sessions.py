"""What a token allows, and the sessions."""

from collections.abc import Container

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus.errors import SessionErased
from lanebus.bus.log.head import SessionHead
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.auth import identified
from lanebus.handlers.ui.replies import answer

__all__ = ("ENDPOINTS",)


async def access(api: ApiContext, request: Request) -> Response:
    """Return `{"name": …, "canWrite": …, "actions": […], "lanes": […], "sessions": […], "expires": …}`: what the
    client's token allows. `expires` is a Unix time in seconds, or null.
    """
    del api
    principal = identified(request.scope).principal
    return answer(
        {
            "name": principal.name,
            "canWrite": any(each.partition(".")[0] != "read" for each in principal.actions),
            "actions": list(principal.actions),
            "lanes": sorted(lane.value for lane in principal.lanes),
            "sessions": list(principal.sessions),
            "expires": principal.expires,
        }
    )


async def sessions(api: ApiContext, request: Request) -> Response:
    """Return `{"count": <all>, "sessions": [head, …]}`, most recently active first, at most `UiBounds.sessions`."""
    await api.gate.require(request, "read.sessions")

    async def listed() -> object:
        heads, served = await api.bus.sessions(), await api.bus.live_workers()
        heads = [
            head
            for head in heads
            if await api.gate.may(request, "read.sessions", session=head.session, agent=head.agent)
        ]
        shown = heads[: api.bounds.sessions]
        return {"count": len(heads), "sessions": [_head_json(head, served) for head in shown]}

    return api.paced(listed)


async def head(api: ApiContext, request: Request) -> Response:
    """Return the head of a session. The position is 0 if the session has no entries. 409 if it was erased."""
    session = api.session(request)
    await api.gate.require(request, "read.head", session=session.id)
    found = await session.head()
    if found.is_erased:
        raise SessionErased(found.session)
    return answer(_head_json(found, await api.bus.live_workers()))


def _head_json(head: SessionHead, served: Container[str]) -> JsonValue:
    origin = head.origin
    return {
        "id": head.session,
        "agent": head.agent,
        "hasWorker": head.agent in served,
        "position": head.position,
        "created": head.created,
        "updated": head.updated,
        "sizeBytes": head.size_bytes,
        "trimmed": head.trimmed,
        "firstKept": head.first_kept,
        "archived": head.archived,
        "isClosed": head.is_closed,
        "origin": {"session": origin.session, "position": origin.position} if origin else None,
    }


ENDPOINTS = (
    ApiEndpoint(path="/api/access", handler=access),
    ApiEndpoint(path="/api/sessions", handler=sessions),
    ApiEndpoint(path="/api/sessions/{session}", handler=head),
)
