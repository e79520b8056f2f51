"""Write lanebus events of tools, and other events that concern no loop, turn or message, as the two-lane agent's."""

from collections.abc import Iterator

from pydantic import JsonValue

from lanebus.bus.messages.context_entry import BranchSummary
from lanebus.bus.messages.events import (
    AgentEvent,
    CompactionEnded,
    CompactionStarted,
    InputRejected,
    ParallelLoopsEnded,
    ParallelLoopsStarted,
    Progress,
    PruneApplied,
    RevertApplied,
    ToolEnded,
    ToolStarted,
    ToolUpdated,
)
from lanebus.bus.messages.llm import LlmMessage
from lanebus.handlers.codecs.two_lane_agent.event_form import EventForm
from lanebus.handlers.codecs.two_lane_agent.loop_views import told_message
from lanebus.handlers.codecs.two_lane_agent.writer import write_usage
from lanebus.handlers.json_fields import Object

__all__ = ("view_of_other",)


def view_of_other(form: EventForm, event: AgentEvent) -> Iterator[Object]:
    """Yield the two-lane agent's events for an event that concerns no loop, turn or message. Yield nothing for other
    events."""
    match event:
        case ToolStarted():
            arguments = form.seen.arguments.get(event.tool_call_id)
            yield {"type": "ToolExecutionStart", **_call(event), "args": arguments}
        case ToolUpdated():
            result = form.result(event.tool_call_id, None)
            yield {"type": "ToolExecutionUpdate", **_call(event), "partial_result": result}
        case ToolEnded():
            yield from _tool_end(form, event)
        case Progress():
            yield {"type": "ProgressMessage", **_call(event), "text": event.text}
        case InputRejected():
            yield {"type": "InputRejected", "loop_id": event.loop_id, "reason": event.reason}
        case ParallelLoopsStarted() | ParallelLoopsEnded():
            yield {**_parallel(event), "session_id": form.session, "timestamp": form.moment(event)}
        case CompactionStarted() | CompactionEnded():
            yield {**_compaction(event), "loop_id": event.loop_id, "timestamp": form.moment(event)}
        case PruneApplied():
            yield _prune(form, event)
        case RevertApplied():
            yield _revert(form, event)
        case _:
            return


def _call(event: ToolStarted | ToolUpdated | ToolEnded | Progress) -> Object:
    return {"loop_id": event.turn_id.loop_id, "tool_call_id": event.tool_call_id, "tool_name": event.tool_name}


def _tool_end(form: EventForm, event: ToolEnded) -> Iterator[Object]:
    yield {
        "type": "ToolExecutionEnd",
        **_call(event),
        "result": form.result(event.tool_call_id, event.position),
        "is_error": event.is_error,
        "child_loop_id": event.child_loop_id,
    }
    message = form.seen.message(event.position)
    if message is not None:
        yield from told_message(form, event.turn_id.loop_id, message)


def _parallel(event: ParallelLoopsStarted | ParallelLoopsEnded) -> Object:
    if isinstance(event, ParallelLoopsStarted):
        return {"type": "ParallelLoopStart", "loop_ids": [*event.loop_ids]}
    return {
        "type": "ParallelLoopEnd",
        "selected_loop_id": event.selected_loop_id,
        "selected_config_index": event.selected_config_index,
        "evaluation_usage": write_usage(event.evaluation_usage),
    }


def _compaction(event: CompactionStarted | CompactionEnded) -> Object:
    if isinstance(event, CompactionStarted):
        return {
            "type": "CompactionStarted",
            "estimated_tokens": event.estimated_tokens,
            "message_count": event.message_count,
        }
    return {
        "type": "CompactionEnded",
        "messages_before": event.messages_before,
        "messages_after": event.messages_after,
        "estimated_tokens_before": event.estimated_tokens_before,
        "estimated_tokens_after": event.estimated_tokens_after,
        "loops_compacted": 1 if event.loops_compacted is None else event.loops_compacted,
    }


def _prune(form: EventForm, event: PruneApplied) -> Object:
    found = [form.seen.message(position) for position in event.pruned]
    known: list[JsonValue] = [each.timestamp or 0 for each in found if isinstance(each, LlmMessage)]
    return {
        "type": "PrunApplied",
        "loop_id": event.loop_id,
        "tokens_removed": event.tokens_removed,
        "messages_removed": len(event.pruned) if event.messages_removed is None else event.messages_removed,
        "memo": event.memo,
        "pruned_timestamps": known if event.pruned_timestamps is None else [*event.pruned_timestamps],
        "timestamp": form.moment(event),
    }


def _revert(form: EventForm, event: RevertApplied) -> Object:
    entry = form.seen.entries.get(event.summary or 0)
    target = form.seen.message(event.target)
    node = target.node_id if isinstance(target, LlmMessage) else None
    return {
        "type": "RevertApplied",
        "loop_id": event.loop_id,
        "category": event.category,
        "target": node if event.target_node is None else event.target_node,
        "abandoned_node_ids": [*event.abandoned_nodes],
        "summary": entry.summary if isinstance(entry, BranchSummary) else form.seen.summaries.get(form.position),
        "applied": event.applied,
        "reason": event.reason,
        "timestamp": form.moment(event),
    }
