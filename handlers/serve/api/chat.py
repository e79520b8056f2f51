"""The endpoints of chat clients: those of AG-UI, such as CopilotKit, and those of the AI SDK."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus import Session
from lanebus.bus.errors import DecodeError, WrongAgent
from lanebus.bus.messages import Approve, Deny, ExtensionMessage, Lane, UserMessage
from lanebus.bus.wire import Cursor, check_agent
from lanebus.handlers.agent import BY, send
from lanebus.handlers.projections import TURNS
from lanebus.handlers.protocols import (
    POSITION_HEADER,
    STREAM_HEADER,
    VERSION_HEADER,
    AguiRun,
    AguiView,
    ApprovalAnswer,
    ChatRequest,
    MessageStream,
    RunInput,
    RunPlace,
    UiMessages,
    as_shown,
    error_frame,
    open_run,
    read_answer,
    read_chat_request,
    read_run_input,
    read_version,
    refused_run,
    run_at,
    run_of_loop,
    run_of_message,
)
from lanebus.handlers.serve.access.credentials import AccessRequest
from lanebus.handlers.serve.api.bodies import ChatMessagesAnswer, ProtocolBody
from lanebus.handlers.serve.api.commands import check_repeat
from lanebus.handlers.serve.api.endpoint import ApiContext, ApiEndpoint, count_parameter
from lanebus.handlers.serve.budget import Share
from lanebus.handlers.serve.errors import UnknownAgent
from lanebus.handlers.serve.guard import identified, owner_of
from lanebus.handlers.serve.replies import answer
from lanebus.handlers.serve.stream import EventStream, Outlet, run_frames
from lanebus.handlers.serve.transfer import PacedWhole

_CUT = error_frame("The server ended the stream, and the agent goes on: send the run again.", "lanebus.cut")


async def post_run(api: ApiContext, request: Request) -> Response:
    """Run the agent for an AG-UI client: publish the new messages of a `RunAgentInput`, and stream the run.

    The stream begins with the conversation so far, and ends when the agent rests. A client that lost it sends the same
    request again: nothing is published twice, and the stream goes on where the agent is. The agent goes on without a
    client. 409 if the id of a message belongs to a message of other content. Approvals are interrupts, which `resume`
    answers. Tools of the client are not offered to the model, which a `CUSTOM` event `lanebus.toolsIgnored` says. If no
    worker serves the agent, a `CUSTOM` event `lanebus.noWorker` says so, and the run waits for a worker; if none ever
    did, a new session is refused with a `RUN_ERROR`.
    """
    agent = check_agent(str(request.path_params["agent"]))
    asked = read_run_input(await api.body(request), api.content)
    session = api.bus.session(asked.thread_id)
    allowed = await _require(api, request, session, agent, asked)
    head = await session.head()
    if head.position and head.agent != agent:
        raise WrongAgent(session.id, agent, head.agent)
    if asked.answers and not asked.prompts:
        await api.require_entries(session)
    if asked.prompts:
        try:
            await api.require_known(session, agent)
        except UnknownAgent as error:
            return Response(refused_run(asked, str(error), "lanebus.unknown_agent"), media_type="text/event-stream")
    api.gate.count_appended(request, *_appended(asked, identified(request.scope).principal.name))
    began = await _publish(session, agent, asked, identified(request.scope).principal.name)
    head = await session.head()
    is_unserved = bool(began) and await api.has_worker(agent) is False
    bounds = api.bounds
    run = AguiRun(
        # The stream may last: it keeps no message, and no more ids than a snapshot has messages.
        replace(asked, prompts=(), answers=(), known=asked.known[-bounds.run_messages :]),
        lambda: AguiView(messages=bounds.run_messages, size=bounds.run_bytes),
        counted_after=began or head.position,
        unserved=agent if is_unserved else None,
    )
    first = max(head.position - bounds.run_entries, head.trimmed) + 1
    access = api.gate.stream(request, allowed)
    right = access.right(session.id)

    async def frames(share: Share, outlet: Outlet) -> AsyncGenerator[bytes]:
        del outlet
        yield run.started
        async with aclosing(run_frames(session, first, share, api.history, run, right=right, bounds=bounds)) as rest:
            async for frame in rest:
                yield frame
                del frame

    return EventStream(
        frames,
        streams=api.streams,
        budget=api.budget,
        bounds=bounds,
        access=access,
        first=b"",
        last=_CUT,
        is_complete=lambda: run.is_done,
    )


async def _require(
    api: ApiContext, request: Request, session: Session, agent: str, asked: RunInput
) -> list[AccessRequest]:
    """Return the requests that were allowed. A run shows the content of both lanes, so it needs the right to both."""
    allowed = await api.gate.required(request, "read.events", session=session.id, agent=agent, lanes=Lane)
    if asked.prompts:
        await api.gate.require(request, "send", session=session.id, agent=agent, lanes=(Lane.LLM,))
    by = identified(request.scope).principal.name
    controls = [read_answer(each.interrupt_id, each.status, each.payload, by) for each in asked.answers]
    for name in sorted({each.KIND for each in controls if each is not None}):
        action = name.replace("control.", "command.")
        await api.gate.require(request, action, session=session.id, agent=agent, lanes=(Lane.EXTENSION,))
    return allowed


def _appended(asked: RunInput, by: str) -> list[UserMessage | ExtensionMessage]:
    controls = [read_answer(each.interrupt_id, each.status, each.payload, by) for each in asked.answers]
    return [*(each.as_extension() for each in controls if each is not None), *(each.message for each in asked.prompts)]


async def _publish(session: Session, agent: str, asked: RunInput, by: str) -> int:
    """Publish what is new, once. Return the position of the newest message or command of the request; 0 if none."""
    began = 0
    for each in asked.answers:
        control = read_answer(each.interrupt_id, each.status, each.payload, by)
        if control is not None:
            receipt = await send(session, control, key=each.key, agent=agent)
            await check_repeat(session, receipt, each.interrupt_id, control.as_extension())
            began = receipt.position
    for prompt in asked.prompts:
        message = prompt.message.model_copy(update={"metadata": {BY: by}})
        receipt = await session.publish(message, key=prompt.key, wake=True, agent=agent)
        await check_repeat(session, receipt, prompt.message.id, message, shown=as_shown)
        began = max(began, receipt.position)
    return began


AGUI_ENDPOINTS = (
    ApiEndpoint(
        method="POST",
        path="/agui/{agent}",
        handler=post_run,
        body=ProtocolBody,
        media_types=("text/event-stream",),
        is_traced=True,
    ),
)


# Endpoints for clients of the AI SDK: send a message or an approval, and resume the answer.


async def post_chat(api: ApiContext, request: Request) -> Response:
    """Publish the new message of the AI SDK's `useChat`, or its answers to approval requests, and stream the answer as
    UI message chunks.

    A repeated message or answer is not published again; its stream is. 409 if the message's id belongs to a message of
    other content. If the client disconnects, the agent goes on. If no worker serves the agent, a transient part
    `data-no-worker` says so, and the answer waits for a worker; if none ever did, a new session is refused with 404
    `unknown_agent`.

    The header `Lanebus-Position` has the position of the message or of the last approval. Resume with `?after=` this
    position, and an answer that has ended since is streamed too.
    """
    asked = read_chat_request(await api.body(request), api.content)
    version = read_version(request.headers.get(VERSION_HEADER))
    session = api.bus.session(asked.session)
    await _require_writing(api, request, asked)
    await _require_reading(api, request, session, asked.agent)
    if asked.agent is not None:
        await api.require_known(session, asked.agent)
    by = identified(request.scope).principal.name
    continued = None if not asked.answers else await _continued(api, request, session, asked.answers)
    said = None if asked.message is None else asked.message.model_copy(update={"metadata": {BY: by}})
    answers = [_command(each, by).as_extension() for each in asked.answers]
    api.gate.count_appended(request, *answers, *(() if said is None else (said,)))
    position = 0
    agent = asked.agent or api.gate.decided_agent(request, session.id)
    for each in asked.answers:
        position = await _answer(session, each, by, agent)
    if said is not None:
        key = f"ai-sdk.{asked.message_id}"
        receipt = await session.publish(said, key=key, wake=True, agent=agent)
        await check_repeat(session, receipt, asked.message_id, said)
        position = receipt.position
    if asked.message is None and continued is not None:
        shown = max(each.approval.position for each in asked.answers)
        unserved = await _unserved(api, session, asked.agent)
        stream = MessageStream(continued, position, version, shown=shown, unserved=unserved)
        return _placed(await _stream(api, request, session, continued, stream), position)
    turns = (await api.folded(owner_of(request.scope), lambda: api.views.look(session, TURNS))).state
    place = run_of_message(turns, position)
    stream = MessageStream(place, position, version, unserved=await _unserved(api, session, asked.agent))
    return _placed(await _stream(api, request, session, place, stream), position)


async def resume_chat(api: ApiContext, request: Request) -> Response:
    """Stream the answer that the agent works on, or that waits for an approval, from its beginning. 204 if there is
    none. This is the `resume` of the AI SDK's `useChat`.

    With `?after=`, the answer that this position belongs to is streamed even if it is complete, if entries follow it.
    Give the position of the message or command that the answer is to: the agent may have ended before the client asks.
    """
    session, after = api.session(request), _AFTER.of(request)
    version = read_version(request.headers.get(VERSION_HEADER))
    await _require_reading(api, request, session)
    now = await api.folded(owner_of(request.scope), lambda: api.views.look(session, TURNS))
    until = now.position
    place = None if after is None or after >= until else run_at(now.state, after)
    if place is not None and after is not None:
        until = after + 1
    else:
        place = open_run(now.state)
    if place is None:
        return Response(status_code=204)
    stream = MessageStream(place, until, version, unserved=await _unserved(api, session))
    return await _stream(api, request, session, place, stream)


async def chat_messages(api: ApiContext, request: Request) -> Response:
    """Return `{"messages": […], "after": …}`: the conversation so far, as `useChat` takes it.

    The open answer is left out: resume it, with `?after=` the value of `after`, as it may end meanwhile. `after` is
    null if there is none. An answer has at most `UiBounds.run_messages` messages with about `UiBounds.run_bytes`
    characters, of the newest `UiBounds.run_entries` entries.
    """
    session, bounds = api.session(request), api.bounds
    version = read_version(request.headers.get(VERSION_HEADER))
    await _require_reading(api, request, session)
    right = api.gate.right(request, session.id)
    now = await api.folded(owner_of(request.scope), lambda: api.views.look(session, TURNS))
    place = open_run(now.state)
    until = None if place is None else place.first

    async def made(share: Share) -> Response:
        head, seconds = await session.head(), bounds.wait_seconds
        shown = UiMessages(version, until=until, messages=bounds.run_messages, size=bounds.run_bytes)
        first = max(now.position - bounds.run_entries, head.trimmed)
        needed = api.history.needed(head)
        async with share.part() as state:
            await state.take(needed + 3 * min(needed, bounds.run_bytes), seconds=seconds)
            reading = api.history.pieces(
                session, Cursor(first), now.position, state.paid(), shown.add, seconds=seconds, right=right
            )
            async with aclosing(reading) as pieces:
                async for _ in pieces:
                    pass
            return answer({"messages": shown.messages(), "after": until})

    return PacedWhole(made, closing=api.closing, budget=api.budget, bounds=bounds)


def _placed(reply: Response, position: int) -> Response:
    reply.headers[POSITION_HEADER] = str(position)
    return reply


async def _require_writing(api: ApiContext, request: Request, asked: ChatRequest) -> None:
    if asked.message is not None:
        await api.gate.require(request, "send", session=asked.session, agent=asked.agent, lanes=(Lane.LLM,))
    for name in sorted({"approve" if each.is_approved else "deny" for each in asked.answers}):
        action = f"command.{name}"
        await api.gate.require(request, action, session=asked.session, agent=asked.agent, lanes=(Lane.EXTENSION,))


async def _require_reading(api: ApiContext, request: Request, session: Session, agent: str | None = None) -> None:
    """The stream has content of both lanes, so it needs the right to both."""
    await api.gate.require(request, "read.events", session=session.id, agent=agent, lanes=Lane)


async def _unserved(api: ApiContext, session: Session, agent: str | None = None) -> str | None:
    """Return the session's agent if no worker serves it; None if one does, or if this cannot be read."""
    agent = agent or (await session.head()).agent
    return agent if await api.has_worker(agent) is False else None


async def _continued(
    api: ApiContext, request: Request, session: Session, answers: Sequence[ApprovalAnswer]
) -> RunPlace:
    """Return the run whose calls were answered. Raises DecodeError if the session has no such run."""
    turns = (await api.folded(owner_of(request.scope), lambda: api.views.look(session, TURNS))).state
    place = run_of_loop(turns, answers[-1].approval.turn_id.loop_id)
    if place is None:
        raise DecodeError("messages", "has the approval of a turn that this chat does not have")
    return place


async def _answer(session: Session, answer: ApprovalAnswer, by: str, agent: str | None) -> int:
    """Publish the command for an answer, once. Return its position.

    The first answer of its kind counts. Another reason is no error: a client without the result sends its answer again
    with each later message, so a chat that got an error here, such as a second tab, could never go on.
    """
    key = f"ai-sdk.{sha256(str(answer.approval).encode()).hexdigest()}"
    return (await send(session, _command(answer, by), key=key, agent=agent)).position


def _command(answer: ApprovalAnswer, by: str) -> Approve | Deny:
    approval = answer.approval
    about = {"by": by, "turn_id": approval.turn_id, "tool_call_id": approval.tool_call_id}
    if answer.is_approved:
        return Approve.model_validate({**about, "call_hash": approval.call_hash})
    return Deny.model_validate({**about, "reason": answer.reason})


async def _stream(
    api: ApiContext, request: Request, session: Session, place: RunPlace, stream: MessageStream
) -> Response:
    access = api.gate.stream(request, await api.gate.required(request, "read.events", session=session.id, lanes=Lane))
    right = access.right(session.id)
    reply = EventStream(
        lambda share, _: run_frames(session, place.first, share, api.history, stream, right=right, bounds=api.bounds),
        streams=api.streams,
        budget=api.budget,
        bounds=api.bounds,
        access=access,
        first=b"",
        last=stream.cut_frame,
        is_complete=lambda: stream.is_done,
    )
    reply.headers[STREAM_HEADER[0]] = STREAM_HEADER[1]
    return reply


_AFTER = count_parameter(
    "after", "Position of a message or command: stream the answer that it belongs to, even if complete."
)
_STREAM = ("text/event-stream",)
_VERSION = {VERSION_HEADER: "version of the AI SDK"}
ENDPOINTS = (
    ApiEndpoint(
        method="POST",
        path="/chat",
        handler=post_chat,
        headers=_VERSION,
        body=ProtocolBody,
        media_types=_STREAM,
        is_traced=True,
    ),
    ApiEndpoint(
        path="/chat/{session}/stream",
        handler=resume_chat,
        parameters=(_AFTER,),
        headers=_VERSION,
        media_types=_STREAM,
        statuses=(200, 204),
    ),
    ApiEndpoint(
        path="/chat/{session}/messages",
        handler=chat_messages,
        headers=_VERSION,
        answer=ChatMessagesAnswer,
    ),
)
