"""The server of the page tells in its log, `/readyz` and metrics when its Redis or Valkey is lost."""

import signal

import pytest

from tests.support.agent.agents import until
from tests.support.cli.command_line import CommandLine
from tests.support.cli.monitored import Monitored, monitored_command
from tests.support.log.groups import take_all, wake
from tests.support.servers.real import RealServer

__all__ = ()


async def has_reason(process: Monitored, expected: str | None) -> None:
    async def is_so() -> bool:
        return await process.reason() == expected

    await until(is_so)


@pytest.mark.full
async def test_the_page_is_not_ready_during_an_outage_and_shows_all_groups(
    valkey: RealServer, lanebus: CommandLine
) -> None:
    async with valkey.bus() as bus, bus.consumer("shop", "c") as consumer:
        await wake(bus, "a", "b")
        await take_all(consumer, 2)
        await wake(bus, "c")
    async with monitored_command(lanebus, "serve", "--url", valkey.url, "--port", "0") as process:
        await has_reason(process, None)
        samples = await process.metrics()
        assert samples['lanebus_work_waiting{agent="agent",group="shop"}'] == 1
        assert samples['lanebus_work_pending{agent="agent",group="shop"}'] == 2
        assert samples['lanebus_consumers{group="shop",state="alive"}'] == 1
        assert samples['lanebus_agent_sessions{agent="agent"}'] == 3
        assert samples['lanebus_agent_workers{agent="agent",group="shop"}'] == 1
        assert "lanebus_worker_draining" not in samples

        valkey.stop()
        await process.event("server.lost", what="ping", error="unreachable")
        await has_reason(process, "the server is unreachable: no answer to ping")
        assert (await process.metrics())["lanebus_server_up"] == 0
        assert (await process.get("/healthz")).status_code == 200

        valkey.start()
        await process.event("server.found", what="ping")
        await has_reason(process, None)

        valkey.do("ACL", "SETUSER", "default", "-xrange")
        await has_reason(process, "the server refuses read: NOPERM for the command 'xrange'")
        valkey.do("ACL", "SETUSER", "default", "+xrange")
        await has_reason(process, None)
        assert await process.end(signal.SIGTERM) == 143
        assert all(line.startswith("{") for line in process.text.splitlines())
