"""Concurrent calls share a write, and the failure of one does not affect the others."""

from collections.abc import AsyncGenerator, Sequence

import anyio
import pytest
from anyio.lowlevel import checkpoint

from lanebus.bus.errors import Closed, Refused, Unavailable
from lanebus.bus.servers import Argument, Reply
from lanebus.bus.servers.shared import GroupedPool
from tests.support.servers.real import shortly


class Counting:
    """A pool that returns the names of the commands and records each write."""

    has_connected = True

    def __init__(self) -> None:
        self.writes: list[list[Sequence[Argument]]] = []
        self.poison: bytes | None = None
        self.gate: anyio.Event | None = None

    async def call(
        self, *command: Argument, at: str | None = None, more_seconds: float = 0.0, again: bool = True
    ) -> Reply:
        (reply,) = await self.call_many([command])
        assert not isinstance(reply, Refused)
        return reply

    async def call_many(
        self, commands: Sequence[Sequence[Argument]], *, more_seconds: float = 0.0
    ) -> list[Reply | Refused]:
        self.writes.append(list(commands))
        await (checkpoint() if self.gate is None else self.gate.wait())
        if any(self.poison in command for command in commands):
            raise Unavailable("poison")
        return [Refused(str(command[1])) if command[0] == "NO" else str(command[0]).encode() for command in commands]

    async def call_each(self, *command: Argument) -> dict[str, Reply]:
        return {"one:6379": await self.call(*command)}

    async def scan(self, match: str) -> AsyncGenerator[list[bytes], None]:
        yield [match.encode()]

    async def close(self) -> None: ...


async def call_all(pool: GroupedPool, *commands: Argument) -> list[Reply | Exception]:
    """Call all commands concurrently; return the replies or errors."""
    found: dict[Argument, Reply | Exception] = {}

    async def call(command: Argument) -> None:
        try:
            found[command] = await pool.call(command)
        except Exception as error:  # noqa: BLE001  # which is what is looked at
            found[command] = error

    async with anyio.create_task_group() as tasks:
        for command in commands:
            tasks.start_soon(call, command)
    return [found[command] for command in commands]


async def test_concurrent_calls_share_a_write_and_a_failure_or_refusal_reaches_only_its_caller() -> None:
    inner = Counting()
    pool = GroupedPool(inner)
    assert await call_all(pool, "a", "b", "c") == [b"a", b"b", b"c"]
    assert inner.writes == [[("a",), ("b",), ("c",)]]
    with pytest.raises(Refused):
        await pool.call("NO", "WRONGTYPE")
    replies = await pool.call_many([("a",), ("NO", "WRONGTYPE")])
    assert replies[0] == b"a"
    assert isinstance(replies[1], Refused)
    inner.poison = b"bad"
    first, bad, last = await call_all(pool, "a", b"bad", "c")
    assert (first, last) == (b"a", b"c")
    assert isinstance(bad, Unavailable)


async def test_a_cancelled_call_does_not_affect_the_others_of_its_group() -> None:
    inner = Counting()
    pool = GroupedPool(inner)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await pool.call("a")
    assert await call_all(pool, "b") == [b"b"]
    assert inner.writes[-1] == [("b",)]


async def test_a_call_that_must_not_run_twice_is_sent_alone_and_a_closed_pool_refuses_calls() -> None:
    inner = Counting()
    pool = GroupedPool(inner)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.call, "a")
        tasks.start_soon(lambda: pool.call("b", again=False))
    assert sorted(map(len, inner.writes)) == [1, 1]
    await pool.close()
    with pytest.raises(Closed):
        await pool.call("a")


async def test_a_call_made_as_the_last_group_ends_is_sent() -> None:
    inner = Counting()
    inner.gate = anyio.Event()
    pool = GroupedPool(inner)

    async def call_twice(name: str) -> None:
        assert await pool.call(name) == name.encode()
        assert await pool.call(f"{name} again") == f"{name} again".encode()

    async with shortly(), anyio.create_task_group() as tasks:
        tasks.start_soon(call_twice, "a")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(pool.call, "b")
        await anyio.wait_all_tasks_blocked()
        assert len(inner.writes) == 2
        inner.gate.set()
