"""`lanebus groups`: show consumer groups, and remove one without workers."""

from dataclasses import fields

import anyio

from lanebus import Bus, UserMessage
from lanebus.bus.wire import Keys
from lanebus.groups import GroupStatus
from tests.support.cli.command_line import CommandLine, objects

__all__ = ()


def open_work(lanebus: CommandLine, *, is_away: bool = False, leaves: bool = True) -> None:
    """Make a group with a session that it has not handled."""

    async def work() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus:
            await bus.session("s").publish(UserMessage.text("x"))
            async with bus.consumer("agents", "w1", heartbeat=600) as consumer:
                with anyio.fail_after(120):
                    await consumer.fetch(1)
                if leaves:
                    await consumer.deregister()
            if is_away:
                await bus.log.call("HSET", Keys().consumers("agents"), ":seen", 1)  # time

    anyio.run(work)


def test_status_lists_groups_and_warns_of_unused_ones(lanebus: CommandLine) -> None:
    assert (
        lanebus("groups", "status", "--table").err
        == "no worker has run here yet: start one with `lanebus worker MODULE:ATTRIBUTE`\n"
    )
    open_work(lanebus)
    shown = lanebus("groups", "status")
    (group,) = objects(shown.out)
    assert (group["group"], group["alive"], group["lag"], group["is_away"]) == ("agents", 0, 1, False)
    assert shown.err == ""
    assert group.keys() - {"group", "alive"} <= {field.name for field in fields(GroupStatus)}, "as in `lanebus top`"
    open_work(lanebus, is_away=True)
    shown = lanebus("groups", "status", "--table")
    assert "lanebus groups remove agents" in shown.err
    assert "agents (away)" in lanebus("top", "--once", "--table").out


def test_remove_needs_consent_and_a_group_without_live_workers(lanebus: CommandLine) -> None:
    open_work(lanebus, leaves=False)
    assert lanebus("groups", "remove", "agents").code == 2
    refused = lanebus("groups", "remove", "agents", "--yes")
    assert refused.code == 4
    assert "w1" in refused.err
    assert lanebus("groups", "remove", "agents", "--yes", "--force").object == {"group": "agents", "removed": True}
    assert lanebus("groups", "status").out == ""
    again = lanebus("groups", "remove", "agents", "--yes")
    assert (again.code, again.out) == (3, "")
