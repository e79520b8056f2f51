"""`LanebusStore`, compared with LangGraph's own store in memory."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from pydantic import JsonValue

from lanebus import Bus, ExtensionMessage
from lanebus.errors import InvalidArgument
from lanebus.langgraph import BackendBounds, LanebusSaver, LanebusStore
from tests.support.backends.langgraph_graphs import config_of
from tests.support.servers.real import AnyServer, RealServer
from tests.support.suite.scale import count, randomness

NAMES = ("a", "b", "c")
TINY = BackendBounds(cached_sessions=1, inline_bytes=1)


def drawn(round: int) -> list[list[Op]]:
    """Return batches of random operations."""
    random = randomness("store", round)

    def path(least: int) -> tuple[str, ...]:
        return tuple(random.choice(NAMES) for _ in range(random.randint(least, 3)))

    def op() -> Op:
        match random.randrange(6):
            case 0:
                return GetOp(path(1), random.choice(NAMES))
            case 1:
                wanted: list[dict[str, Any]] = [{}, {"n": 1}, {"n": {"$gte": 2}}, {"in": {"x": "a"}}, {"l": [1, 2]}]
                wanted += [{"n": {"$ne": 1}}, {"n": {"$lt": 2}, "s": "a"}, {"n": {"$eq": 1, "$lte": 3}}]
                return SearchOp(path(1), filter=random.choice(wanted), limit=100)
            case 2:
                kinds = [MatchCondition(random.choice(("prefix", "suffix")), (*path(0), "*")) for _ in range(2)]
                depth = random.choice((None, 1, 2))
                return ListNamespacesOp(match_conditions=tuple(kinds[: random.randrange(3)]), max_depth=depth)
            case 3:
                return PutOp(path(1), random.choice(NAMES), None)
            case _:
                value = {"n": random.randrange(4), "s": random.choice(NAMES), "in": {"x": "a"}, "l": [1, 2]}
                return PutOp(path(1), random.choice(NAMES), value)

    return [[op() for _ in range(random.randint(1, 6))] for _ in range(60)]


def plain(result: object) -> object:
    """Return what has to be the same: no times, and no order among the items of a search."""
    if isinstance(result, Item):
        return (result.namespace, result.key, result.value)
    if isinstance(result, list):
        return sorted((plain(each) for each in cast("list[object]", result)), key=repr)
    return result


async def outcomes(store: BaseStore, batches: Sequence[Sequence[Op]]) -> list[object]:
    return [[plain(each) for each in await store.abatch(batch)] for batch in batches]


def in_memory(store: InMemoryStore, batches: Sequence[Sequence[Op]]) -> list[object]:
    """Return the outcomes of the store in memory. It lists namespaces that are empty, so these are removed before."""

    data = store._data  # pyright: ignore[reportPrivateUsage]  # it has no other view of its namespaces

    def outcome(op: Op) -> object:
        for namespace in [each for each, items in data.items() if not items]:
            del data[namespace]
        return plain(store.batch([op])[0])

    found: list[object] = []
    for batch in batches:
        results = {index: outcome(op) for index, op in enumerate(batch) if not isinstance(op, PutOp)}
        results |= {index: outcome(op) for index, op in enumerate(batch) if isinstance(op, PutOp)}
        found.append([results[index] for index in range(len(batch))])
    return found


@pytest.mark.cluster("the sessions are on several nodes")
@pytest.mark.parametrize("bounds", [BackendBounds(), TINY], ids=["normal", "tiny"])
async def test_every_operation_has_the_result_that_it_has_in_memory(server: AnyServer, bounds: BackendBounds) -> None:
    for round in range(count(5)):
        batches, memory = drawn(round), InMemoryStore()
        expected = in_memory(memory, batches)
        async with server.bus() as bus:
            agent = f"store-{round}"
            assert await outcomes(LanebusStore(bus, agent=agent, bounds=bounds), batches) == expected
            everything: list[Op] = [SearchOp((), limit=1_000), ListNamespacesOp(limit=1_000)]
            fresh = LanebusStore(bus, agent=agent, bounds=bounds)
            assert await outcomes(fresh, [everything]) == in_memory(memory, [everything])


async def test_two_processes_see_each_others_items_at_once(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        first, second = LanebusStore(one), LanebusStore(other)
        await first.aput(("a", "b"), "k", {"n": 1})
        before = await second.aget(("a", "b"), "k")
        await second.aput(("a", "b"), "k", {"n": 2})
        after = await first.aget(("a", "b"), "k")
        assert before is not None
        assert after is not None
        assert (before.value, after.value) == ({"n": 1}, {"n": 2})
        assert after.created_at == before.created_at
        assert after.updated_at >= before.updated_at


async def test_what_a_caller_changes_in_an_item_changes_no_later_read(bus: Bus) -> None:
    store, value = LanebusStore(bus), {"in": {"n": 1}}
    await store.aput(("a",), "k", value)
    value["in"]["n"] = 2
    found = await store.aget(("a",), "k")
    assert found is not None
    assert found.value == {"in": {"n": 1}}
    found.value["in"]["n"] = 3
    again = await store.aget(("a",), "k")
    assert again is not None
    assert again.value == {"in": {"n": 1}}


async def test_pages_of_a_search_hold_each_item_once(bus: Bus) -> None:
    store = LanebusStore(bus)
    for number in range(25):
        await store.aput((f"n{number % 3}",), str(number), {"n": number})
    pages = [await store.asearch((), limit=10, offset=offset) for offset in (0, 10, 20, 30)]
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert {item.key for page in pages for item in page} == {str(number) for number in range(25)}


async def test_what_a_log_cannot_do_is_refused_with_a_sentence(bus: Bus) -> None:
    store = LanebusStore(bus)
    put = PutOp(("a",), "k", {"n": 1})
    with pytest.raises(InvalidArgument, match="no index for a search by meaning"):
        await store.abatch([put, SearchOp(("a",), query="cats")])
    with pytest.raises(InvalidArgument, match="do not expire"):
        await store.abatch([put, PutOp(("a",), "k", {"n": 1}, ttl=5)])
    with pytest.raises(NotImplementedError):
        await store.aput(("a",), "k", {"n": 1}, ttl=5)
    for value in ({"n": object()}, {"n": float("nan")}, {"n": "\ud800"}):
        with pytest.raises(InvalidArgument, match="pass JSON"):
            await store.abatch([put, PutOp(("a",), "k", value)])
    with pytest.raises(InvalidArgument, match="at least one name"):
        await store.abatch([put, PutOp((), "k", {"n": 1})])
    assert await store.aget(("a",), "k") is None
    await store.abatch([put])
    with pytest.raises(InvalidArgument, match="use \\$eq"):
        await store.asearch(("a",), filter={"n": {"$in": [1]}})


async def test_unreadable_entries_of_others_change_nothing_and_a_saver_sees_no_items(bus: Bus) -> None:
    store = LanebusStore(bus)
    await store.aput(("a",), "k", {"n": 1})
    (head,) = await bus.sessions()
    wrong: tuple[JsonValue, ...] = (None, {"namespace": ["a"]})
    for data in wrong:
        await bus.session(head.session).publish(ExtensionMessage.of("store.langgraph.item", data))
    found = await LanebusStore(bus).aget(("a",), "k")
    assert found is not None
    assert found.value == {"n": 1}
    assert [each async for each in LanebusSaver(bus).alist(None)] == []  # a saver of the same bus
    assert await LanebusSaver(bus).aget_tuple(config_of("a")) is None
