"""Read the two-lane agent's events of tools, and all other events that concern no loop, turn or message."""

from lanebus.bus.messages.context_entry import BranchSummary, LeafMove
from lanebus.bus.messages.events import (
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
from lanebus.handlers.codecs.two_lane_agent.fields import Fields
from lanebus.handlers.codecs.two_lane_agent.moment import read_moment
from lanebus.handlers.codecs.two_lane_agent.reader import read_blocks, read_usage
from lanebus.handlers.codecs.two_lane_agent.reading_state import EntryOrDelta, ReadingState
from lanebus.handlers.json_fields import made

__all__ = ("OTHER_EVENTS",)


def _tool_start(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    event = made(ToolStarted, _call(now, fields), fields.path)
    now.seen.arguments[event.tool_call_id] = fields.any("args")
    return [now.append(event)]


def _tool_update(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    event = made(ToolUpdated, _call(now, fields), fields.path)
    _result(now, event.tool_call_id, fields.object("partial_result"))
    return [now.append(event)]


def _tool_end(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    child, is_error = fields.optional_text("child_loop_id"), fields.flag("is_error")
    call = {**_call(now, fields), "is_error": is_error, "child_loop_id": child}
    event = made(ToolEnded, call, fields.path)
    _result(now, event.tool_call_id, fields.object("result"))
    return [now.append(event)]


def _result(now: ReadingState, call: str, result: Fields) -> None:
    read_blocks(result)
    result.optional_text("child_loop_id")
    names = {"content", "details", "child_loop_id"} & result.value.keys()
    now.seen.results[call] = {"details": None, **{name: result.value[name] for name in sorted(names)}}


def _progress(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    return [now.append(made(Progress, {**_call(now, fields), "text": fields.text("text")}, fields.path))]


def _call(now: ReadingState, fields: Fields) -> dict[str, object]:
    return {
        "turn_id": now.turn(fields.text("loop_id")),
        "tool_call_id": fields.text("tool_call_id"),
        "tool_name": fields.text("tool_name"),
    }


def _rejected(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    return [now.append(InputRejected(loop_id=fields.text("loop_id"), reason=fields.text("reason")))]


def _parallel_start(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    fields.text("session_id")
    return [now.append(ParallelLoopsStarted(loop_ids=fields.texts("loop_ids"), timestamp=read_moment(fields)))]


def _parallel_end(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    fields.text("session_id")
    event = ParallelLoopsEnded(
        selected_loop_id=fields.text("selected_loop_id"),
        selected_config_index=fields.whole("selected_config_index"),
        evaluation_usage=read_usage(fields.object("evaluation_usage")),
        timestamp=read_moment(fields),
    )
    return [now.append(event)]


def _compaction_start(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    event = CompactionStarted(
        loop_id=fields.text("loop_id"),
        estimated_tokens=fields.whole("estimated_tokens"),
        message_count=fields.whole("message_count"),
        timestamp=read_moment(fields),
    )
    return [now.append(event)]


def _compaction_end(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    event = CompactionEnded(
        loop_id=fields.text("loop_id"),
        messages_before=fields.whole("messages_before"),
        messages_after=fields.whole("messages_after"),
        estimated_tokens_before=fields.whole("estimated_tokens_before"),
        estimated_tokens_after=fields.whole("estimated_tokens_after"),
        loops_compacted=fields.whole("loops_compacted"),
        timestamp=read_moment(fields),
    )
    return [now.append(event)]


def _prune(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    """Read a prune. The two-lane agent names pruned messages only by timestamp; positions are added for known
    messages."""
    moments = fields.wholes("pruned_timestamps")
    known = now.seen.of_loop(fields.text("loop_id")).items()
    event = PruneApplied(
        loop_id=fields.text("loop_id"),
        tokens_removed=fields.whole("tokens_removed"),
        messages_removed=fields.whole("messages_removed"),
        memo=fields.optional_text("memo"),
        pruned=tuple(place for place, each in known if isinstance(each, LlmMessage) and each.timestamp in moments),
        pruned_timestamps=moments,
        timestamp=read_moment(fields),
    )
    return [now.append(event)]


def _revert(now: ReadingState, fields: Fields) -> list[EntryOrDelta]:
    """Read a revert as up to three entries, in this order.

    The entries are a leaf move if the target is known, a branch summary if the revert has a summary, and the event. A
    refused revert is only the event.
    """
    applied, summary = fields.flag("applied"), fields.optional_text("summary")
    node, abandoned = fields.optional_whole("target"), fields.wholes("abandoned_node_ids")
    event: dict[str, object] = {
        "loop_id": fields.text("loop_id"),
        "category": fields.text("category"),
        "target_node": node,
        "abandoned_nodes": abandoned,
        "applied": applied,
        "reason": fields.optional_text("reason"),
        "timestamp": read_moment(fields),
    }
    checked = made(RevertApplied, event, fields.path)
    target = None if node is None else now.seen.node(node)
    entries: list[EntryOrDelta] = []
    place: int | None = None
    if applied and target is not None:
        entries.append(now.append(LeafMove(to=target)))
    if applied and summary is not None:
        branch = max(filter(None, map(now.seen.node, abandoned)), default=None)
        entries.append(now.append(BranchSummary(summary=summary, branch=branch)))
        place = now.position
    entries.append(now.append(checked.model_copy(update={"target": target, "summary": place})))
    if not applied and summary is not None:
        now.seen.summaries[now.position] = summary
    return entries


OTHER_EVENTS = {
    "ToolExecutionStart": _tool_start,
    "ToolExecutionUpdate": _tool_update,
    "ToolExecutionEnd": _tool_end,
    "ProgressMessage": _progress,
    "InputRejected": _rejected,
    "ParallelLoopStart": _parallel_start,
    "ParallelLoopEnd": _parallel_end,
    "CompactionStarted": _compaction_start,
    "CompactionEnded": _compaction_end,
    "PrunApplied": _prune,
    "RevertApplied": _revert,
}
"""Kind of event → function that reads it."""
