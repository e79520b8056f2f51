"""A run that waits for a person, stored in the session: any worker continues it.

It is an extension message `store.openai_agents.interrupted` with the turn, and the SDK's `RunState` as JSON or its
place in the media store. It is stored in one step with the questions to the person.
"""

from typing import Any

from agents import Agent, RunContextWrapper, RunResultStreaming, RunState
from pydantic import JsonValue

from lanebus.bus.messages.control import Approve
from lanebus.bus.messages.events import ToolWaiting
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.session.reading import ALL_LANES
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.recording.recorded_turn import RecordedTurn
from lanebus.handlers.agent.run import Run
from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.values import load_value, store_value

__all__ = ("load_run", "store_run")

_KIND = "store.openai_agents.interrupted"


async def store_run(run: Run, turn: RecordedTurn, stream: RunResultStreaming, bounds: BackendBounds) -> bool:
    """Store a run if it waits for a person, and ask the person. Return whether it waits.

    Raises:
        BusError: the errors of `Session.publish`.
    """
    waiting = {item.call_id for item in stream.interruptions}
    calls = [call for call in turn.calls if call.id in waiting]
    if not calls:
        return False
    state = stream.to_state().to_string()
    value = await store_value(run.session.media, state.encode(), bounds=bounds)
    loop = run.snapshot.status.loop
    asked = loop.calls_waiting.keys() if loop else ()
    questions = [
        ToolWaiting(turn_id=turn.id, tool_call_id=call.id, tool_name=call.name).as_extension()
        for call in calls
        if call.id not in asked
    ]
    await run.publish(ExtensionMessage(kind=_KIND, data={"turn": str(turn.id), "state": value}), *questions)
    return True


async def load_run(run: Run, answer: OpenAnswer, agent: Agent[Any], context: object) -> RunState[Any] | None:
    """Return the run that waits for the calls of an answer, with what the person has decided. None if there is none.

    Args:
        run: the session, as of its newest snapshot.
        answer: the answer with the calls.
        agent: the agent that began the conversation.
        context: the SDK's context of the run; None takes the stored one.

    Raises:
        MediaMissing: the media store no longer has the run.
        BusError: the errors of `Session.read`.
    """
    found: JsonValue = None
    async for envelope in run.session.read(lanes=ALL_LANES, kinds={_KIND}, after=Cursor(answer.position)):
        match envelope.message:
            case ExtensionMessage(data={"turn": str(turn), "state": value}) if turn == str(answer.turn_id):
                found = value
            case _:
                pass
    if found is None:
        return None
    text = (await load_value(run.session.media, found)).decode()
    state = await RunState.from_string(
        agent, text, context_override=None if context is None else RunContextWrapper(context)
    )
    loop = run.snapshot.status.loop
    approved = {
        call_id
        for call_id, command in (loop.calls_answered.items() if loop else ())
        if isinstance(command.control, Approve)
    }
    results = {result.tool_call_id: result for _, result in answer.results}
    for item in state.get_interruptions():
        call_id = item.call_id or ""
        if call_id in results:
            state.reject(item, rejection_message=results[call_id].text_with_results())
        elif call_id in approved:
            state.approve(item)
    return state
