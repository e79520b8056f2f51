"""Followers of a session that becomes a fork get the entries that it shares with its parent."""

import pytest

from lanebus import ALL_LANES, START, Lane
from lanebus.bounds import HubBounds
from tests.support.laws.follower import Follower
from tests.support.log.said import said, told, word
from tests.support.servers.real import RealServer, eventually, shortly

LLM = frozenset({Lane.LLM})


@pytest.mark.parametrize("others", [0, HubBounds().direct_sessions], ids=["direct", "by indexes"])
@pytest.mark.parametrize(("lanes", "wanted"), [(ALL_LANES, "abcX"), (LLM, "acX")], ids=["both lanes", "one lane"])
@pytest.mark.parametrize("is_quiet", [True, False], ids=["quiet", "appended to"])
async def test_follower_of_a_session_that_becomes_a_fork_gets_the_shared_entries(
    valkey: RealServer, lanes: frozenset[Lane], wanted: str, others: int, is_quiet: bool
) -> None:
    async with valkey.bus() as bus, valkey.bus() as other:
        await other.session("parent").publish(said("a"), told("b"), said("c"), told("d"))
        followers = [Follower(bus.session(f"other{number}"), ALL_LANES, START) for number in range(others)]
        follower = Follower(bus.session("child"), lanes, START)
        followers.append(follower)
        hub = bus._shards.of("child").hub  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: "child" in hub.followed)
        child = await other.session("parent").fork(3, id="child")
        if is_quiet:
            async with shortly():
                await follower.wait_count(len(wanted) - 1)
        await child.publish(said("X"))
        async with shortly():
            await follower.wait_count(len(wanted))
        assert "".join(map(word, follower.found)) == wanted
        for each in followers:
            await each.leave()
