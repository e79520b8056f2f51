"""A run that waits for a person, stored in the session: any worker continues it.

It is an extension message `store.openai_agents.interrupted` with the turn, and the SDK's `RunState` as JSON or its
place in the media store. It is stored in one step with the questions to the person.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents import Agent, RunContextWrapper, RunResultStreaming, RunState
from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.events import ToolWaiting
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_parser import parse_json
from lanebus.bus.session.reading import ALL_LANES
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.decide.tool_decision import approves
from lanebus.handlers.agent.recording.recorded_turn import RecordedTurn
from lanebus.handlers.agent.run import Run
from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.openai_items.messages import messages_of
from lanebus.handlers.backends.own_entries import own_message
from lanebus.handlers.backends.values import load_value, store_value
from lanebus.handlers.projections.agent_status import Command

__all__ = ("load_run", "store_run")

_KIND = "store.openai_agents.interrupted"

_log = logging.getLogger(__name__)


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

    A person decided about the calls of the answer. A stored run that would call anything else is not continued, nor is
    an imported one: None is returned.

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
        match own_message(envelope):
            case ExtensionMessage(data={"turn": str(turn), "state": value}) if turn == str(answer.turn_id):
                found = value
            case _:
                pass
    if found is None:
        return None
    text = (await load_value(run.session.media, found)).decode()
    if not _has_only(text, answer.calls):
        _log.warning("session %s: the stored run has other calls than the answer, so it is lost", run.session.id)
        return None
    state = await RunState.from_string(
        agent, text, context_override=None if context is None else RunContextWrapper(context)
    )
    loop = run.snapshot.status.loop
    answered: Mapping[str, Command] = loop.calls_answered if loop else {}
    approved = {call.id for call in answer.calls if call.id in answered and approves(answered[call.id], call)}
    results = {result.tool_call_id: result for _, result in answer.results}
    for item in state.get_interruptions():
        call_id = item.call_id or ""
        if call_id in results:
            state.reject(item, rejection_message=results[call_id].text_with_results())
        elif call_id in approved:
            state.approve(item)
    return state


def _has_only(text: str, calls: Sequence[ToolCallBlock]) -> bool:
    """Whether the run whose state this is would call only these, with these arguments."""
    try:
        state = parse_json(text)
        pending = (
            [state[name] for name in ("last_processed_response", "current_step")] if isinstance(state, dict) else []
        )
        known = {call.id: call.call_hash for call in calls}
        items = [item for part in pending for item in _calls_in(part)]
        return bool(items) and all(known.get(str(item["call_id"])) == _hash_of(item) for item in items)
    except (KeyError, MessageError):
        return False


def _calls_in(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the items in a part of a state that are calls of tools, without those of runs inside of a tool."""
    parts: list[JsonValue] = [value]
    while parts:
        match parts.pop():
            case dict() as item if "call_id" in item and str(item.get("type")).endswith("_call"):
                yield item
            case dict() as item:
                parts += [each for name, each in item.items() if name != "agent_run_state"]
            case list() as items:
                parts += items
            case _:
                pass


def _hash_of(item: Mapping[str, JsonValue]) -> str | None:
    """Return the hash of a call as the answer in the log shows it."""
    text = json.dumps({name: each for name, each in item.items() if each is not None})
    shown = [each.message for each in messages_of([text], limit_bytes=2 * len(text) + 10_000)]
    hashes = [call.call_hash for each in shown if isinstance(each, AssistantMessage) for call in each.tool_calls()]
    return hashes[0] if len(hashes) == 1 else None
