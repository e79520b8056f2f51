"""The normal form of a log: without turns that were cut and repeated, and without what differs in each run. Pure."""

import json
from collections.abc import Mapping, Sequence, Set
from itertools import groupby
from typing import cast

from pydantic import JsonValue

from lanebus import AssistantMessage, DecodeFailure, Envelope, ExtensionMessage, Lane, ToolResultMessage
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    MessageEnded,
    MessageStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    parse_event,
)
from lanebus.handlers.agent.metadata_keys import CUT
from lanebus.handlers.context import READ_UP_TO
from lanebus.messages import TurnId

__all__ = ("normal",)

Entry = dict[str, JsonValue]

Cut = Set[tuple[str, int]]
"""turns, as loop id and turn index"""


def normal(entries: Sequence[Envelope]) -> list[Entry]:
    """Return the log's entries as JSON, without the turns that were cut. Later turns are renumbered.

    Left out: the answer that was cut and its events; a repeated start of a turn or tool; a worker's `worker.stopped`.
    Made equal: times, epochs in ids, positions, the order of results, and sums over a loop, which include cut turns.
    """
    cut = frozenset(turn for turn in map(_cut_turn, entries) if turn is not None)
    kept = [entry for entry in entries if not _is_of(entry, cut)]
    seen: set[tuple[object, ...]] = set()
    whole: list[Envelope] = []
    for entry in kept:
        name = _repeatable(entry)
        if name is None or name not in seen:
            whole.append(entry)
        if name is not None:
            seen.add(name)
    whole = _in_call_order(whole)
    places = {entry.position: number for number, entry in enumerate(whole, 1)}
    llm = [entry.position for entry in whole if entry.lane is Lane.LLM]
    return [_entry(entry, cut, places, llm) for entry in whole]


def _in_call_order(entries: Sequence[Envelope]) -> list[Envelope]:
    """Sort the results of one turn in the order of its calls. A stopping worker records those it has first."""
    calls: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry.message, AssistantMessage):
            calls.update((call.id, len(calls) + place) for place, call in enumerate(entry.message.tool_calls()))
    return [
        entry
        for is_result, group in groupby(entries, lambda entry: _result_of(entry) is not None)
        for entry in (sorted(group, key=lambda entry: calls[_result_of(entry) or ""]) if is_result else group)
    ]


def _result_of(entry: Envelope) -> str | None:
    """Return the call that a result or its event belongs to."""
    if isinstance(entry.message, ToolResultMessage):
        return entry.message.tool_call_id
    event = _event(entry)
    return event.tool_call_id if isinstance(event, ToolEnded) else None


def _cut_turn(entry: Envelope) -> tuple[str, int] | None:
    match entry.message:
        case AssistantMessage(turn_id=TurnId() as turn_id, metadata=dict(metadata)) if metadata.get(CUT):
            return _key(turn_id)
        case _:
            return None


def _key(turn_id: TurnId) -> tuple[str, int]:
    return turn_id.loop_id, turn_id.turn_index


def _event(entry: Envelope) -> AgentEvent | None:
    return parse_event(entry.message) if isinstance(entry.message, ExtensionMessage) else None


def _is_of(entry: Envelope, cut: Cut) -> bool:
    """Return whether an entry belongs to a cut turn or reports on a worker."""
    match entry.message:
        case AssistantMessage(turn_id=TurnId() as turn_id):
            return _key(turn_id) in cut
        case ExtensionMessage(kind="worker.stopped"):
            return True
        case _:
            pass
    match _event(entry):
        case TurnStarted(turn_id=turn_id) | TurnEnded(turn_id=turn_id):
            return _key(turn_id) in cut
        case MessageStarted(turn_id=turn_id) | MessageEnded(turn_id=turn_id):
            return _key(turn_id) in cut
        case _:
            return False


def _repeatable(entry: Envelope) -> tuple[object, ...] | None:
    """Return a name for an entry that a successor may repeat; the second one adds nothing."""
    match _event(entry):
        case TurnStarted(turn_id=turn_id, prompts=prompts):
            return "turn", turn_id, prompts
        case MessageStarted(turn_id=turn_id):
            return "message", turn_id
        case ToolStarted(turn_id=turn_id, tool_call_id=call):
            return "tool", turn_id, call
        case _:
            return None


def _entry(entry: Envelope, cut: Cut, places: Mapping[int, int], llm: Sequence[int]) -> Entry:
    assert not isinstance(entry.message, DecodeFailure)
    said = cast("Entry", json.loads(entry.message.to_json()))
    said.pop("timestamp", None)
    metadata = said.get("metadata")
    if isinstance(metadata, dict) and isinstance(seen := metadata.get(READ_UP_TO), int):
        metadata[READ_UP_TO] = sum(position <= seen for position in llm)
    data = said.get("data")
    if isinstance(data, dict):
        if isinstance(shown := data.get("shown"), int):
            data["shown"] = sum(position <= shown for position in llm)
        for name in ("prompts", "toolResults", "held"):
            if isinstance(found := data.get(name), list):
                data[name] = [*sorted(places.get(cast("int", position), 0) for position in found)]
        for name in ("message", "position", "control"):
            if isinstance(found := data.get(name), int):
                data[name] = places.get(found, 0)
        if isinstance(_event(entry), AgentEnded):
            data.pop("turns", None)
            data.pop("usage", None)
        data.pop("attempt", None)
    _renumber(said, cut)
    return {"lane": entry.lane.value, **said}


def _renumber(said: Entry, cut: Cut) -> None:
    """Renumber turns from 0 without the cut ones, and drop the epoch from the end of message ids."""
    for holder in (said, said.get("data")):
        if not isinstance(holder, dict):
            continue
        match holder.get("turnId"):
            case {"loopId": str(loop), "turnIndex": int(index)}:
                number = index - sum(turn[0] == loop and turn[1] < index for turn in cut)
                turn: Entry = {"loopId": loop, "turnIndex": number}
                holder["turnId"] = turn
                for name in ("messageId", "id"):
                    if isinstance(holder.get(name), str):
                        holder[name] = f"{loop}.{number}"
            case _:
                pass
