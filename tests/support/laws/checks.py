"""Check the log of a session whose workers were killed, paused or cancelled. Pure.

Every word of a user has one tool call, every call one result, every turn one answer and every loop an end. No worker
wrote after it had lost the session's lease. The normal form of a log leaves out turns that were cut and repeated, and
what differs in each run.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, NamedTuple, cast

from pydantic import JsonValue

from lanebus import AssistantMessage, DecodeFailure, Envelope, ExtensionMessage, Lane, ToolResultMessage, UserMessage
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    MessageEnded,
    MessageStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    parse_event,
)
from lanebus.handlers.context import READ_UP_TO
from lanebus.messages import TurnId
from tests.support.laws.history import Line, handled

CUT = "lanebus.cut"
"""key in the metadata of an answer that was cut"""

HANDED_BACK = "worker.stopped"
"""published by a worker that has released its lease"""


class Fault(NamedTuple):
    """Something that must not be in a log."""

    kind: Literal["hole", "unanswered", "twice", "open", "fenced"]
    session: str
    text: str


class _Leases:
    """The process and epochs of each lease of a session, as the processes themselves wrote them into the history."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._holders = {(line.session, int(line.key)): line.pid for line in lines if line.kind == "lease"}
        self._pids: dict[str, int] = {}
        self._epochs: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for (session, epoch), pid in sorted(self._holders.items()):
            self._epochs[session, pid].append(epoch)

    def learn(self, entries: Sequence[Envelope]) -> None:
        """Learn which process each producer is: some entries name their epoch."""
        for entry in entries:
            epoch = _named_epoch(entry)
            pid = self._holders.get((entry.session, epoch)) if epoch is not None else None
            if pid is not None:
                self._pids.setdefault(entry.producer, pid)

    def epochs(self, session: str, producer: str) -> list[int] | None:
        """Return the epochs under which a producer may write to a session; None if it is no worker."""
        pid = self._pids.get(producer)
        return None if pid is None else self._epochs[session, pid]


@dataclass
class _Tally:
    said: list[str] = field(default_factory=list[str])
    places: dict[str, int] = field(default_factory=dict[str, int])
    called: Counter[str] = field(default_factory=Counter[str])
    calls: set[str] = field(default_factory=set[str])
    results: Counter[str] = field(default_factory=Counter[str])
    answers: Counter[TurnId] = field(default_factory=Counter[TurnId])
    cut: set[TurnId] = field(default_factory=set[TurnId])
    prompts: dict[int, set[TurnId]] = field(default_factory=lambda: defaultdict(set))
    started: Counter[str] = field(default_factory=Counter[str])
    ended: Counter[str] = field(default_factory=Counter[str])


def faults_of(lines: Sequence[Line], logs: Sequence[Sequence[Envelope]]) -> list[Fault]:
    """Return the faults of the sessions of workers that wrote these lines."""
    leases = _Leases(lines)
    for entries in logs:
        leases.learn(entries)
    return [fault for entries in logs for fault in _faults(entries, leases)]


def _faults(entries: Sequence[Envelope], leases: _Leases) -> list[Fault]:
    """Return the faults of one session."""
    session = entries[0].session
    found = [Fault(kind, session, text) for kind, text in _of_work(_counted(entries))]
    positions = [entry.position for entry in entries]
    if positions != list(range(1, len(entries) + 1)):
        found.append(Fault("hole", session, str(positions)))
    found += (Fault("fenced", session, text) for text in _of_leases(entries, leases))
    return found


def _counted(entries: Sequence[Envelope]) -> _Tally:
    tally = _Tally()
    for entry in entries:
        match entry.message:
            case UserMessage(turn_id=None) as message:
                tally.said.append(message.text_content())
                tally.places[message.text_content()] = entry.position
            case AssistantMessage(turn_id=TurnId() as turn_id) as message:
                tally.answers[turn_id] += 1
                if (message.metadata or {}).get(CUT):
                    tally.cut.add(turn_id)
                else:
                    tally.called.update(handled(message))
                    tally.calls.update(call.id for call in message.tool_calls())
            case ToolResultMessage(tool_call_id=call):
                tally.results[call] += 1
            case ExtensionMessage() as message:
                match parse_event(message):
                    case AgentStarted(loop_id=loop_id):
                        tally.started[loop_id] += 1
                    case AgentEnded(loop_id=loop_id):
                        tally.ended[loop_id] += 1
                    case TurnStarted(turn_id=turn_id, prompts=prompts):
                        for position in prompts:
                            tally.prompts[position].add(turn_id)
                    case _:
                        pass
            case _:
                pass
    return tally


def _of_work(tally: _Tally) -> Iterator[tuple[Literal["unanswered", "twice", "open"], str]]:
    for word in tally.said:
        turns = {str(turn) for turn in tally.prompts[tally.places[word]] - tally.cut}
        if not tally.called[word] or not turns:
            yield "unanswered", f"{word}: called for {tally.called[word]} times, in the turns {turns}"
        if tally.called[word] > 1 or len(turns) > 1:
            yield "twice", f"{word}: called for {tally.called[word]} times, in the turns {turns}"
    for call in tally.calls:
        if tally.results[call] != 1:
            yield "twice" if tally.results[call] else "unanswered", f"{call}: {tally.results[call]} results"
    for orphan in tally.results.keys() - tally.calls:
        yield "twice", f"{orphan}: a result of no call"
    for turn_id, count in tally.answers.items():
        if count > 1:
            yield "twice", f"{turn_id}: {count} answers"
    for loop in tally.started.keys() | tally.ended.keys():
        if (tally.started[loop], tally.ended[loop]) != (1, 1):
            yield "open", f"{loop}: started {tally.started[loop]} times, ended {tally.ended[loop]} times"


def _of_leases(entries: Sequence[Envelope], leases: _Leases) -> Iterator[str]:
    """Return the writes after another worker's takeover: no epochs that the process held can ascend along the log.

    Each entry counts with the lowest epoch possible, so an innocent worker is never reported.
    """
    least = 0
    for entry in entries:
        epochs = leases.epochs(entry.session, entry.producer)
        if epochs is None or (isinstance(entry.message, ExtensionMessage) and entry.message.kind == HANDED_BACK):
            continue
        named = _named_epoch(entry)
        if named is not None:
            epochs = [named]
        epoch = next((epoch for epoch in epochs if epoch >= least), None)
        if epoch is None:
            yield f"{entry.position}: written under {epochs} by {entry.producer}, after epoch {least}"
        else:
            least = epoch


def _named_epoch(entry: Envelope) -> int | None:
    """Return the epoch that an entry names. The id of an answer ends with it.

    The id of an answer that was lost with its worker names the worker that streamed it, not the one that recorded it.
    """
    match entry.message:
        case AssistantMessage(turn_id=TurnId() as turn_id, id=str(message_id)) as message:
            if (message.metadata or {}).get(CUT):
                return None
        case ExtensionMessage() as message:
            match parse_event(message):
                case MessageStarted(turn_id=turn_id, message_id=message_id):
                    pass
                case _:
                    return None
        case _:
            return None
    stem, _, epoch = message_id.rpartition(".")
    return int(epoch) if stem == str(turn_id) and epoch.isdecimal() else None


def extra_calls(lines: Sequence[Line], logs: Sequence[Sequence[Envelope]]) -> int:
    """Return the number of calls of the model and of `record` that led to no entry in a log."""
    made = sum(line.kind in {"model", "record"} for line in lines)
    recorded = 0
    for entries in logs:
        for entry in entries:
            match entry.message:
                case AssistantMessage(turn_id=TurnId()) as message:
                    recorded += not (message.metadata or {}).get(CUT)
                case ToolResultMessage(tool_name="record"):
                    recorded += 1
                case _:
                    pass
    return made - recorded


def repeated(lines: Sequence[Line], kind: str) -> set[str]:
    """Return the keys that a tool was called with more than once."""
    counts = Counter(line.key for line in lines if line.kind == kind)
    return {key for key, count in counts.items() if count > 1}


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
