"""Write lanebus events of loops, turns and messages as the two-lane agent's events, which contain whole messages."""

from collections.abc import Iterator

from pydantic import JsonValue

from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.events import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    MessageEnded,
    MessageStarted,
    TurnEnded,
    TurnStarted,
)
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.codecs.two_lane_agent.event_form import EventForm
from lanebus.handlers.codecs.two_lane_agent.seen import Spoken
from lanebus.handlers.codecs.two_lane_agent.vocabulary import CONTINUATION, DELTA, TRIGGER, to_theirs
from lanebus.handlers.codecs.two_lane_agent.writer import write_usage
from lanebus.handlers.json_fields import Object

__all__ = ("told_message", "update_view", "view_of_loop")


def view_of_loop(form: EventForm, event: AgentEvent) -> Iterator[Object]:
    """Yield the two-lane agent's events for an event of a loop, turn or message. Yield nothing for other events."""
    match event:
        case AgentStarted():
            yield _agent_start(form, event)
        case AgentEnded():
            yield _agent_end(form, event)
        case TurnStarted():
            yield from _turn_start(form, event)
        case TurnEnded():
            yield from _turn_end(form, event)
        case MessageStarted():
            message = form.draft(event.message_id)
            yield {"type": "MessageStart", "loop_id": event.turn_id.loop_id, "message": message}
        case MessageEnded(turn_id=turn_id, position=position):
            ended = form.seen.message(position)
            if ended is not None:
                yield _message_event("MessageEnd", form, turn_id.loop_id, ended)
        case _:
            return


def update_view(form: EventForm, delta: Delta) -> Iterator[Object]:
    """Yield the two-lane agent's event for a live delta. Yield nothing for a delta of kind "cut" or without a turn."""
    if delta.kind == "cut" or delta.turn_id is None:
        return
    piece: Object = {to_theirs(DELTA, delta.kind): {"delta": delta.delta}}
    message = form.draft(delta.message_id)
    yield {"type": "MessageUpdate", "loop_id": delta.turn_id.loop_id, "message": message, "delta": piece}


def told_message(form: EventForm, loop_id: str, message: Spoken) -> Iterator[Object]:
    """Yield a start event and an end event for a message that was not streamed."""
    yield _message_event("MessageStart", form, loop_id, message)
    yield _message_event("MessageEnd", form, loop_id, message)


def _message_event(kind: str, form: EventForm, loop_id: str, message: Spoken) -> Object:
    return {"type": kind, "loop_id": loop_id, "message": form.message(message, "message", has_turn=False)}


def _agent_start(form: EventForm, event: AgentStarted) -> Object:
    theirs = to_theirs(CONTINUATION, event.continuation)
    is_tagged = event.continuation in {"rerun", "branch"}
    kind: JsonValue = {theirs: {"tag": event.continuation_tag or ""}} if is_tagged else theirs
    config: Object = {} if event.config is None else {"config_snapshot": event.config}
    return {
        "type": "AgentStart",
        "agent_id": event.agent,
        "session_id": form.session,
        "loop_id": event.loop_id,
        "parent_loop_id": event.parent_loop_id,
        "continuation_kind": kind,
        "timestamp": form.moment(event),
        "metadata": event.metadata,
        **config,
    }


def _agent_end(form: EventForm, event: AgentEnded) -> Object:
    llm_messages = [each for each in form.seen.of_loop(event.loop_id).values() if isinstance(each, LlmMessage)]
    messages: list[JsonValue] = [
        form.message(message, f"messages.{index}", has_turn=True) for index, message in enumerate(llm_messages)
    ]
    return {
        "type": "AgentEnd",
        "loop_id": event.loop_id,
        "messages": messages if event.rejection is None else [],
        "usage": write_usage(event.usage),
        "timestamp": form.moment(event),
        "rejection": event.rejection,
    }


def _turn_start(form: EventForm, event: TurnStarted) -> Iterator[Object]:
    yield {
        "type": "TurnStart",
        "loop_id": event.turn_id.loop_id,
        "turn_index": event.turn_id.turn_index,
        "timestamp": form.moment(event),
        "triggered_by": to_theirs(TRIGGER, event.trigger),
    }
    for position in event.prompts:
        prompt = form.seen.message(position)
        if isinstance(prompt, UserMessage):
            yield from told_message(form, event.turn_id.loop_id, prompt)


def _turn_end(form: EventForm, event: TurnEnded) -> Iterator[Object]:
    message = form.seen.message(event.message)
    if message is None:
        return
    found = [form.seen.message(position) for position in event.tool_results]
    results = [result for result in found if isinstance(result, ToolResultMessage)]
    yield {
        "type": "TurnEnd",
        "loop_id": event.turn_id.loop_id,
        "message": form.message(message, "message", has_turn=True),
        "usage": write_usage(event.usage),
        "timestamp": form.moment(event),
        "tool_results": [
            form.message(each, f"tool_results.{index}", has_turn=False) for index, each in enumerate(results)
        ],
    }
