"""`lanebus groups`: who works, and the end of a group that nobody works in."""

import anyio

from lanebus import Bus, UserMessage
from lanebus.bus.wire.keys import Keys
from tests.support.cli.command_line import CommandLine, objects

__all__ = ()


def worked(lanebus: CommandLine, *, is_away: bool = False, leaves: bool = True) -> None:
    """A group that was given a session and is not done with it."""

    async def work() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus:
            await bus.session("s").publish(UserMessage.text("x"))
            async with bus.consumer("agents", "w1", heartbeat=600) as consumer:
                with anyio.fail_after(120):
                    await consumer.fetch(1)
                if leaves:
                    await consumer.deregister()
            if is_away:
                await bus._log.call("HSET", Keys().consumers("agents"), ":seen", 1)  # pyright: ignore[reportPrivateUsage]  # time

    anyio.run(work)


def test_a_group_is_shown_and_one_that_is_away_is_told_of(lanebus: CommandLine) -> None:
    assert lanebus("groups", "status", "--table").err == "no worker has ever taken work here\n"
    worked(lanebus)
    shown = lanebus("groups", "status")
    (group,) = objects(shown.out)
    assert (group["group"], group["alive"], group["waiting"], group["is_away"]) == ("agents", 0, 1, False)
    assert shown.err == ""
    worked(lanebus, is_away=True)
    shown = lanebus("groups", "status", "--table")
    assert "lanebus groups remove agents" in shown.err
    assert "agents (away)" in lanebus("top", "--once", "--table").out


def test_a_group_is_removed_once_it_was_asked_for_and_nobody_works_in_it(lanebus: CommandLine) -> None:
    worked(lanebus, leaves=False)
    assert lanebus("groups", "remove", "agents").code == 2
    refused = lanebus("groups", "remove", "agents", "--yes")
    assert refused.code == 1
    assert "w1" in refused.err
    assert lanebus("groups", "remove", "agents", "--yes", "--force").object == {"group": "agents", "removed": True}
    assert lanebus("groups", "status").out == ""
    again = lanebus("groups", "remove", "agents", "--yes")
    assert (again.code, again.object) == (1, {"group": "agents", "removed": False})
