"""The endpoint of AG-UI clients, such as CopilotKit and assistant-ui."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus import Session
from lanebus.bus.errors import WrongAgent
from lanebus.bus.messages import ExtensionMessage, Lane, UserMessage
from lanebus.bus.wire import check_agent
from lanebus.handlers.agent import BY, send
from lanebus.handlers.protocols import (
    AguiRun,
    AguiView,
    RunInput,
    as_shown,
    error_frame,
    read_answer,
    read_run_input,
    refused_run,
)
from lanebus.handlers.serve.access.principal import AccessRequest
from lanebus.handlers.serve.api.bodies import ProtocolBody
from lanebus.handlers.serve.api.commands import check_repeat
from lanebus.handlers.serve.api.context import ApiContext
from lanebus.handlers.serve.api.endpoint import ApiEndpoint
from lanebus.handlers.serve.budget import Share
from lanebus.handlers.serve.errors import UnknownAgent
from lanebus.handlers.serve.frames import Outlet, run_frames
from lanebus.handlers.serve.guard import identified
from lanebus.handlers.serve.stream import EventStream

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
    for answer in asked.answers:
        control = read_answer(answer.interrupt_id, answer.status, answer.payload, by)
        if control is not None:
            receipt = await send(session, control, key=answer.key, agent=agent)
            await check_repeat(session, receipt, answer.interrupt_id, control.as_extension())
            began = receipt.position
    for prompt in asked.prompts:
        message = prompt.message.model_copy(update={"metadata": {BY: by}})
        receipt = await session.publish(message, key=prompt.key, wake=True, agent=agent)
        await check_repeat(session, receipt, prompt.message.id, message, shown=as_shown)
        began = max(began, receipt.position)
    return began


ENDPOINTS = (
    ApiEndpoint(
        method="POST",
        path="/agui/{agent}",
        handler=post_run,
        body=ProtocolBody,
        media_types=("text/event-stream",),
        is_traced=True,
    ),
)
