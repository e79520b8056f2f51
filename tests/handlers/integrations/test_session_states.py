"""States that are folded from sessions, and appends that depend on them."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import anyio
import pytest

from lanebus import Bus, Conflict, Cursor, ExtensionMessage, Lane, UserMessage
from lanebus.bus.messages import Publishable
from lanebus.bus.wire import Keys
from lanebus.errors import LogRolledBack
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.handlers.integrations.session_states import SessionStates
from tests.support.servers.real import RealServer

__all__ = ()

KIND = "store.test.add"
KEYS = Keys()


def add(number: int) -> ExtensionMessage:
    return ExtensionMessage.of(KIND, number)


def count(state: list[tuple[int, object]]) -> list[ExtensionMessage]:
    return [add(len(state))]


def fold(state: list[tuple[int, object]], cursor: Cursor, message: Publishable) -> None:
    assert isinstance(message, ExtensionMessage)
    state.append((cursor.position, message.data))


def states_of(bus: Bus, **bounds: int) -> SessionStates[list[tuple[int, object]]]:
    return SessionStates(bus.session, list, fold, kinds={"store.test.*"}, bounds=BackendBounds(**bounds))


async def read(states: SessionStates[list[tuple[int, object]]], session: str = "s") -> list[tuple[int, object]]:
    async with states.newest(session) as state:
        return [*state]


async def test_a_state_has_the_appends_of_all_processes_in_order(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        first, second = states_of(one), states_of(other)
        assert await read(first) == []
        await first.append("s", lambda state: [add(len(state))])
        await second.append("s", lambda state: [add(len(state)), UserMessage.text("hi")])
        await first.append("s", lambda state: [add(len(state))])
        assert await read(first) == await read(second) == [(1, 0), (2, 1), (4, 2)]


async def test_what_is_stored_is_hidden_from_readers_of_the_extension_lane_and_wakes_no_worker(
    shared_valkey: RealServer,
) -> None:
    async with shared_valkey.bus() as bus:
        await states_of(bus).append("s", lambda _: [add(0), UserMessage.text("hi")])
        assert await bus.unfetched_work() == ()
        session = bus.session("s")
        await session.publish(ExtensionMessage.of("shown"))
        for lanes, positions in (({Lane.EXTENSION}, [3]), ({Lane.LLM}, [2]), ({*Lane}, [1, 2, 3])):
            assert [envelope.position async for envelope in session.read(lanes=lanes)] == positions
            async with aclosing(session.follow(lanes=lanes)) as following:
                assert (await anext(following)).position == positions[0]


@pytest.mark.cluster("the sessions are on several nodes")
async def test_of_concurrent_appends_each_sees_the_one_before_it(server: RealServer) -> None:
    async with server.bus() as one, server.bus() as other:
        both = [states_of(one), states_of(other)]
        async with anyio.create_task_group() as group:
            for number in range(40):
                for session in ("s", "t", "u"):
                    group.start_soon(both[number % 2].append, session, count)
        for session in ("s", "t", "u"):
            assert [value for _, value in await read(both[0], session)] == [*range(40)]


async def test_an_error_of_a_decision_counts_only_for_the_newest_state(shared_valkey: RealServer) -> None:
    def second(state: list[tuple[int, object]]) -> list[ExtensionMessage]:
        if len(state) != 2:
            raise LookupError(len(state))
        return [add(2)]

    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        first = states_of(one)
        await first.append("s", lambda _: [add(0)])
        with pytest.raises(LookupError):
            await first.append("s", second)
        await states_of(other).append("s", lambda _: [add(1)])
        await first.append("s", second)
        assert await read(first) == [(1, 0), (2, 1), (3, 2)]
        assert await first.append("s", lambda _: []) is None


async def test_a_repeat_with_the_same_key_changes_no_state(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        states = states_of(bus)
        await states.append("s", lambda _: [add(0)], key="k")
        receipt = await states.append("s", lambda _: [add(0)], key="k")
        assert receipt is not None
        assert receipt.is_duplicate
        assert await read(states) == [(1, 0)]


async def test_at_the_bound_the_state_of_an_idle_session_is_folded_again(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        states = states_of(bus, cached_sessions=1)
        for session in ("s", "t", "s", "t"):
            await states.append(session, lambda state: [add(len(state))])
        assert await read(states, "s") == await read(states, "t") == [(1, 0), (2, 1)]


async def test_an_append_that_is_always_late_fails_after_its_attempts(shared_valkey: RealServer) -> None:
    async def publish() -> None:
        async with shared_valkey.bus() as other:
            await other.session("s").publish(UserMessage.text("first"))

    def late(state: list[tuple[int, object]]) -> list[ExtensionMessage]:
        calls.append(len(state))
        with ThreadPoolExecutor(1) as thread:  # another process appends between the decision and the append
            thread.submit(anyio.run, publish).result()
        return [add(len(state))]

    calls: list[int] = []
    async with shared_valkey.bus() as bus:
        states = states_of(bus, attempts=2)
        with pytest.raises(Conflict):
            await states.append("s", late)
        assert calls == [0, 0]
        await states.append("s", lambda _: [add(2)])
        assert await read(states) == [(3, 2)]


async def test_a_state_of_entries_that_the_log_has_lost_is_folded_again(one: RealServer) -> None:
    """The log goes back while the server runs, so its incarnation stays the same."""
    async with one.bus() as bus, one.bus() as writer:
        states, session = states_of(bus), writer.session("s")
        await session.publish(add(0))
        one.do("COPY", KEYS.head("s"), f"{KEYS.head('s')}/kept")
        one.do("COPY", KEYS.lane("s", Lane.EXTENSION), f"{KEYS.lane('s', Lane.EXTENSION)}/kept")
        async with one.bus() as other:
            await other.session("s").publish(add(1))
        assert await read(states) == [(1, 0), (2, 1)]
        one.do("COPY", f"{KEYS.head('s')}/kept", KEYS.head("s"), "REPLACE")
        one.do("COPY", f"{KEYS.lane('s', Lane.EXTENSION)}/kept", KEYS.lane("s", Lane.EXTENSION), "REPLACE")
        async with one.bus() as other:
            await other.session("s").publish(add(10))
        decided = list[list[tuple[int, object]]]()

        def decide(state: list[tuple[int, object]]) -> list[ExtensionMessage]:
            decided.append([*state])
            return count(state)

        receipt = await states.append("s", decide)
        assert receipt is not None
        assert receipt.positions == (3,)
        assert decided == [[(1, 0), (2, 1)], [(1, 0), (2, 10)]]
        assert await read(states) == [(1, 0), (2, 10), (3, 2)]


async def test_a_process_whose_own_append_was_lost_is_told(one: RealServer) -> None:
    async with one.bus() as bus:
        states = states_of(bus)
        await states.append("s", count)
        one.do("COPY", KEYS.head("s"), f"{KEYS.head('s')}/kept")
        one.do("COPY", KEYS.lane("s", Lane.EXTENSION), f"{KEYS.lane('s', Lane.EXTENSION)}/kept")
        await states.append("s", count)
        one.do("COPY", f"{KEYS.head('s')}/kept", KEYS.head("s"), "REPLACE")
        one.do("COPY", f"{KEYS.lane('s', Lane.EXTENSION)}/kept", KEYS.lane("s", Lane.EXTENSION), "REPLACE")
        with pytest.raises(LogRolledBack):
            await states.append("s", count)
        assert await states.append("s", count) is not None
        assert await read(states) == [(1, 0), (2, 1)]
