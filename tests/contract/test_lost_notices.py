"""Change notices are hints: a follower misses nothing if every one of them is lost."""

import anyio
import pytest

from lanebus import Lane, Session
from lanebus.bounds import WorkBounds
from lanebus.bus import Bounds
from tests.support.log.said import said, told
from tests.support.servers.bounded import bound_hub
from tests.support.servers.real import AnyServer, eventually

MANY = 40
"""More than are read from their own streams."""


@pytest.mark.parametrize("lanes", [{Lane.LLM}, {Lane.EXTENSION}, {*Lane}], ids=["llm", "extension", "both"])
@pytest.mark.cluster("each bucket has a connection of its own")
async def test_a_follower_gets_entries_whose_notices_were_lost(server: AnyServer, lanes: set[Lane]) -> None:
    heard: dict[str, list[int]] = {}
    wanted = [position for position, lane in ((1, Lane.LLM), (2, Lane.EXTENSION)) if lane in lanes]

    async def follow(session: Session) -> None:
        positions = heard[session.id] = []
        async for envelope in session.follow(lanes=lanes):
            positions += [envelope.position]

    bound_hub(server, block_seconds=0.2)  # heads are looked at after each wait
    lossy = Bounds(work=WorkBounds(notices=0))
    async with server.bus() as bus, server.bus(bounds=lossy) as other, anyio.create_task_group() as tasks:
        names = [f"s{number}" for number in range(MANY)]
        for name in names:
            tasks.start_soon(follow, bus.session(name))
        await eventually(lambda: len(heard) == MANY)
        for name in names:
            await other.session(name).publish(said("x"), told("y"))
        await eventually(lambda: all(positions == wanted for positions in heard.values()))
        tasks.cancel_scope.cancel()
