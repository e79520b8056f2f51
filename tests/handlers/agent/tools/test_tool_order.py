"""Calls of an answer have one result each, in the order of the calls, in whichever order they end."""

from collections.abc import Sequence
from random import Random
from typing import Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import Bus, Session, ToolCallBlock
from lanebus.agent import FunctionTool, ToolReply, tool
from lanebus.messages import AgentEnded, Approve, Deny, ToolEnded, ToolStarted, ToolWaiting, TurnEnded, TurnId
from tests.support.agent.agents import take_run
from tests.support.agent.logs import events
from tests.support.agent.tool_runs import called, command, go_on, open_answer, results
from tests.support.laws.held import held_loop
from tests.support.servers.real import RealServer
from tests.support.suite.scale import count, examples

__all__ = ()

Kind = Literal["plain", "alone", "approved", "denied", "missing", "ends"]
KINDS: Sequence[Kind] = ("plain", "plain", "alone", "approved", "denied", "missing", "ends")


def tools_of(kinds: Sequence[Kind], random: Random) -> list[FunctionTool]:
    """A tool for each call; the calls end in random order."""
    waits = [random.randrange(4) for _ in kinds]

    def made(place: int) -> FunctionTool:
        async def function() -> ToolReply:
            for _ in range(waits[place]):
                await anyio.lowlevel.checkpoint()
            return ToolReply(f"r{place}", terminate=kinds[place] == "ends")

        asks, alone = kinds[place] in {"approved", "denied"}, kinds[place] == "alone"
        return tool(name=f"t{place}", sequential=alone, approval=asks)(function)

    return [made(place) for place, kind in enumerate(kinds) if kind != "missing"]


async def worked(session: Session, kinds: Sequence[Kind], random: Random) -> None:
    turn = TurnId(loop_id=f"{session.id}.main.1", turn_index=0)
    run, tools = await take_run(session), tools_of(kinds, random)
    await called(run, *(ToolCallBlock(id=f"c{place}", name=f"t{place}") for place in range(len(kinds))))
    await go_on(run, *tools)
    asked = [place for place, kind in enumerate(kinds) if kind in {"approved", "denied"}]
    random.shuffle(asked)
    for place in asked:
        word = Approve if kinds[place] == "approved" else Deny
        await command(run, word(turn_id=turn, tool_call_id=f"c{place}"))
        if random.random() < 0.5:
            await go_on(run, *tools)
    await go_on(run, *tools)


async def checked(bus: Bus, name: str, kinds: Sequence[Kind], random: Random) -> None:
    session = bus.session(name)
    await worked(session, kinds, random)
    found = await events(session)
    texts = dict(await results(session))
    told = {"denied": "Denied by the user", "missing": "Tool t{} not found"}
    assert texts == {f"c{place}": told.get(kind, "r{}").format(place) for place, kind in enumerate(kinds)}
    assert len(await results(session)) == len(kinds)
    begun = {event.tool_call_id: at for at, event in enumerate(found) if isinstance(event, ToolStarted)}
    ended = {event.tool_call_id: at for at, event in enumerate(found) if isinstance(event, ToolEnded)}
    started = [event.tool_call_id for event in found if isinstance(event, ToolStarted)]
    assert sorted(started) == [f"c{place}" for place, kind in enumerate(kinds) if kind not in {"denied", "missing"}]
    assert all(begun[call] < ended[call] for call in started)
    asked = [event for event in found if isinstance(event, ToolWaiting)]
    assert len(asked) == sum(kind in {"approved", "denied"} for kind in kinds)
    # Concurrent calls are in the order of the calls, and sequential ones after them, too.
    order = [int(call[1:]) for call, _ in await results(session)]
    beside = [place for place in order if kinds[place] in {"plain", "ends", "missing"}]
    alone = [place for place in order if kinds[place] == "alone"]
    assert (beside, alone) == (sorted(beside), sorted(alone))
    (turn,) = [event for event in found if isinstance(event, TurnEnded)]
    positions = {event.tool_call_id: event.position for event in found if isinstance(event, ToolEnded)}
    assert turn.tool_results == tuple(positions[f"c{place}"] for place in range(len(kinds)))
    is_over = all(kind == "ends" for kind in kinds)
    assert sum(isinstance(event, AgentEnded) for event in found) == is_over
    assert await open_answer(await take_run(session)) is None


@pytest.mark.full
def test_every_call_has_one_result_in_the_order_of_the_calls(valkey: RealServer) -> None:
    number = 0
    with held_loop() as held:
        bus = held.open(valkey.bus)

        @examples(60, least=20)
        @given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6), st.randoms(use_true_random=False))
        def check(kinds: list[Kind], random: Random) -> None:
            nonlocal number
            number += 1
            held.run(checked(bus, f"s{number}", kinds, random))

        check()
    assert number >= count(60, least=20)
