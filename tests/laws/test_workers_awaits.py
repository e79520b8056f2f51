"""A worker that is killed or cancelled at any await of its work on a session: who goes on makes the same log of it."""

import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import pytest

from bus import AssistantMessage, Bus, Envelope, ToolResultMessage, TurnId
from handlers.agent.marks import CUT
from tests.handlers.agents import log
from tests.laws.await_scenarios import SCENARIOS, Scenario
from tests.laws.cancelling import Moment, cut
from tests.laws.clerk import Book, Line
from tests.laws.crew import Crew, crew_at
from tests.laws.normal import normal
from tests.laws.working_off import work_off
from tests.servers import RealServer

__all__ = ()

MOST = 2_000
"""awaits of the work on one session; a scenario that has more does not come to its end"""

SIDE_BY_SIDE = 4
"""processes"""


UNNAMED = "a turn that is begun again behind a cut does not name the results that it answers"

NAMES = [
    pytest.param(name, marks=pytest.mark.xfail(reason=UNNAMED, strict=True)) if name == "two tools" else name
    for name in SCENARIOS
]


@pytest.fixture
def book(valkey: RealServer) -> Book:
    return Book(valkey.directory / "book")


class Recorded(NamedTuple):
    """What stands in a log and was paid for."""

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


def _calls(lines: Sequence[Line], session: str) -> Recorded:
    """The outside calls that were made for a session."""
    kinds = Counter(line.kind for line in lines if line.session == session)
    return Recorded(kinds["model"], kinds.total() - kinds["model"])


async def _undisturbed(bus: Bus, scenario: Scenario, book: Book) -> list[Envelope]:
    session = bus.session("undisturbed")
    await work_off(session, scenario, scenario.agent(book))
    entries = await log(session)
    assert Recorded.of(entries) == _calls(book.lines(), session.id) == (scenario.turns, scenario.tools)
    return entries


async def _go_on(bus: Bus, name: str, scenario: Scenario, book: Book, wanted: Sequence[Envelope]) -> bool:
    """Go on with a session whose worker is gone, and see that it comes to the wanted end; gives whether it was cut."""
    session = bus.session(name)
    before, paid = Recorded.of(await log(session)), _calls(book.lines(), name)
    await work_off(session, scenario, scenario.agent(book))
    entries = await log(session)
    assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
    assert _unnamed(normal(entries), name) == _unnamed(normal(wanted), wanted[0].session)
    all_paid = _calls(book.lines(), name)
    # What was recorded is not paid for again; all else is, once.
    assert all_paid.answers - paid.answers == scenario.turns - before.answers
    assert all_paid.results - paid.results == scenario.tools - before.results
    keys = {line.key for line in book.lines() if line.session == name and line.kind not in {"model", "lease"}}
    assert len(keys) == scenario.tools, "a call has another key each time"
    assert await session.open_messages() == []
    return len(entries) != len(wanted)


def _unnamed(entries: Sequence[object], session: str) -> list[str]:
    return [str(entry).replace(session, "SESSION") for entry in entries]


@pytest.mark.parametrize("name", NAMES)
async def test_a_worker_that_is_killed_at_any_await_leaves_what_another_makes_whole(
    valkey: RealServer, book: Book, name: str
) -> None:
    scenario = SCENARIOS[name]
    async with valkey.bus() as bus:
        wanted = await _undisturbed(bus, scenario, book)
        with crew_at(valkey, book.path) as crew:
            killed = _kill_everywhere(crew, name)
        cuts = 0
        for session in killed:
            cuts += await _go_on(bus, session, scenario, book, wanted)
        print(f"{name}: killed at {len(killed)} awaits, of which {cuts} left something to be closed")
        assert len(killed) >= 20
        assert cuts


def _kill_everywhere(crew: Crew, name: str, mutant: str = "") -> list[str]:
    """Have a process die at its first await, one at its second, and so on; gives the sessions they worked on."""
    killed: list[str] = []
    for first in range(1, MOST, SIDE_BY_SIDE):
        sessions = [f"k{at}" for at in range(first, first + SIDE_BY_SIDE)]
        pids = [crew.start_turns(name, session, int(session[1:]), mutant=mutant) for session in sessions]
        ends = [os.waitstatus_to_exitcode(crew.wait(pid)) for pid in pids]
        assert set(ends) <= {0, -9}, "a process ended by itself"
        killed += [session for session, end in zip(sessions, ends, strict=True) if end == -9]
        if 0 in ends:
            return killed
    raise AssertionError(f"more than {MOST} awaits")


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("name", NAMES)
async def test_a_worker_that_is_cancelled_at_any_await_leaves_what_another_makes_whole(
    valkey: RealServer, book: Book, name: str, moment: Moment
) -> None:
    scenario = SCENARIOS[name]
    async with valkey.bus() as bus:
        wanted = await _undisturbed(bus, scenario, book)
        cuts = 0
        for at in range(1, MOST):
            session = bus.session(f"c{at}")
            working = partial(work_off, session, scenario, scenario.agent(book))
            trial = await cut(working, at=at, moment=moment, is_deep=True)
            assert trial.is_honest, trial
            if not trial.is_cut:
                break
            cuts += await _go_on(bus, session.id, scenario, book, wanted)
        else:
            raise AssertionError(f"more than {MOST} awaits")
        print(f"{name}: cancelled at {at - 1} awaits, of which {cuts} left something to be closed")
        assert cuts
