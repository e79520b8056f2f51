"""A projection's state is the same however it came to be: live, resumed at any point, or folded anew."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from lanebus import AssistantMessage, Bus, Cursor, Delta, Envelope, ExtensionMessage, Session, Unavailable, Usage
from lanebus.errors import DecodeError, LogRolledBack, SessionErased
from lanebus.handlers.projections import look, projection
from lanebus.messages import AgentStarted, Cost, Publishable, UserMessage
from lanebus.projections import SESSIONS, TURNS, USAGE, Projected, Projection, UsageState, follow, project, rebuild
from tests.support.agent.folding import fold, log_of, through_json
from tests.support.agent.histories import POSITIONS, histories
from tests.support.log.said import said
from tests.support.servers.real import AnyServer, RealServer, eventually
from tests.support.suite.scale import examples

__all__ = ()


def at(projected: Projected[tuple[int, ...]]) -> tuple[tuple[int, ...], int]:
    """A state with its position."""
    return projected.state, projected.position


async def kept(session: Session) -> tuple[bytes, int]:
    """What is stored of `POSITIONS`, with its position."""
    checkpoint = await session.load_projection("positions", 1)
    assert checkpoint is not None
    return checkpoint.state, checkpoint.position


T = TypeVar("T")


def check_resumed(projection: Projection[T], log: list[Envelope], cut: int) -> None:
    whole = fold(projection, log)
    resumed = fold(projection, log[cut:], through_json(projection, fold(projection, log[:cut])))
    assert resumed == whole
    assert projection.dump(resumed) == projection.dump(whole)


@given(histories, st.integers(0, 25))
@examples(150)
def test_a_state_resumed_at_any_point_equals_the_state_folded_at_once(history: list[Publishable], cut: int) -> None:
    log = log_of(*history)
    check_resumed(USAGE, log, cut)
    check_resumed(TURNS, log, cut)
    check_resumed(SESSIONS, log, cut)


@given(histories)
@examples(100)
def test_the_parts_of_a_usage_add_up_to_its_total(history: list[Publishable]) -> None:
    usage = fold(USAGE, log_of(*history))
    turns = fold(TURNS, log_of(*history))

    assert sum(row.totals.calls for row in usage.models) == usage.total.calls
    for parts in ([row.totals.usage for row in usage.models], [turn.usage or Usage() for turn in turns.turns]):
        assert sum(part.input for part in parts) == usage.total.usage.input
        cost = usage.total.usage.cost
        assert sum((part.cost.total for part in parts if part.cost), Decimal(0)) == (cost.total if cost else 0)


SOME: Sequence[Publishable] = (
    UserMessage.text("hi"),
    ExtensionMessage.of("notification", None),
    AssistantMessage(usage=Usage(input=3, cost=Cost(total=Decimal("0.1")))),
    AgentStarted(loop_id="s1.main.1", agent="main").as_extension(),
    AssistantMessage(usage=Usage(input=4)),
)


async def test_live_resumed_and_rebuilt_states_are_equal(session: Session) -> None:
    await session.publish(*SOME)
    live: list[Projected[UsageState]] = []
    async with anyio.create_task_group() as tasks, aclosing(follow(session, USAGE)) as states:
        async for now in states:
            live.append(now)
            if now.position >= 5 + 2 * len(SOME):
                break
            if len(live) == 1:
                tasks.start_soon(publish_each, session, (*SOME, *SOME))

    resumed = await project(session, USAGE)
    rebuilt = await rebuild(session, USAGE)

    assert live[-1] == resumed == rebuilt
    assert [now.position for now in live] == list(range(5, 16))
    assert rebuilt.state.total.usage.input == 21


async def test_who_follows_a_log_that_goes_back_gets_the_state_folded_anew(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    await session.publish(*SOME)

    async def went_back(*, after: Cursor, **_: object) -> AsyncGenerator[Envelope, None]:
        monkeypatch.undo()
        raise LogRolledBack("s1", after.position, 2)
        yield  # makes it a generator

    monkeypatch.setattr(session, "subscribe", went_back)
    positions: list[int] = []
    async with anyio.create_task_group() as tasks, aclosing(follow(session, POSITIONS)) as states:
        async for now in states:
            positions.append(now.position)
            if len(positions) == 2:
                tasks.start_soon(publish_each, session, SOME[:1])
            if len(positions) == 3:
                break

    assert positions == [5, 5, 6]


async def publish_each(session: Session, some: Sequence[Publishable]) -> None:
    for message in some:
        await session.publish(message)


async def test_only_entries_after_the_checkpoint_are_read_and_both_lanes_are(session: Session) -> None:
    assert at(await project(session, POSITIONS)) == ((), 0)
    await session.publish(*SOME)
    await session.save_projection("positions", 1, b"[100]", cursor=Cursor(3), expected=0)

    assert at(await project(session, POSITIONS)) == ((100, 4, 5), 5)
    assert await kept(session) == (b"[100,4,5]", 5)
    assert at(await rebuild(session, POSITIONS)) == ((1, 2, 3, 4, 5), 5)
    assert await kept(session) == (b"[1,2,3,4,5]", 5)


async def test_another_version_does_not_read_what_the_first_one_stored(session: Session) -> None:
    await session.publish(*SOME)
    await session.save_projection("positions", 1, b"[100]", cursor=Cursor(5), expected=0)
    second = Projection(name="positions", version=2, state=POSITIONS.state, initial=(), evolve=POSITIONS.evolve)

    assert (await project(session, second)).state == (1, 2, 3, 4, 5)


async def test_a_log_that_went_back_is_folded_anew(session: Session) -> None:
    await session.publish(*SOME)
    # What a server that came back from an older copy looks like: the checkpoint is beyond the log's end.
    await session.save_projection("positions", 1, b"[1,2,3,4,5,6,7]", cursor=Cursor(7), expected=0)

    assert at(await project(session, POSITIONS)) == ((1, 2, 3, 4, 5), 5)
    assert await kept(session) == (b"[1,2,3,4,5]", 5)


@pytest.mark.parametrize("stored", [b"{", b'["x"]', b"\xff"])
async def test_a_stored_state_that_cannot_be_read_is_folded_anew(session: Session, stored: bytes) -> None:
    await session.publish(*SOME)
    await session.save_projection("positions", 1, stored, cursor=Cursor(5), expected=0)

    assert at(await project(session, POSITIONS)) == ((1, 2, 3, 4, 5), 5)
    assert await kept(session) == (b"[1,2,3,4,5]", 5)


async def test_who_loses_the_race_to_store_takes_the_newer_state(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = bus.session("s1")
    await slow.publish(*SOME)
    save = slow.save_projection

    async def save_late(name: str, version: int, state: bytes, *, cursor: Cursor, expected: int) -> bool:
        quick = bus.session("s1")
        await quick.publish(UserMessage.text("one more"))
        await project(quick, POSITIONS)
        return await save(name, version, state, cursor=cursor, expected=expected)

    monkeypatch.setattr(slow, "save_projection", save_late)

    assert at(await project(slow, POSITIONS)) == ((1, 2, 3, 4, 5, 6), 6)
    assert await kept(slow) == (b"[1,2,3,4,5,6]", 6)


async def test_many_who_project_at_once_agree(session: Session) -> None:
    await session.publish(*SOME)
    results: list[Projected[tuple[int, ...]]] = []

    async def one() -> None:
        results.append(await project(session, POSITIONS))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(one)

    assert [at(result) for result in results] == [((1, 2, 3, 4, 5), 5)] * 8


async def test_live_deltas_are_no_part_of_a_state(session: Session) -> None:
    await session.publish(SOME[0])
    await session.preview(Delta(kind="text", message_id="m", delta="Hel"))

    assert at(await project(session, POSITIONS)) == ((1,), 1)


async def test_a_long_fold_lets_other_tasks_run(tmp_path: Path) -> None:
    over, ticks, seen = anyio.Event(), 0, list[int]()

    def busy(state: int, envelope: Envelope) -> int:
        seen.append(ticks)
        end = perf_counter() + 0.002
        while perf_counter() < end:
            pass
        return state + 1

    async def tick() -> None:
        nonlocal ticks
        while not over.is_set():
            ticks += 1
            await anyio.lowlevel.checkpoint()

    projection = Projection(name="busy", version=1, state=TypeAdapter(int), initial=0, evolve=busy)
    async with Bus.open(data_dir=tmp_path) as bus:
        session = bus.session("s")
        await session.publish(*(UserMessage.text("x") for _ in range(100)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            assert (await project(session, projection)).state == 100
            over.set()
    assert len(set(seen)) >= 10  # all entries are on one page


# --- the states of a projection as entries arrive ------------------------------------------------------------------

Said = tuple[str, ...]

NOTE = ExtensionMessage.of("note")


@projection("said", version=1)
def heard(words: Said, message: UserMessage) -> Said:
    if message.text_content() == "odd":
        raise DecodeError("", "odd")
    return (*words, message.text_content())


async def take(states: AsyncGenerator[Projected[Said]], number: int) -> list[tuple[Said, int]]:
    found = [await anext(states) for _ in range(number)]
    return [(each.state, each.position) for each in found]


async def stored(session: Session) -> int:
    checkpoint = await session.load_projection("said", 1)
    return 0 if checkpoint is None else checkpoint.position


async def test_each_selected_entry_gives_a_state(server: AnyServer) -> None:
    async with server.bus() as bus, server.bus() as other:
        session = bus.session("s")
        await session.publish(said("a"))
        async with aclosing(follow(session, heard)) as states:
            assert await take(states, 1) == [(("a",), 1)]
            await other.session("s").publish(NOTE, said("b"), NOTE, said("c"))
            assert await take(states, 2) == [(("a", "b"), 3), (("a", "b", "c"), 5)]


async def test_following_after_a_cursor_gives_the_states_after_it(session: Session) -> None:
    await session.publish(said("a"), said("b"), NOTE, said("c"))
    async with aclosing(follow(session, heard)) as states:
        whole = await anext(states)
    cases: list[tuple[Cursor, list[tuple[Said, int]]]] = [
        (Cursor(0), [(("a",), 1), (("a", "b"), 2), (("a", "b", "c"), 4)]),
        (Cursor(2), [(("a", "b", "c"), 4)]),
        (Cursor(3), [(("a", "b", "c"), 4)]),
    ]
    for after, expected in cases:
        assert await stored(session) == 4
        async with aclosing(follow(session, heard, after=after)) as states:
            assert await take(states, len(expected)) == expected
    await session.publish(said("d"))
    async with aclosing(follow(session, heard, after=whole.cursor)) as states:
        assert await take(states, 1) == [(("a", "b", "c", "d"), 5)]


@pytest.mark.parametrize("after", [Cursor(9), Cursor(2, 0, "0_other")])
async def test_following_after_a_cursor_that_the_log_does_not_hold_begins_anew(session: Session, after: Cursor) -> None:
    await session.publish(said("a"), said("b"))
    async with aclosing(follow(session, heard, after=after)) as states:
        assert await take(states, 1) == [(("a", "b"), 2)]


async def test_the_state_is_stored_every_so_many_entries_selected_or_not(one: RealServer) -> None:
    async with one.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        async with aclosing(follow(session, heard, store_every=3)) as states:
            assert await take(states, 1) == [(("a",), 1)]
            await session.publish(said("b"), said("c"))
            await take(states, 2)
            assert await stored(session) == 1
            await session.publish(said("d"), said("e"))
            await take(states, 2)  # the second one is asked for after the checkpoint of the first
            assert await stored(session) == 4
            await session.publish(NOTE, NOTE, said("f"))
            await take(states, 1)
            await session.publish(said("g"))
            await take(states, 1)
            assert await stored(session) == 8
        # What another process folds from the checkpoint is the same.
        assert await project(session, heard) == await rebuild(session, heard)


async def test_a_checkpoint_moves_on_past_entries_that_are_not_selected(one: RealServer) -> None:
    async with one.bus() as bus, one.bus() as other:
        session = bus.session("s")
        await session.publish(said("a"))
        async with aclosing(follow(session, heard, store_every=3)) as states:
            await anext(states)
            await session.publish(NOTE, NOTE, NOTE)

            async def wait() -> None:
                await anext(states)  # nothing more is selected

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                while await stored(other.session("s")) < 4:  # noqa: ASYNC110  # another process tells of it
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()


async def test_a_checkpoint_of_another_process_is_not_overwritten_by_an_earlier_one(session: Session) -> None:
    await session.publish(said("a"))
    async with aclosing(follow(session, heard, store_every=1)) as states:
        await take(states, 1)
        await session.publish(said("b"), said("c"), said("d"))
        await project(session, heard)
        await take(states, 3)
        assert await stored(session) == 4
        await session.publish(said("e"), said("f"))
        await take(states, 2)
        assert await stored(session) == 5


async def test_a_position_moves_on_past_entries_that_are_not_selected(session: Session) -> None:
    await session.publish(said("a"), NOTE, NOTE)
    now = await project(session, heard)
    assert (now.state, now.cursor) == (("a",), (await session.head()).cursor)
    await session.publish(NOTE)
    assert (await project(session, heard)).position == 4
    assert await stored(session) == 4


async def test_another_version_is_folded_anew(session: Session) -> None:
    @projection("said", version=2)
    def lengths(numbers: tuple[int, ...], message: UserMessage) -> tuple[int, ...]:
        return (*numbers, len(message.text_content()))

    await session.publish(said("a"), said("bb"))
    await project(session, heard)
    assert (await project(session, lengths)).state == (1, 2)
    assert set(await session.checkpoints()) == {"p:said@1", "p:said@2"}
    assert await session.drop_projection("said", 1)


async def test_the_number_of_unreadable_events_survives_a_checkpoint(session: Session) -> None:
    for number in (1, 2):
        await session.publish(said("odd"), said("a"))
        now = await project(session, heard)
        assert (now.state, now.unreadable) == (("a",) * number, number)
        assert await look(session, heard) == now


async def test_following_an_erased_session_ends_with_its_error(session: Session) -> None:
    await session.publish(said("a"))
    async with aclosing(follow(session, heard)) as states:
        await anext(states)
        await session.erase()
        with pytest.raises(SessionErased):
            await anext(states)


async def test_following_waits_for_a_server_that_dies_after_a_rollback(valkey: RealServer) -> None:
    async with valkey.bus() as bus:
        session, found = bus.session("s"), list[tuple[Said, int]]()
        hub = bus._shards.of("s").hub  # pyright: ignore[reportPrivateUsage]  # when it notices shows nowhere else
        async with aclosing(follow(session, heard)) as states, anyio.create_task_group() as tasks:

            async def take_more() -> None:
                found.extend(await take(states, 2))

            await anext(states)
            await session.publish(said("a"))
            assert await take(states, 1) == [(("a",), 1)]
            valkey.do("FLUSHALL")
            valkey.kill()
            valkey.start()
            await eventually(lambda: hub.followed == {})
            valkey.kill()
            tasks.start_soon(take_more)
            for _ in range(10):  # meanwhile the projection finds that the server is gone
                with pytest.raises(Unavailable):
                    await session.head()
            valkey.start()
            async with valkey.bus() as other:
                await other.session("s").publish(said("b"))
        assert found[-1] == (("b",), 1)
