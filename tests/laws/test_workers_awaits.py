"""A worker that is killed or cancelled at any await of its work: its successor completes the same log."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import pytest

from lanebus import AssistantMessage, Bus, Envelope, ExtensionMessage, ToolResultMessage
from lanebus.agent import FunctionTool, RunBounds
from lanebus.bus.messages import Abort, AgentEnded, ControlAnswered, parse_event
from lanebus.handlers.agent import OpenAnswer, Run, ToolContext, is_cut
from lanebus.handlers.agent.turn.loop_state import open_answer
from lanebus.messages import TurnId
from tests.support.agent.agents import log
from tests.support.laws.await_scenarios import SCENARIOS, Scenario, work_off
from tests.support.laws.cancelling import Moment, cut, watched
from tests.support.laws.checks import CUT, normal
from tests.support.laws.history import History, Line
from tests.support.laws.tiny import LAW_PATIENT, RUN_TINY, is_tiny, shrink
from tests.support.laws.worker_processes import Forks, Workers, workers_on
from tests.support.servers.real import RealServer
from tests.support.suite.scale import count, randomness

MOST = 2_000
"""largest number of awaits of the work on one session; a scenario with more counts as endless"""

SIDE_BY_SIDE = 4
"""number of processes"""

NEAR = 3
"""Awaits before and after the start of an outside call that are tested at every scale: there its outcome is unknown."""


class Recorded(NamedTuple):
    """The content of a log and the outside calls that were paid for."""

    answers: int
    results: int

    @classmethod
    def of(cls, entries: Sequence[Envelope]) -> "Recorded":
        messages = [entry.message for entry in entries]
        whole = [
            message
            for message in messages
            if isinstance(message, AssistantMessage)
            and isinstance(message.turn_id, TurnId)
            and not (message.metadata or {}).get(CUT)
        ]
        return cls(len(whole), sum(isinstance(message, ToolResultMessage) for message in messages))

    def __sub__(self, other: "Recorded") -> "Recorded":
        return Recorded(self.answers - other.answers, self.results - other.results)


def _calls(lines: Sequence[Line], session: str) -> Recorded:
    """Return the outside calls of a session."""
    kinds = Counter(line.kind for line in lines if line.session == session)
    return Recorded(kinds["model"], kinds.total() - kinds["model"])


class Undisturbed(NamedTuple):
    """The result of a scenario without a fault."""

    entries: Sequence[Envelope]
    sizes: Sequence[int]
    """the size of the history at each await"""

    def awaits(self, *names: object) -> Iterator[int]:
        """Return the awaits to test: all at scale 1; otherwise those around outside calls and a share of the others.

        Continues after the last known await, as a run may have more.
        """
        calls = [at for at in range(1, len(self.sizes)) if self.sizes[at] != self.sizes[at - 1]]
        every = len(self.sizes) // count(len(self.sizes))
        random, some = randomness(*names), 0
        for at in range(1, MOST):
            if at % every == 1 % every:  # one of every `every` awaits
                some = at + random.randrange(every)
            if at == some or at > len(self.sizes) or any(abs(at - call) <= NEAR for call in calls):
                yield at
        raise AssertionError(f"more than {MOST} awaits")


def _run_bounds(server: RealServer) -> RunBounds:
    return RunBounds() if server.bounds is None else RUN_TINY


async def _undisturbed(bus: Bus, scenario: Scenario, history: History, run_bounds: RunBounds) -> Undisturbed:
    await work_off(bus.session("first"), scenario, history)  # connects, so that later runs need not
    session = bus.session("undisturbed")
    sizes = await watched(work_off(session, scenario, history, bounds=run_bounds), lambda: history.size)
    entries = await log(session)
    assert Recorded.of(entries) == _calls(history.lines(), session.id) == (scenario.turns, scenario.tools)
    return Undisturbed(entries, sizes)


async def _go_on(bus: Bus, name: str, scenario: Scenario, history: History, wanted: Sequence[Envelope]) -> bool:
    """Continue a session whose worker is gone, and check that it ends as wanted. Return whether a turn was cut."""
    session = bus.session(name)
    begun, paid = await log(session), _calls(history.lines(), name)
    shown = {message.message_id for message in await session.open_messages()}
    await work_off(session, scenario, history)
    entries = await log(session)
    assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
    assert await session.open_messages() == []
    assert shown <= {getattr(entry.message, "id", None) for entry in entries}, "what was shown is not in the log"
    again = _calls(history.lines(), name) - paid
    keys = Counter(line.key for line in history.lines() if line.session == name and line.kind not in {"model", "lease"})
    is_aborted = any(_is_abort(entry) for entry in begun)
    if is_aborted or not (scenario.is_repeated and scenario.is_ordered):
        assert sorted(_ends(entries)) == sorted(_ends(wanted))
    else:
        assert _unnamed(normal(entries), name) == _unnamed(normal(wanted), wanted[0].session)
    if is_aborted:
        assert again == (0, 0), "what was aborted was asked for again"
    elif scenario.is_repeated:
        # A recorded call is not paid for again; every other call is, once.
        assert again == Recorded(scenario.turns, scenario.tools) - Recorded.of(begun)
        assert len(keys) == scenario.tools, "a call has another key each time"
    else:
        assert again.answers == scenario.turns - Recorded.of(begun).answers
        assert set(keys.values()) <= {1}, "a call was run twice"
    return len(entries) != len(wanted)


def _is_abort(entry: Envelope) -> bool:
    return isinstance(entry.message, ExtensionMessage) and entry.message.kind == Abort.KIND


def _ends(entries: Sequence[Envelope]) -> list[tuple[str, str]]:
    """Return how a log's loops ended, the answers to its commands, and the calls that have results."""
    found: list[tuple[str, str]] = []
    for entry in entries:
        match entry.message:
            case ExtensionMessage() as message:
                match parse_event(message):
                    case AgentEnded(stop_reason=stop_reason):
                        found.append(("ended", stop_reason))
                    case ControlAnswered(outcome=outcome):
                        found.append(("answered", outcome))
                    case _:
                        pass
            case ToolResultMessage(tool_call_id=call):
                found.append(("result", call))
            case _:
                pass
    return found


def _unnamed(entries: Sequence[object], session: str) -> list[str]:
    return [str(entry).replace(session, "SESSION") for entry in entries]


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_worker_that_is_killed_at_any_await_leaves_what_another_makes_whole(
    valkey: RealServer, forks: Forks, history: History, name: str
) -> None:
    if is_tiny(list(SCENARIOS).index(name)):
        shrink(valkey, LAW_PATIENT)
    killed, cuts = await _killed(valkey, forks, history, name)
    print(f"{name}: killed at {killed} awaits, of which {cuts} left something to be closed")
    assert killed >= count(20)
    assert cuts


async def _killed(server: RealServer, forks: Forks, history: History, name: str) -> tuple[int, int]:
    """Return the number of killed processes, and of those that left entries an undisturbed log does not have."""
    scenario = SCENARIOS[name]
    async with server.bus() as bus:
        wanted = await _undisturbed(bus, scenario, history, _run_bounds(server))
        with workers_on(forks, server, history.path) as workers:
            killed = _kill_at(workers, name, wanted.awaits("killed", name))
        return len(killed), sum([await _go_on(bus, session, scenario, history, wanted.entries) for session in killed])


async def _nothing(_: Run) -> bool:
    return False


def _change_keys(patch: pytest.MonkeyPatch) -> None:
    """Give a call another key at each attempt."""
    patch.setattr(ToolContext, "key", property(lambda context: f"{context.turn_id}.{context.place}.{context.attempt}"))


def _run_again(patch: pytest.MonkeyPatch) -> None:
    """Allow every tool to run twice."""
    patch.setattr(FunctionTool, "idempotent", property(lambda _: True, lambda _, value: None), raising=False)


def _forget_results(patch: pytest.MonkeyPatch) -> None:
    """Let a turn that starts again after a cut omit the results that it answers."""
    patch.setattr("lanebus.handlers.agent.turn.loop_state.open_answer", _without_results)


def _without_results(path: Sequence[Envelope]) -> OpenAnswer | None:
    answer = open_answer(path)
    return answer._replace(results=()) if answer is not None and is_cut(answer.message) else answer


@pytest.mark.full
async def test_a_lost_answer_that_is_not_recorded_is_found(
    valkey: RealServer, forks: Forks, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lanebus.handlers.agent.loop.record_lost", _nothing)
    with pytest.raises(AssertionError, match="what was shown is not in the log"):
        await _killed(valkey, forks, history, "an answer")


@pytest.mark.full
@pytest.mark.parametrize(
    ("plant", "name"),
    [(_change_keys, "two tools"), (_run_again, "a tool that is not run twice"), (_forget_results, "two tools")],
)
async def test_a_fault_of_who_goes_on_is_found(
    valkey: RealServer,
    history: History,
    plant: Callable[[pytest.MonkeyPatch], None],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        await _cancelled(valkey, history, name, Moment.LEVEL)


def _kill_at(workers: Workers, name: str, awaits: Iterator[int]) -> list[str]:
    """Have a process die at each of some awaits, until one has fewer awaits. Return their sessions."""
    killed: list[str] = []
    while True:
        pids = {f"k{at}": workers.start_turns(name, f"k{at}", at) for at in islice(awaits, SIDE_BY_SIDE)}
        ends = {session: os.waitstatus_to_exitcode(workers.wait(pid)) for session, pid in pids.items()}
        assert set(ends.values()) <= {0, -9}, f"a process ended by itself: {workers.complaints()}"
        killed += [session for session, end in ends.items() if end == -9]
        if 0 in ends.values():
            return killed


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        *((name, Moment.LEVEL) for name in SCENARIOS),  # a worker is cancelled at this moment
        *((name, moment) for name in ("an answer", "two tools") for moment in (Moment.EARLY, Moment.LATE)),
    ],
)
async def test_a_worker_that_is_cancelled_at_any_await_leaves_what_another_makes_whole(
    valkey: RealServer, history: History, name: str, moment: Moment
) -> None:
    if not is_tiny(list(SCENARIOS).index(name)):  # each scenario gets tiny bounds either here or where it is killed
        shrink(valkey, LAW_PATIENT)
    cancelled, cuts = await _cancelled(valkey, history, name, moment)
    print(f"{name}: cancelled at {cancelled} awaits, of which {cuts} left something to be closed")
    assert cancelled >= count(20)
    assert cuts


async def _cancelled(server: RealServer, history: History, name: str, moment: Moment) -> tuple[int, int]:
    """Return how often the work was cancelled, and how often that left entries an undisturbed log does not have."""
    scenario, cuts = SCENARIOS[name], 0
    async with server.bus() as bus:
        wanted = await _undisturbed(bus, scenario, history, _run_bounds(server))
        for cancelled, at in enumerate(wanted.awaits(moment, name)):
            session = bus.session(f"cancelled-{at}")
            working = partial(work_off, session, scenario, history, bounds=_run_bounds(server))
            trial = await cut(working, at=at, moment=moment, is_deep=True)
            assert trial.is_honest, trial
            if trial.suspensions < at:
                return cancelled, cuts
            cuts += await _go_on(bus, session.id, scenario, history, wanted.entries)
    raise AssertionError("the work has no end")
