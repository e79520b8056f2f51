"""A projection's state is the same however it came to be: live, resumed at any point, or folded anew."""

from collections.abc import AsyncGenerator, Callable, Sequence
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

from lanebus import AssistantMessage, Bus, Cursor, Delta, Envelope, ExtensionMessage, Session, ToolCallBlock, Usage
from lanebus.bus.messages import ToolResultMessage, TurnStarted, UserMessage
from lanebus.errors import LogRolledBack
from lanebus.messages import AgentEnded, AgentStarted, Cost, Publishable, ToolEnded, ToolStarted, TurnEnded, TurnId
from lanebus.projections import SESSIONS, TURNS, USAGE, Projected, Projection, UsageState, follow, project, rebuild
from tests.support.agent.folding import fold, log_of, through_json
from tests.support.suite.scale import examples

__all__ = ()


def collect(state: tuple[int, ...], envelope: Envelope) -> tuple[int, ...]:
    return (*state, envelope.position)


POSITIONS = Projection[tuple[int, ...]](
    name="positions", version=1, state=TypeAdapter(tuple[int, ...]), initial=(), evolve=collect
)
"""Its state is what it has seen."""

T = TypeVar("T")


def at(projected: Projected[tuple[int, ...]]) -> tuple[tuple[int, ...], int]:
    """A state with its position."""
    return projected.state, projected.position


async def kept(session: Session) -> tuple[bytes, int]:
    """What is stored of `POSITIONS`, with its position."""
    checkpoint = await session.load_projection("positions", 1)
    assert checkpoint is not None
    return checkpoint.state, checkpoint.position


def made(kind: Callable[..., T], **fields: st.SearchStrategy[object]) -> st.SearchStrategy[T]:
    """Values of a type; `st.builds` would add required fields a second time, under their names in JSON."""
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


amounts = st.decimals(min_value=0, max_value=100, places=9)
usages = made(
    Usage,
    input=st.integers(0, 1000),
    output=st.integers(0, 1000),
    cost=st.none() | made(Cost, input=amounts, total=amounts, source=st.sampled_from([None, "a", "b"])),
)
turn_ids = made(TurnId, loop_id=st.sampled_from(["s1.main.1", "s1.main.2"]), turn_index=st.integers(0, 2))
call_ids = st.sampled_from(["t1", "t2"])
calls = made(ToolCallBlock, id=call_ids, name=st.just("f"))
stop_reasons = st.sampled_from(["stop", "toolUse", "error", "aborted"])
tools = {"turn_id": turn_ids, "tool_call_id": call_ids, "tool_name": st.just("f")}
events = st.one_of(
    made(AgentStarted, loop_id=st.sampled_from(["s1.main.1", "s1.main.2"]), agent=st.just("main")),
    made(
        AgentEnded,
        loop_id=st.sampled_from(["s1.main.1", "s1.main.2"]),
        stop_reason=stop_reasons,
        turns=st.just(1),
        usage=usages,
    ),
    made(TurnStarted, turn_id=turn_ids, prompts=st.sampled_from([(), (1,)])),
    made(TurnEnded, turn_id=turn_ids, stop_reason=stop_reasons, usage=usages),
    made(ToolStarted, **tools),
    made(ToolEnded, is_error=st.booleans(), **tools),
)
messages: st.SearchStrategy[Publishable] = st.one_of(
    st.text(max_size=5).map(UserMessage.text),
    made(
        AssistantMessage,
        content=st.lists(calls, max_size=2).map(tuple),
        turn_id=st.none() | turn_ids,
        usage=st.none() | usages,
        stop_reason=stop_reasons,
        model=st.sampled_from([None, "m1", "m2"]),
    ),
    made(ToolResultMessage, tool_call_id=call_ids, turn_id=st.none() | turn_ids, is_error=st.booleans()),
    events.map(lambda event: event.as_extension()),
    st.just(ExtensionMessage.of("agent.turn.ended", "nonsense")),
)
histories = st.lists(messages, max_size=25)


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


async def test_live_resumed_and_rebuilt_states_are_equal(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
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


async def test_only_entries_after_the_checkpoint_are_read_and_both_lanes_are(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        assert at(await project(session, POSITIONS)) == ((), 0)
        await session.publish(*SOME)
        await session.save_projection("positions", 1, b"[100]", cursor=Cursor(3), expected=0)

        assert at(await project(session, POSITIONS)) == ((100, 4, 5), 5)
        assert await kept(session) == (b"[100,4,5]", 5)
        assert at(await rebuild(session, POSITIONS)) == ((1, 2, 3, 4, 5), 5)
        assert await kept(session) == (b"[1,2,3,4,5]", 5)


async def test_another_version_does_not_read_what_the_first_one_stored(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        await session.publish(*SOME)
        await session.save_projection("positions", 1, b"[100]", cursor=Cursor(5), expected=0)
        second = Projection(name="positions", version=2, state=POSITIONS.state, initial=(), evolve=collect)

        assert (await project(session, second)).state == (1, 2, 3, 4, 5)


async def test_a_log_that_went_back_is_folded_anew(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        await session.publish(*SOME)
        # What a server that came back from an older copy looks like: the checkpoint is beyond the log's end.
        await session.save_projection("positions", 1, b"[1,2,3,4,5,6,7]", cursor=Cursor(7), expected=0)

        assert at(await project(session, POSITIONS)) == ((1, 2, 3, 4, 5), 5)
        assert await kept(session) == (b"[1,2,3,4,5]", 5)


@pytest.mark.parametrize("stored", [b"{", b'["x"]', b"\xff"])
async def test_a_stored_state_that_cannot_be_read_is_folded_anew(tmp_path: Path, stored: bytes) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        await session.publish(*SOME)
        await session.save_projection("positions", 1, stored, cursor=Cursor(5), expected=0)

        assert at(await project(session, POSITIONS)) == ((1, 2, 3, 4, 5), 5)
        assert await kept(session) == (b"[1,2,3,4,5]", 5)


async def test_who_loses_the_race_to_store_takes_the_newer_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
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


async def test_many_who_project_at_once_agree(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        await session.publish(*SOME)
        results: list[Projected[tuple[int, ...]]] = []

        async def one() -> None:
            results.append(await project(session, POSITIONS))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(one)

        assert [at(result) for result in results] == [((1, 2, 3, 4, 5), 5)] * 8


async def test_live_deltas_are_no_part_of_a_state(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
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
