"""Random trees of forks, compared with a model: lists of messages that are copied for each fork."""

import asyncio
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import Bus, Cursor, Lane, Session
from tests.support.log.said import said, told, word
from tests.support.servers.kinds import Shared
from tests.support.servers.real import AnyServer
from tests.support.suite.scale import examples

_names = count()


class Say(NamedTuple):
    """Publish to one of the existing sessions."""

    which: int
    lanes: str


class Fork(NamedTuple):
    """Fork one of the existing sessions, at a share of its length."""

    which: int
    part: float


class Model(NamedTuple):
    session: Session
    entries: list[tuple[Lane, str]]


_say = st.builds(Say, st.integers(-2, 9), st.text("le", min_size=1, max_size=4))
_fork = st.builds(Fork, st.integers(-2, 9), st.floats(0, 1))  # mostly of a young one, so that chains grow long


@pytest.mark.full
@examples(300)
@given(steps=st.lists(st.one_of(_say, _fork), min_size=6, max_size=24), data=st.data())
def test_every_session_of_a_tree_reads_as_in_the_model(
    shared: Shared, steps: list[Say | Fork], data: st.DataObject
) -> None:
    asyncio.run(_check(shared["valkey"], steps, data))


async def _check(server: AnyServer, steps: list[Say | Fork], data: st.DataObject) -> None:
    async with server.bus(f"t{next(_names)}") as bus:
        tree = [Model(bus.session("root"), [])]
        for number, step in enumerate(steps):
            model = tree[step.which % len(tree)]
            if isinstance(step, Fork):
                at = round(step.part * len(model.entries))
                tree.append(Model(await model.session.fork(at, id=f"s{number}"), model.entries[:at]))
            else:
                await _say_in(model, step.lanes, number)
        for model in tree:
            await _compare(model, data)
        assert sum(head.size_bytes for head in await bus.sessions()) == await _said_in_all(bus, tree)


async def _say_in(model: Model, lanes: str, number: int) -> None:
    spoken = [(Lane.LLM if letter == "l" else Lane.EXTENSION, f"{number}.{i}") for i, letter in enumerate(lanes)]
    await model.session.publish(*[said(text) if lane is Lane.LLM else told(text) for lane, text in spoken])
    model.entries.extend(spoken)


async def _compare(model: Model, data: st.DataObject) -> None:
    whole = [envelope async for envelope in model.session.read()]
    assert [(e.lane, word(e)) for e in whole] == model.entries
    assert [e.position for e in whole] == list(range(1, len(whole) + 1))
    assert {e.session for e in whole} <= {model.session.id}
    after, until = data.draw(st.integers(0, len(whole))), data.draw(st.none() | st.integers(0, len(whole)))
    cursor = whole[after - 1].cursor if after else Cursor(0)
    lanes = data.draw(st.sampled_from([frozenset(Lane), *(frozenset({lane}) for lane in Lane)]))
    part = [envelope async for envelope in model.session.read(lanes=lanes, after=cursor, until=until)]
    assert part == [e for e in whole[after:until] if e.lane in lanes]


async def _said_in_all(bus: Bus, tree: list[Model]) -> int:
    """Return the size of all entries, each counted in the session that it was published to."""
    total = 0
    for model in tree:
        head = await bus.session(model.session.id).head()
        own = model.entries[head.own_start.position :]
        total += sum(len((said(text) if lane is Lane.LLM else told(text)).to_json_bytes()) for lane, text in own)
    return total
