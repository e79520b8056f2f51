"""A worker keeps its lease while it reads a long session for longer than the lease lasts."""

from collections.abc import Sequence

import anyio
import pytest

from lanebus import UserMessage
from lanebus.agent import AgentLoop, Worker
from lanebus.bus import Lease, Leases
from lanebus.handlers.agent.session_cache import CachedSession
from tests.support.agent.agents import ScriptedModel, answer
from tests.support.agent.logs import wait_for
from tests.support.servers.real import RealServer, blocked, eventually, shortly

__all__ = ()


@pytest.mark.parametrize("found_by", ["wake-up", "sweep"])
async def test_a_lease_is_renewed_while_its_session_is_read_for_the_first_time(
    found_by: str, shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed, read, renew = anyio.Event(), CachedSession.refresh, Leases.renew

    async def noted(leases: Leases, held: Sequence[Lease], seconds: float) -> Sequence[Lease]:
        lost = await renew(leases, held, seconds)
        renewed.set()
        return lost

    async def slow(warm: CachedSession, *arguments: object) -> object:
        if arguments:  # it has the lease; work that a sweep finds is also read before, without one
            async with shortly():
                await renewed.wait()
        return await read(warm)

    monkeypatch.setattr(Leases, "renew", noted)
    monkeypatch.setattr(CachedSession, "refresh", slow)
    async with shared_valkey.bus() as bus, anyio.create_task_group() as tasks:
        worker = Worker(bus, AgentLoop(ScriptedModel(answer("Yes."))), heartbeat=3)
        session = bus.session("s1")
        if found_by == "sweep":
            await session.publish(UserMessage.text("hello?"))
        tasks.start_soon(worker.run)
        if found_by == "wake-up":
            await eventually(lambda: blocked(shared_valkey) > 0)  # work from a wake-up is delivered with a lease
            await session.publish(UserMessage.text("hello?"))
        await wait_for(session, "agent.ended")
        worker.stop()
