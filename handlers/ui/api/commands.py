"""Endpoints that write: messages, commands and handovers."""

from contextlib import suppress
from functools import partial

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus.errors import StreamError
from lanebus.bus.messages.control import Approve, Deny
from lanebus.bus.messages.events import SessionAssigned
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.agent.commands import decide_call, follow_up, send
from lanebus.handlers.agent.metadata_keys import BY
from lanebus.handlers.projections.agent_status import STATUS, Status
from lanebus.handlers.projections.projection import Projected
from lanebus.handlers.ui.api.answers import Published
from lanebus.handlers.ui.api.bodies import CommandBody, HandoverBody, MessageBody
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint, Handler
from lanebus.handlers.ui.auth import identified, owner_of, require_valid
from lanebus.handlers.ui.posted import read_command, read_handover, read_posted_message
from lanebus.handlers.ui.posted_content import with_media
from lanebus.handlers.ui.repeats import check_repeat
from lanebus.handlers.ui.replies import answer

__all__ = ("ENDPOINTS",)


async def post_message(api: ApiContext, request: Request) -> Response:
    """Publish `{"text": …, "key"?: …, "followUp"?: …, "agent"?: …, "expected"?: …}` as a user message, and wake a
    worker.

    In place of `text`, `content` has blocks: texts, and images, audio, videos and documents. Their media are a complete
    upload of yours to this session, at most 512 KiB inline, or at an address that the server allows.

    201 with positions. A new session belongs to `agent`; 409 if an existing session belongs to another agent. With
    `agent`, the answer has `hasWorker`: if it is false, the message waits until a worker serves the agent. `expected`
    is the cursor of the session's end as the client saw it: 409 if the session has moved on, or has lost that entry.

    A follow-up waits until the running loop has ended. A client that got no response repeats the request with the
    same key. If the message was already published, it is not published again, and the status is 200. 409 if the key
    belongs to a message of other content.
    """
    session = api.session(request)
    posted = read_posted_message(await api.body(request), api.content)
    principal = await api.gate.require(request, "send", session=session.id, agent=posted.agent, lanes=(Lane.LLM,))
    decided = api.gate.decided_agent(request, session.id)
    async with api.budget.share(_nothing, owner=owner_of(request.scope)) as share:

        async def hold(size: int) -> None:  # less than the principal's part: the request's body has some of it
            await share.take(min(size, api.bounds.principal_bytes // 2), seconds=api.bounds.wait_seconds)

        async def store(digest: str) -> MediaRef:
            return await api.uploads.store(principal.name, session.id, digest, hold)

        message = UserMessage(content=await with_media(posted.content, store), metadata={BY: principal.name})
    api.gate.count_appended(request, message)
    if posted.is_follow_up:
        receipt = await follow_up(session, message, key=posted.key, agent=decided)
    else:
        receipt = await session.publish(
            message, key=posted.key, wake=True, agent=posted.agent or decided, expected=posted.expected
        )
    await check_repeat(session, receipt, posted.key, message)
    return _published(receipt, **await _service_of(api, session, receipt, posted.agent))


async def post_command(api: ApiContext, request: Request) -> Response:
    """Publish a command, `{"command": "abort", "key"?: …, …}`. 201 with positions. [Commands](#commands)
    lists the commands and their fields.

    The last of the positions is the command's. A worker answers with a `ControlAnswered` event that names this
    position. If a request is repeated with the same key, nothing is published, and the status is 200. 404 if the
    session has no entries, 409 if the key belongs to a command of other content, or if somebody has approved or denied
    the call before (`call_decided`).
    """
    session, scope = api.session(request), request.scope
    by = identified(scope).principal.name
    posted = read_command(await api.body(request), session.id, by)
    lanes = (Lane.EXTENSION,) if posted.text is None else (Lane.LLM, Lane.EXTENSION)
    await api.gate.require(request, f"command.{posted.name}", session=session.id, lanes=lanes)
    await api.require_entries(session)
    said = None if posted.text is None else _said(posted.text, by)
    appended = (*(() if said is None else (said,)), posted.control.as_extension())
    api.gate.count_appended(request, *appended)
    decided = api.gate.decided_agent(request, session.id)
    control, key = posted.control, posted.key
    if isinstance(control, Approve | Deny):

        async def status() -> Projected[Status]:
            now = await api.folded(owner_of(scope), partial(api.views.look, session, STATUS))
            require_valid(scope)  # the turn may have come after the token's end
            return now

        receipt = await decide_call(session, control, key=key, agent=decided, status=status)
    else:
        receipt = await send(session, control, said, key=key, agent=decided)
    await check_repeat(session, receipt, posted.key, *appended)
    return _published(receipt)


async def post_agent(api: ApiContext, request: Request) -> Response:
    """Hand the session over with `{"agent": …, "reason"?: …, "key"?: …, "expected"?: …}`. 201 with the position of the
    event. `expected` is as for messages.

    If the session belongs to the agent already, nothing changes, and the status is 200. If a request is repeated with
    the same key, nothing changes either, even after another handover. 404 if the session has no entries, 409 if the key
    belongs to other content. Any agent's name is accepted: if `hasWorker` of the answer is false, the session waits
    until a worker serves this agent.
    """
    session = api.session(request)
    posted = read_handover(await api.body(request))
    principal = await api.gate.require(
        request, "hand_over", session=session.id, agent=posted.agent, lanes=(Lane.EXTENSION,)
    )
    await api.require_entries(session)
    receipt = await session.hand_over(
        posted.agent, by=principal.name, reason=posted.reason, key=posted.key, expected=posted.expected
    )
    await check_repeat(session, receipt, posted.key, SessionAssigned(agent=posted.agent).as_extension())
    return _published(receipt, **await _service_of(api, session, receipt, posted.agent))


def _nothing() -> None:
    """Disconnect no client: the memory is given back when its upload was stored."""


def _said(text: str, by: str) -> UserMessage:
    return UserMessage.text(text).model_copy(update={"metadata": {BY: by}})


async def _service_of(api: ApiContext, session: Session, receipt: Receipt, agent: str | None) -> dict[str, JsonValue]:
    """Return the fields of the session's agent; nothing if the request names no agent.

    The server cannot know an agent before a worker of it has run, so it accepts every name. After a repeat, the session
    may have been handed on.
    """
    if agent is None:
        return {}
    if receipt.is_duplicate:
        with suppress(StreamError):  # the messages are in the log; this says only more about them
            agent = (await session.head()).agent or agent
    has_worker = await api.has_worker(agent)
    return {"agent": agent, **({} if has_worker is None else {"hasWorker": has_worker})}


def _published(receipt: Receipt, **more: JsonValue) -> Response:
    published: dict[str, JsonValue] = {"positions": list(receipt.positions), "duplicate": receipt.is_duplicate}
    return answer({**published, **more}, 200 if receipt.is_duplicate else 201)


def _writes(path: str, handler: Handler, body: object) -> ApiEndpoint:
    return ApiEndpoint(
        method="POST",
        path=f"/api/sessions/{{session}}/{path}",
        handler=handler,
        body=body,
        answer=Published,
        statuses=(200, 201),
        is_traced=True,
    )


ENDPOINTS = (
    _writes("messages", post_message, MessageBody),
    _writes("commands", post_command, CommandBody),
    _writes("agent", post_agent, HandoverBody),
)
