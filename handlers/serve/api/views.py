"""What the page shows beside the lanes: the agent's status, a tool call that waits for a person, and the usage."""

import json
from collections.abc import Mapping
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus import Bus, FailedWork, Session, SessionHead
from lanebus.bus.messages import AssistantMessage, Lane, ToolCallBlock, ToolWaiting
from lanebus.bus.wire import Cursor
from lanebus.handlers.projections import (
    STATUS,
    USAGE,
    CardState,
    Command,
    LoopStatus,
    Views,
    decisions,
    doing,
    look_at_state,
    own_loop,
    summary,
    waiting_calls,
)
from lanebus.handlers.serve.api.answers import CallAnswer, StatusAnswer, UsageAnswer
from lanebus.handlers.serve.api.context import ApiContext
from lanebus.handlers.serve.api.endpoint import ApiEndpoint, Parameter
from lanebus.handlers.serve.api.sessions import decision_json, failure_json
from lanebus.handlers.serve.replies import RequestRefused

# The endpoints of the agent's status, a tool call and the usage.

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


# The agent's status and the usage as JSON.


async def usage_view(views: Views, session: Session) -> Mapping[str, object]:
    """Return the tokens and the cost in US dollars of a session.

    `cost` is null if no call has a known cost. `countedFrom` is the first counted position if earlier entries were
    trimmed before they were counted, else null.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, USAGE)
    total = now.state.total
    return {
        **summary(total.usage),
        "calls": total.calls,
        "calls_of_unknown_cost": total.calls_of_unknown_cost,
        "countedFrom": now.counted_from,
    }


async def state_of(views: Views, bus: Bus, head: SessionHead) -> tuple[CardState, FailedWork | None]:
    """Return what a session does, and its work that is dead or tried again, as the list of sessions tells it.

    Raises:
        BusError: the log or the state of its work could not be read.
    """
    session = bus.session(head.session)
    work = (await bus.failed_work().read(session.id)).get(session.id)
    state = await look_at_state(session, head, work, views)
    return state, work if state in {"dead", "retrying"} else None


async def status_view(
    views: Views, session: Session, state: CardState, work: FailedWork | None
) -> Mapping[str, object]:
    """Return what the agent does, the calls that wait for a person, and the commands without an answer.

    Args:
        views: cached states of the projections.
        session: the session.
        state: what `state_of` returned.
        work: the failed work to tell; None tells none.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, STATUS)
    status, loop = now.state, own_loop(session.id, now.state)
    is_open = loop is not None and (loop.ended is None or loop.is_stopped)
    decided = decisions(status)
    waiting = waiting_calls(loop) if loop is not None and is_open else ()
    return {
        "position": now.position,
        "state": state,
        "failure": failure_json(work),
        "doing": doing(session.id, status),
        "loop": None if loop is None else _loop_json(loop),
        "waiting": [_waiting_json(call, decided.get(call.tool_call_id)) for call in waiting],
        "commands": [{"position": each.position, "kind": each.message.kind} for each in status.commands],
    }


def _loop_json(loop: LoopStatus) -> Mapping[str, object]:
    return {
        "loopId": loop.loop_id,
        "turnIndex": None if loop.turn is None else loop.turn.turn_index,
        "started": loop.started,
        "ended": loop.ended,
    }


def _waiting_json(call: ToolWaiting, decision: Command | None) -> Mapping[str, object]:
    return {
        "turnId": {"loopId": call.turn_id.loop_id, "turnIndex": call.turn_id.turn_index},
        "toolCallId": call.tool_call_id,
        "toolName": call.tool_name,
        "why": call.why,
        "decision": decision_json(decision),
    }


async def call_view(views: Views, session: Session, call_id: str) -> Mapping[str, object]:
    """Return `{"toolCallId", "toolName", "position", "text", "callHash"}` of a call of the newest loop.

    `text` is the arguments as JSON for people, or as the provider sent them. It is made here, because a browser changes
    large numbers when it reads JSON.

    Args:
        views: cached states of the projections.
        session: the session.
        call_id: the tool call's id. If several answers have a call of this id, the newest one is returned.

    Raises:
        RequestRefused: 404 if the newest loop has no such call.
        BusError: the log could not be read.
    """
    loop = own_loop(session.id, (await views.look(session, STATUS)).state)
    found: tuple[int, ToolCallBlock] | None = None
    if loop is not None:
        answers = session.read(lanes={Lane.LLM}, kinds={"assistant"}, after=Cursor(max(loop.position - 1, 0)))
        async with aclosing(answers):
            async for envelope in answers:
                if isinstance(envelope.message, AssistantMessage):
                    for block in envelope.message.tool_calls():
                        if block.id == call_id:
                            found = (envelope.position, block)
    if found is None:
        raise RequestRefused(404, "no_such_call", "the newest loop has no tool call with this id")
    position, call = found
    text = call.arguments_raw or json.dumps(call.arguments, ensure_ascii=False, indent=2)
    return {
        "toolCallId": call.id,
        "toolName": call.name,
        "position": position,
        "text": text,
        "callHash": call.call_hash,
    }
