"""A projection over all sessions: every entry of every session once, however the total came to be."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace

import pytest

from lanebus import Bus, ExtensionMessage, Session, UserMessage
from lanebus.bus import Activity
from lanebus.errors import DecodeError, LogRolledBack
from lanebus.handlers.projections import Projected, Projection, all_sessions, load_stored, projection
from lanebus.projections import (
    AllProjected,
    AllSessionsBounds,
    FoldFailed,
    InvalidProjection,
    follow_all,
    project_all,
    rebuild_all,
)
from tests.support.log.said import said
from tests.support.servers.real import AnyServer, RealServer

__all__ = ()

Counts = Mapping[str, int]

FAST = AllSessionsBounds(reads_at_once=2, poll_seconds=0.01)


@projection("words", version=1, forked={})
def words(counts: Counts, message: UserMessage) -> Counts:
    word = message.text_content()
    if word == "odd":
        raise DecodeError("", "odd")
    return {**counts, word: counts.get(word, 0) + 1}


def merge(one: Counts, other: Counts) -> Counts:
    return {word: one.get(word, 0) + other.get(word, 0) for word in one.keys() | other.keys()}


async def speak(bus: Bus, session: str, *texts: str) -> None:
    await bus.session(session).publish(*[said(text) for text in texts])


async def until(totals: AsyncGenerator[AllProjected[Counts]], state: Counts) -> AllProjected[Counts]:
    """The first total with this state."""
    async for now in totals:
        if now.state == state:
            return now
    raise AssertionError


@pytest.mark.cluster("the sessions are on several servers")
async def test_every_session_is_in_the_total_once(bus: Bus) -> None:
    assert (await project_all(bus, words, merge)).state == {}
    for number in range(20):
        await speak(bus, f"s{number}", "a", "b" if number % 2 else "odd")
    expected = AllProjected({"a": 20, "b": 10}, sessions=20, entries=40, unreadable=10)
    assert await project_all(bus, words, merge, bounds=FAST) == expected
    await speak(bus, "s0", "c")
    again = replace(expected, state={"a": 20, "b": 10, "c": 1}, entries=41)
    assert await project_all(bus, words, merge) == again
    assert await rebuild_all(bus, words, merge) == again


async def test_what_is_stored_of_the_sessions_is_not_folded_again(one: RealServer) -> None:
    folded: list[str] = []

    @projection("seen", version=1, forked=0)
    def seen(number: int, message: UserMessage) -> int:
        folded.append(message.text_content())
        return number + 1

    async with one.bus() as bus:
        await speak(bus, "s1", "a", "b")
        await speak(bus, "s2", "c")
        assert (await project_all(bus, seen, int.__add__)).state == 3
    folded.clear()  # as in a process that begins after a crash
    async with one.bus() as bus:
        await speak(bus, "s1", "d")
        assert (await project_all(bus, seen, int.__add__)).state == 4
        assert folded == ["d"]
        await rebuild_all(bus, seen, int.__add__)
        assert sorted(folded[1:]) == ["a", "b", "c", "d"]
        newer = replace(seen, version=2)
        folded.clear()
        assert (await project_all(bus, newer, int.__add__)).state == 4
        assert sorted(folded) == ["a", "b", "c", "d"]


async def test_a_fork_counts_only_its_own_entries_also_when_its_parent_was_erased(bus: Bus) -> None:
    await speak(bus, "s1", "a", "b")
    fork = await bus.session("s1").fork()
    await speak(bus, fork.id, "c")
    assert (await project_all(bus, words, merge)).state == {"a": 1, "b": 1, "c": 1}
    await bus.session("s1").erase(force=True)
    assert await project_all(bus, words, merge) == AllProjected({"c": 1}, sessions=1, entries=3)


async def test_a_projection_that_would_count_twice_and_an_error_of_a_fold_come_out_alone(bus: Bus) -> None:
    @projection("wrong", version=1, forked=0)
    def wrong(number: int, message: UserMessage) -> int:
        raise KeyError(message.text_content())

    shared: Projection[Counts] = replace(words, forked=None)
    with pytest.raises(InvalidProjection, match="forked="):
        await project_all(bus, shared, merge)
    await speak(bus, "s1", "a")
    with pytest.raises(FoldFailed) as caught:
        await project_all(bus, wrong, int.__add__)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_what_is_left_of_a_trimmed_session_counts_and_an_erased_one_does_not(bus: Bus) -> None:
    for name in ("s1", "s2", "s3"):
        await speak(bus, name, "a", "b")
    await project_all(bus, words, merge)
    await bus.session("s1").trim(2)
    await bus.session("s2").drop_projection("words", 1)
    await bus.session("s2").trim(2)
    await bus.session("s3").erase()
    expected = AllProjected({"a": 1, "b": 2}, sessions=2, entries=4, trimmed=1)
    assert await project_all(bus, words, merge) == expected
    assert await rebuild_all(bus, words, merge) == expected


async def test_a_session_that_cannot_be_read_is_counted_as_failed(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    await speak(bus, "s1", "a")
    await speak(bus, "s2", "b")
    load = load_stored

    async def damaged(session: Session, projection: Projection[Counts]) -> Projected[Counts] | None:
        if session.id == "s1":
            raise LogRolledBack("s1", 5, 2)
        return await load(session, projection)

    monkeypatch.setattr(all_sessions, "load_stored", damaged)
    assert await project_all(bus, words, merge) == AllProjected({"b": 1}, sessions=1, entries=1, failed=1)


@pytest.mark.cluster("changes are on several servers")
async def test_following_gives_a_total_after_each_change(server: AnyServer) -> None:
    async with server.bus() as bus, server.bus() as other:
        await speak(other, "s1", "a")
        async with aclosing(follow_all(bus, words, merge, bounds=FAST)) as totals:
            assert await anext(totals) == AllProjected({"a": 1}, sessions=1, entries=1)
            await speak(other, "s1", "b")
            assert (await until(totals, {"a": 1, "b": 1})).entries == 2
            await other.session("s2").publish(ExtensionMessage.of("note"), said("b"))
            assert (await until(totals, {"a": 1, "b": 2})).sessions == 2


async def test_following_finds_an_erased_session(one: RealServer) -> None:
    async with one.bus() as bus, one.bus() as other:
        await speak(other, "s1", "a")
        often = replace(FAST, sweep_seconds=0.05)
        async with aclosing(follow_all(bus, words, merge, bounds=often)) as totals:
            await anext(totals)
            await other.session("s1").erase()
            await until(totals, {})


async def test_following_reads_all_sessions_if_a_look_does_not_name_every_change(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = bus.activity

    async def nameless(since: Activity | None = None) -> Activity:
        return replace(await look(since), sessions={}, named=0)

    monkeypatch.setattr(bus, "activity", nameless)
    await speak(bus, "s1", "a")
    rarely = replace(FAST, sweep_seconds=1e6)
    async with aclosing(follow_all(bus, words, merge, bounds=rarely)) as totals:
        await anext(totals)
        await speak(bus, "s1", "a")
        await until(totals, {"a": 2})
