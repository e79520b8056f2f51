"""`lanebus sessions`: what it says of forks."""

import anyio

from bus import Bus
from tests.handlers.command_line import CommandLine, objects

__all__ = ()


def test_a_fork_is_listed_with_its_parent(lanebus: CommandLine) -> None:
    lanebus("publish", "whole", "one")
    assert "fork of" not in lanebus.at_terminal("sessions").out

    async def fork() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus:
            await bus.session("whole").fork(1, id="part")

    anyio.run(fork)
    shown = {line["session"]: line["origin"] for line in objects(lanebus("sessions").out)}
    assert shown == {"whole": None, "part": {"session": "whole", "position": 1}}
    titles, *rows = lanebus.at_terminal("sessions", columns=120).out.splitlines()
    assert "fork of" in titles
    assert [("whole@1" in row) for row in rows if "part" in row] == [True]
