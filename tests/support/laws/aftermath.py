"""Check a session's log after its workers were struck while they wrote it. Pure.

Every word of a user has one tool call, every call one result, every turn one answer and every loop an end. No worker
wrote after it had lost the session's lease.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from lanebus import AssistantMessage, Envelope, ExtensionMessage, ToolResultMessage, UserMessage
from lanebus.bus.messages import AgentEnded, AgentStarted, MessageStarted, TurnStarted, parse_event
from lanebus.handlers.agent.metadata_keys import CUT
from lanebus.messages import TurnId
from tests.support.laws.clerk import Line, handled

__all__ = ("Fault", "Leases", "extra_calls", "find_faults", "repeated")

HANDED_BACK = "worker.stopped"
"""published by a worker that has released its lease"""


class Fault(NamedTuple):
    """Something that must not be in a log."""

    kind: Literal["hole", "unanswered", "twice", "open", "deposed"]
    session: str
    text: str


class Leases:
    """The process and epochs of each lease of a session, as the processes themselves wrote them into the book."""

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


def find_faults(entries: Sequence[Envelope], leases: Leases) -> list[Fault]:
    """Return the faults of one session."""
    session = entries[0].session
    found = [Fault(kind, session, text) for kind, text in _of_work(_counted(entries))]
    positions = [entry.position for entry in entries]
    if positions != list(range(1, len(entries) + 1)):
        found.append(Fault("hole", session, str(positions)))
    found += (Fault("deposed", session, text) for text in _of_leases(entries, leases))
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


def _of_leases(entries: Sequence[Envelope], leases: Leases) -> Iterator[str]:
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
