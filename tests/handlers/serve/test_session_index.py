"""The index of all sessions reads little at once, whatever the sizes of sessions, and no entry twice for forks."""

from contextlib import AbstractContextManager

import anyio
import pytest

from lanebus import AssistantMessage, Bus, UserMessage
from lanebus.bus import Log
from lanebus.bus.log.reading import LanePages, fetch_page
from lanebus.bus.messages import Lane
from lanebus.bus.servers import acl_users
from lanebus.handlers.serve.session_index import IndexBounds, SessionIndex
from tests.support.page.samples import waiting_for_approval
from tests.support.servers.real import one_server

LONG = "x" * 2_000


class Reads(AbstractContextManager["Reads"]):
    """Notes the pages that are read, and the heads that are read one by one."""

    def __init__(self) -> None:
        self.pages: list[LanePages] = []
        self.heads = 0
        self.now = self.most = 0
        """number of pages that are requested at the same time, and its maximum"""
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> "Reads":
        head = Log.head

        async def noted(log: Log, session: str, *rest: object, **more: object) -> LanePages:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                page = await fetch_page(log, session, *rest, **more)  # type: ignore[arg-type]  # the function's own
            finally:
                self.now -= 1
            self.pages.append(page)
            return page

        async def counted(log: Log, session: str) -> object:
            self.heads += 1
            return await head(log, session)

        self._patch.setattr("lanebus.bus.log.reading.fetch_page", noted)
        self._patch.setattr(Log, "head", counted)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def total(self, session: str) -> int:
        """Return the number of entries of a session that were read."""
        return sum(sum(map(len, page.pages)) for page in self.pages if page.head.session == session)

    def of_llm(self, session: str) -> int:
        """Return the number of entries of a session that were read from the LLM lane alone."""
        found = [page for page in self.pages if page.head.session == session and tuple(page.lanes) == (Lane.LLM,)]
        return sum(sum(map(len, page.pages)) for page in found)


async def read_all(index: SessionIndex, rounds: int = 500) -> int:
    """Refresh the index until all is read. Return the number of refreshes."""
    for count in range(1, rounds):
        await index.refresh()
        if not index.unread(index.rows):
            return count
    raise AssertionError("not all sessions were read")


def titles(index: SessionIndex) -> dict[str, str | None]:
    return {name: row.title for name, row in index.rows.items()}


@pytest.mark.parametrize("fold_seconds", [1e-9, 60])
async def test_of_large_sessions_a_few_entries_of_one_are_read_at_a_time(bus: Bus, fold_seconds: float) -> None:
    bounds = IndexBounds(fold_seconds=fold_seconds, read_bytes=5_000, read_entries=4)
    for number in range(4):
        session = bus.session(f"s{number}")
        await session.publish(
            *[AssistantMessage.text("x")] * 40, UserMessage.text(f"title {number}"), *[AssistantMessage.text(LONG)] * 8
        )
    index = SessionIndex(bus, bounds)
    with Reads() as reads:
        await read_all(index)
    assert titles(index) == {f"s{number}": f"title {number}" for number in range(4)}
    assert max(sum(map(len, page.pages)) for page in reads.pages) <= bounds.read_entries
    assert reads.most == 1
    assert [row.state for row in index.rows.values()] == ["idle"] * 4


async def test_small_sessions_are_read_before_large_ones(bus: Bus) -> None:
    await bus.session("small").publish(UserMessage.text("small"))
    for number in range(3):
        await bus.session(f"large{number}").publish(UserMessage.text("large"), *[AssistantMessage.text(LONG)] * 8)
    index = SessionIndex(bus, IndexBounds(fold_seconds=1e-9, at_once=1, read_bytes=5_000, read_entries=1))
    await index.refresh()
    assert titles(index) == {"small": "small", **{f"large{number}": None for number in range(3)}}
    await index.refresh(["large1"])
    assert titles(index)["large1"] == "large"


@pytest.mark.parametrize("fold_seconds", [1e-9, 60])
async def test_the_entries_that_forks_share_are_read_once_up_to_the_title(bus: Bus, fold_seconds: float) -> None:
    parent = bus.session("parent")
    await parent.publish(
        *[AssistantMessage.text(LONG)] * 9, UserMessage.text("the title"), *[AssistantMessage.text(LONG)] * 30
    )
    for number in range(12):
        await parent.fork(9 if number % 3 == 0 else 10 + number, id=f"fork{number}")
    index = SessionIndex(bus, IndexBounds(fold_seconds=fold_seconds, read_bytes=5_000, read_entries=2))
    with Reads() as reads:
        await read_all(index)
    wanted = {f"fork{number}": None if number % 3 == 0 else "the title" for number in range(12)}
    assert titles(index) == {**wanted, "parent": "the title"}
    assert reads.of_llm("parent") in {10, 11}, "entries after the title, or an entry twice"
    await parent.fork(id="later")
    with Reads() as reads:
        await read_all(index)
    assert (titles(index)["later"], reads.pages) == ("the title", [])


async def test_a_new_fork_costs_the_same_at_any_depth(bus: Bus) -> None:
    await bus.session("root").publish(UserMessage.text("the title"), AssistantMessage.text("x"))
    index = SessionIndex(bus, IndexBounds(fold_seconds=60))
    last, costs = bus.session("root"), list[tuple[int, int]]()
    for depth in range(12):
        last = await last.fork(id=f"d{depth}")
        await last.publish(AssistantMessage.text(f"{depth}"))
        with Reads() as reads:
            await read_all(index)
        costs.append((reads.heads, len(reads.pages)))
    assert set(titles(index).values()) == {"the title"}
    assert max(costs[2:]) == min(costs[2:]), costs


async def test_a_fork_takes_its_own_title_or_that_of_the_nearest_start(bus: Bus) -> None:
    root = bus.session("root")
    await root.publish(AssistantMessage.text("x"))
    child = await root.fork(id="child")
    await child.publish(UserMessage.text("of the child"))
    await root.publish(UserMessage.text("of the root"))
    await child.fork(id="of-child")
    await child.fork(1, id="of-start")
    own = await child.fork(id="own")
    await own.publish(UserMessage.text("its own"))
    await read_all(index := SessionIndex(bus, IndexBounds(fold_seconds=60, read_entries=1)))
    own_titles = {"root": "of the root", "child": "of the child", "own": "its own"}
    assert titles(index) == {**own_titles, "of-child": "of the child", "of-start": None}


async def test_a_fork_of_an_erased_parent_is_listed_with_what_its_own_entries_tell(bus: Bus) -> None:
    parent = bus.session("parent")
    await parent.publish(UserMessage.text("secret"))
    fork = await parent.fork(id="fork")
    await fork.publish(AssistantMessage.text("x"))
    await read_all(known := SessionIndex(bus, IndexBounds(fold_seconds=60, sweep_seconds=1e-9)))
    await parent.erase(force=True)
    await read_all(anew := SessionIndex(bus, IndexBounds(fold_seconds=60)))
    assert {name: (row.title, row.state) for name, row in anew.rows.items()} == {"fork": (None, "idle")}
    await known.refresh()
    assert known.rows.keys() == {"fork"}


async def test_concurrent_refreshes_search_a_parent_once(bus: Bus) -> None:
    parent = bus.session("parent")
    await parent.publish(*[AssistantMessage.text("x")] * 5, UserMessage.text("the title"))
    for number in range(8):
        await parent.fork(id=f"fork{number}")
    index = SessionIndex(bus, IndexBounds(fold_seconds=60, read_entries=1))
    with Reads() as reads:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(index.refresh)
    assert set(titles(index).values()) == {"the title"}
    assert reads.of_llm("parent") == 6


STORING = IndexBounds(fold_seconds=60, read_bytes=5_000, read_entries=4, store_entries=10)


async def test_a_later_index_reads_only_the_entries_after_the_stored_states(bus: Bus) -> None:
    session = bus.session("large")
    await session.publish(UserMessage.text("the title"), *[AssistantMessage.text(LONG)] * 20)
    await waiting_for_approval(session, "go on", "rm")
    await bus.session("small").publish(UserMessage.text("small"))
    first, later = SessionIndex(bus, STORING), SessionIndex(bus, STORING)
    await read_all(first)
    with Reads() as reads:
        await read_all(later)
    assert later.rows == first.rows
    assert [call.event.tool_name for call in later.rows["large"].waits] == ["rm"]
    assert [page.head.session for page in reads.pages if any(page.pages)] == ["small"]
    await session.publish(*[AssistantMessage.text("x")] * 3)
    with Reads() as reads:
        await read_all(newest := SessionIndex(bus, STORING))
    assert reads.total("large") == 3
    assert newest.rows["large"].head.position == (await session.head()).position


async def test_an_index_that_ends_early_leaves_what_it_has_read_to_the_next(bus: Bus) -> None:
    await bus.session("s").publish(UserMessage.text("the title"), *[AssistantMessage.text(LONG)] * 39)
    hasty = IndexBounds(fold_seconds=1e-9, read_bytes=5_000, read_entries=4, store_entries=10)
    first = SessionIndex(bus, hasty)
    while first.rows.get("s") is None or first.rows["s"].title is None:
        await first.refresh()
    for _ in range(4):
        await first.refresh()
    assert first.unread(first.rows) == 1
    with Reads() as reads:
        await read_all(SessionIndex(bus, hasty))
    assert reads.total("s") < 40


async def test_a_stored_state_holds_no_trim_back_and_is_made_anew_after_it(bus: Bus) -> None:
    session = bus.session("s")
    await session.publish(UserMessage.text("the title"), *[AssistantMessage.text(LONG)] * 20, wake=False)
    await read_all(SessionIndex(bus, STORING))
    assert await session.checkpoints() == {}
    await session.publish(*[AssistantMessage.text(LONG)] * 20)
    assert (await session.trim(30, force=False)).holders == {}
    await read_all(later := SessionIndex(bus, STORING))
    assert (later.rows["s"].title, later.rows["s"].state) == (None, "idle")


async def test_the_stored_state_of_a_log_that_lost_its_end_is_replaced(bus: Bus) -> None:
    session = bus.session("s")
    await session.publish(UserMessage.text("the title"), *[AssistantMessage.text(LONG)] * 20)
    foreign = (await session.head()).cursor._replace(position=500)
    await session.save_projection("lanebus.card", 1, b"{}", cursor=foreign, expected=0)
    await read_all(first := SessionIndex(bus, STORING))
    assert first.rows["s"].title == "the title"
    with Reads() as reads:
        await read_all(SessionIndex(bus, STORING))
    assert reads.total("s") == 0


async def test_a_server_user_that_may_only_read_lists_the_sessions() -> None:
    reader, _ = acl_users("lanebus")
    with one_server("valkey") as server:
        assert server.do(*str(reader).split()) == "OK"
        server.do("ACL", "SETUSER", reader.name, ">secret", "+info")
        async with server.bus() as writing, Bus.open(f"unix://{reader.name}:secret@{server.socket}") as bus:
            await writing.session("s").publish(UserMessage.text("the title"), *[AssistantMessage.text(LONG)] * 20)
            await read_all(index := SessionIndex(bus, STORING))
            assert titles(index) == {"s": "the title"}
            await read_all(SessionIndex(writing, STORING))
            with Reads() as reads:
                await read_all(index := SessionIndex(bus, STORING))
            assert (titles(index), reads.total("s")) == ({"s": "the title"}, 0)
