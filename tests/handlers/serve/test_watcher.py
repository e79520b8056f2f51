"""The overview that a look at a bus returns, the cost of a look, and rates computed from successive looks."""

import time
from decimal import Decimal

import pytest

from lanebus import AssistantMessage, Bus, ExtensionMessage, Session, TextBlock, Usage, UserMessage
from lanebus.bus.messages import AgentEnded, ControlAnswered, Pause, ToolWaiting, TurnEnded, TurnStarted
from lanebus.handlers.serve import SessionStatus, Watcher, overview_json
from lanebus.handlers.serve.watcher import WINDOW_SECONDS, Pacer, Step, WatcherBounds
from lanebus.messages import Cost, TurnId
from tests.support.agent.agents import log
from tests.support.log.groups import take_all, take_one, wake
from tests.support.page.samples import begun
from tests.support.servers.real import eventually

SPENT = Usage(input=100, total_tokens=100, cost=Cost(total=Decimal("0.25")))


def turn_of(session: Session, index: int = 0) -> TurnId:
    return TurnId(loop_id=f"{session.id}.main.1", turn_index=index)


async def begin(session: Session, *calls: str) -> None:
    await session.publish(UserMessage.text("hi"), *begun(session.id, *calls))


async def end_turn(session: Session, index: int = 0) -> None:
    await session.publish(
        AssistantMessage(content=(TextBlock(text="ok"),)),
        TurnEnded(turn_id=turn_of(session, index), stop_reason="stop", usage=SPENT).as_extension(),
    )


async def only(watcher: Watcher) -> SessionStatus:
    [found] = (await watcher.look()).sessions
    return found


async def test_the_first_look_shows_a_session_that_has_waited_for_a_person_since_before(bus: Bus) -> None:
    seen = await Watcher(bus).look()
    assert (seen.groups, seen.sessions, seen.left_out, seen.pace) == ((), (), 0, None)
    session = bus.session("s1")
    await begin(session, "c1")
    await bus.session("s2").publish(UserMessage.text("hi"))
    found = await only(Watcher(bus))
    assert (found.session, found.worker, found.doing) == ("s1", None, "waiting")


async def test_a_session_is_shown_with_its_lease_and_what_it_does_until_its_loop_ends(bus: Bus) -> None:
    async with bus.consumer("agents", "w1") as consumer:
        session, watcher = bus.session("s1"), Watcher(bus)
        await begin(session)
        work = await take_one(consumer)
        lease = await session.acquire_lease("w1.token", 30)
        assert lease is not None
        found = await only(watcher)
        assert (found.session, found.group, found.worker, found.owner) == ("s1", "agents", "w1", "w1.token")
        assert (found.doing, found.loop_id, found.turn, found.position) == ("model", "s1.main.1", 0, 3)
        assert (found.epoch, found.seconds_left is not None) == (lease.epoch, True)
        await session.publish(ToolWaiting(turn_id=turn_of(session), tool_call_id="c", tool_name="t").as_extension())
        await consumer.ack(work)
        found = await only(watcher)
        assert (found.doing, found.worker) == ("waiting", None)
        ended = AgentEnded(loop_id="s1.main.1", stop_reason="aborted", turns=1, usage=Usage())
        await session.publish(ended.as_extension())
        assert (await watcher.look()).sessions == ()


async def test_a_session_that_was_paused_is_shown_from_then_on(bus: Bus) -> None:
    async with bus.consumer("agents", "w1"):
        session, watcher = bus.session("s1"), Watcher(bus)
        await watcher.look()
        receipt = await session.publish(Pause().as_extension())
        await session.publish(ControlAnswered(control=receipt.position, outcome="applied").as_extension())
        assert (await only(watcher)).doing == "paused"


async def test_the_pace_covers_what_happened_between_two_looks(bus: Bus) -> None:
    session, watcher = bus.session("s1"), Watcher(bus)
    await begin(session)
    await end_turn(session)
    newest = (await log(session))[-1].time
    await eventually(lambda: time.time() > newest + 0.002)  # the server's clock counts milliseconds
    await watcher.look()
    for index in range(1, 4):
        await end_turn(session, index)
    pace = (await watcher.look()).pace
    assert pace is not None
    assert round(pace.publishes * pace.seconds) == 3
    assert round(pace.turns * pace.seconds) == 3
    assert round(pace.tokens * pace.seconds / 60) == 300
    assert pace.dollars is not None
    assert round(pace.dollars * Decimal(pace.seconds) / 60, 6) == Decimal("0.75")
    assert not pace.is_estimate
    later = (await watcher.look()).pace
    assert later is not None
    assert round(later.turns * later.seconds) == 3


async def test_the_pace_is_extrapolated_from_a_part_of_many_sessions(bus: Bus) -> None:
    watcher = Watcher(bus, bounds=WatcherBounds(changed_sessions=3, reads_at_once=2))
    await watcher.look()
    for number in range(6):
        await end_turn(bus.session(f"s{number}"))
    pace = (await watcher.look()).pace
    assert pace is not None
    assert pace.is_estimate
    assert round(pace.turns * pace.seconds) == 6


async def test_a_turn_that_began_long_ago_is_known_by_its_newest_entries(bus: Bus) -> None:
    async with bus.consumer("agents", "w1") as consumer:
        session, watcher = bus.session("s1"), Watcher(bus, bounds=WatcherBounds(entries_before_end=10))
        await begin(session)
        await session.publish(*(ExtensionMessage.of("tick", number) for number in range(20)))
        await session.publish(TurnStarted(turn_id=turn_of(session, 7)).as_extension())
        await take_one(consumer)
        found = await only(watcher)
        assert (found.doing, found.loop_id, found.turn) == ("model", "s1.main.1", 7)


async def test_a_look_reads_only_the_newest_entries_of_a_session(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def evolve(watched: object, envelope: object, since: float) -> None:
        del watched, since
        seen.append(envelope.position)  # type: ignore[attr-defined]  # an envelope

    monkeypatch.setattr("lanebus.handlers.serve.watcher._evolve", evolve)
    session, watcher = (
        bus.session("s1"),
        Watcher(bus, bounds=WatcherBounds(entries_before_end=10, entries_before_publish=2)),
    )
    await session.publish(*(TurnStarted(turn_id=turn_of(session, n)).as_extension() for n in range(90)))
    await watcher.look()
    await session.publish(TurnStarted(turn_id=turn_of(session, 90)).as_extension())
    await watcher.look()
    assert seen == list(range(90 - 10 + 1, 92))  # the first look reads ten, the second one what is new


async def test_a_session_that_was_trimmed_or_erased_stops_no_look(bus: Bus) -> None:
    async with bus.consumer("agents", "w1") as consumer:
        trimmed, erased, watcher = bus.session("s1"), bus.session("s2"), Watcher(bus)
        await begin(trimmed)
        await begin(erased)
        await take_all(consumer, 2)
        await trimmed.trim(3, force=True)
        await erased.erase(force=True)
        found = {each.session: each for each in (await watcher.look()).sessions}
        assert (found["s1"].doing, found["s1"].turn) == ("model", 0)
        assert "s2" not in found or found["s2"].doing == "idle"


async def test_the_number_of_sessions_shown_is_bounded(bus: Bus) -> None:
    async with bus.consumer("agents", "w1") as consumer:
        await wake(bus, *(f"s{number}" for number in range(12)))
        await take_all(consumer, 12)
        seen = await Watcher(bus, bounds=WatcherBounds(sessions=5)).look()
        assert (len(seen.sessions), seen.left_out) == (5, 7)


async def test_only_the_groups_asked_for_are_shown(bus: Bus) -> None:
    async with bus.consumer("one", "w1") as one, bus.consumer("two", "w2") as two:
        await wake(bus, "a")
        await take_one(one)
        await take_one(two)
        assert [group.name for group in (await Watcher(bus).look()).groups] == ["one", "two"]
        seen = await Watcher(bus, ["two"]).look()
        assert [group.name for group in seen.groups] == ["two"]
        assert [session.worker for session in seen.sessions] == ["w2"]


async def test_sessions_that_wait_for_an_agent_without_a_worker_are_counted_until_one_serves_it(bus: Bus) -> None:
    watcher, first_two = Watcher(bus), Watcher(bus, bounds=WatcherBounds(agents=2))
    for name, agent in (("s", "support"), ("t", "support"), ("u", "billing"), ("v", "triage"), ("w", "triage")):
        await bus.session(name, agent=agent).publish(UserMessage.text("hi"))

    async def waiting(by: Watcher) -> dict[str, int]:
        return {work.agent: work.lag for work in (await by.look()).without_worker}

    assert await waiting(watcher) == {"support": 2, "billing": 1, "triage": 2}
    assert await waiting(first_two) == {"support": 2, "triage": 2}
    async with bus.consumer("blue", "w1", agents=("support",)) as consumer:
        await take_one(consumer)
        assert await waiting(watcher) == {"billing": 1, "triage": 2}
        await consumer.deregister()
    assert await waiting(watcher) == {"support": 2, "billing": 1, "triage": 2}
    assert await waiting(Watcher(bus, ["blue"])) == {"support": 2}


async def test_an_overview_is_json_with_what_a_program_would_ask(bus: Bus) -> None:
    async with bus.consumer("agents", "w1") as consumer:
        watcher = Watcher(bus)
        await begin(bus.session("s1"))
        await take_one(consumer)
        first, second = overview_json(await watcher.look()), overview_json(await watcher.look())
        assert first["pace"] is None
        assert isinstance(second["pace"], dict)
        assert second["pace"]["dollars"] == "0.000000"
        assert list(first) == ["time", "groups", "without_worker", "sessions", "sessions_left_out", "pace"]


# --- rates ----------------------------------------------------------------------------------------------------------


def used(tokens: int, dollars: str | None = None) -> Usage:
    cost = None if dollars is None else Cost(total=Decimal(dollars))
    return Usage(input=tokens, total_tokens=tokens, cost=cost)


@pytest.mark.parametrize(
    ("step", "rates", "tokens", "dollars"),
    [
        (Step(2.0, 10, 10, (used(100, "0.5"), used(20, "0.25"))), (5, 1, False), 3_600, "22.5"),
        (Step(1.0, 100, 25, (used(10, "1"),)), (100, 4, True), 2_400, "240"),  # extrapolated, as only a part was read
        (Step(1.0, 100, 0, ()), (100, 0, False), 0, "0"),  # nothing was read
        (Step(1.0, 1, 1, (used(10),)), (1, 1, False), 600, None),  # an unknown cost is not zero
        (Step(1.0, 1, 1, (used(10), used(10, "1"))), (1, 2, False), 1_200, "60"),
    ],
)
def test_rates_are_per_second_and_per_minute(
    step: Step, rates: tuple[float, float, bool], tokens: float, dollars: str | None
) -> None:
    pace = Pacer().add(step)
    assert (pace.publishes, pace.turns, pace.is_estimate) == rates
    assert pace.tokens == pytest.approx(tokens)
    assert pace.dollars == (None if dollars is None else pytest.approx(Decimal(dollars)))


def test_steps_before_the_window_do_not_count_and_a_step_longer_than_it_counts_whole() -> None:
    for steps in ([Step(1.0, 5, 5, ())] * int(WINDOW_SECONDS), [Step(60.0, 60, 60, ())]):
        pacer = Pacer()
        pacer.add(Step(1.0, 1_000, 1_000, ()))
        pace = [pacer.add(step) for step in steps][-1]
        seconds = sum(step.seconds for step in steps)
        assert (pace.seconds, pace.publishes) == (seconds, steps[0].publishes / steps[0].seconds)
