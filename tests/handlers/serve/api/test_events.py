"""Event streams of several sessions, the stream of changes, and the number of streams of a token."""

import json
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import cast

import anyio
import anyio.lowlevel
import httpx2
import pytest

from lanebus import START, Bus, Cursor, Delta, ExtensionMessage, Session, UserMessage
from lanebus.access import AccessBounds, AccessRequest, Decision, authorize_by_rights
from lanebus.bus.errors import InvalidCursor, InvalidSessionId
from lanebus.handlers.serve.api.endpoint import Changes
from lanebus.handlers.serve.api.events import MergedFrames, cursors_text, parse_cursors
from lanebus.handlers.serve.budget import ByteBudget, Share
from lanebus.handlers.serve.stream import Frame, Outlet
from tests.support.agent.agents import until
from tests.support.page.serving import temporary_bus
from tests.support.serve import Client, UiBounds, api, connected, head_of
from tests.support.servers.real import eventually
from tests.support.suite.scale import randomness

NAMES = ("a", "b", "c")
MERGED = "/api/events?sessions=a,b,c&lanes=all"


async def take(events: AsyncGenerator[tuple[str, str, dict[str, object]]], count: int) -> list[tuple[str, int]]:
    """Return the session and number of the next entries."""
    found = list[tuple[str, int]]()
    with anyio.fail_after(120):
        while len(found) < count:
            name, _, data = await anext(events)
            if name == "entry":
                message = data["message"]
                assert isinstance(message, dict)
                found.append((str(data["session"]), cast("int", message["data"])))
    return found


async def frames_of(source: httpx2.EventSource, last: list[str]) -> AsyncGenerator[tuple[str, str, dict[str, object]]]:
    """Yield the frames, and keep the id of the last one in `last`."""
    async for event in source:
        if event.id:
            last[:] = [event.id]
        yield event.event, event.id, json.loads(event.data)


# --- several sessions ---------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_a_merged_stream_that_is_cut_anywhere_resumes_without_loss_and_without_repeats(
    bus: Bus, client: httpx2.AsyncClient
) -> None:
    chance, counts, seen, last = randomness("cuts"), dict.fromkeys(NAMES, 0), defaultdict[str, list[int]](list), [""]

    async def publish(count: int) -> None:
        for _ in range(count):
            name = chance.choice(NAMES)
            counts[name] += 1
            await bus.session(name).publish(ExtensionMessage.of("tick", counts[name]))

    await publish(20)
    for _ in range(12):
        headers = {"Last-Event-ID": last[0]} if last[0] else {}
        async with (
            client.sse(MERGED, headers=headers) as source,
            aclosing(frames_of(source, last)) as frames,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(publish, 10)
            left = sum(counts.values()) - sum(map(len, seen.values()))
            for name, number in await take(frames, chance.randint(1, left)):
                seen[name].append(number)
    async with (
        client.sse(MERGED, headers={"Last-Event-ID": last[0]}) as source,
        aclosing(frames_of(source, last)) as frames,
    ):
        for name, number in await take(frames, sum(counts.values()) - sum(map(len, seen.values()))):
            seen[name].append(number)
    assert {name: seen[name] for name in NAMES} == {name: [*range(1, counts[name] + 1)] for name in NAMES}


async def test_a_merged_stream_has_deltas_and_notices_with_their_session_and_all_cursors(
    bus: Bus, client: httpx2.AsyncClient
) -> None:
    await bus.session("a").publish(UserMessage.text("hi"))
    async with client.sse(MERGED) as source, aclosing(frames_of(source, [""])) as frames:
        with anyio.fail_after(120):
            begun = [await anext(frames) for _ in range(4)]  # the entry, and one notice a session
            await bus.session("b").preview(Delta(kind="text", message_id="m1", delta="x"))
            name, id, data = await anext(frames)
    notices = [("caughtup", "a"), ("caughtup", "b"), ("caughtup", "c")]
    assert sorted((name, str(data["session"])) for name, _, data in begun) == [*notices, ("entry", "a")]
    assert (name, data["session"]) == ("delta", "b")
    places = {session: cursor.position + cursor.delta for session, cursor in parse_cursors(id, 3).items()}
    assert places == {"a": 1, "b": 1, "c": 0}


class Taker:
    """A client that accepts everything, or nothing."""

    def __init__(self, *, is_ready: bool) -> None:
        self._is_ready = is_ready

    def is_ready(self) -> bool:
        return self._is_ready

    def write(self, frame: Frame) -> None:
        raise AssertionError(frame)


async def test_no_session_writes_at_once_while_a_frame_of_another_is_not_sent_yet() -> None:
    # Otherwise the id of the written frame would hold the cursor of a frame that the client does not have yet.
    gates, later, go = dict[str, Outlet](), list[bool](), anyio.Event()

    async def look() -> None:
        await anyio.wait_all_tasks_blocked()
        later.extend(gates[name].is_ready() for name in ("a", "b"))
        go.set()

    async def part(session: Session, share: Share, outlet: Outlet) -> AsyncGenerator[Frame]:
        del share
        gates[session.id] = outlet
        if session.id == "a":
            yield Frame("a", "entry", "{}", Cursor(1))
            await go.wait()
            yield Frame("a", "entry", "{}", Cursor(2))
        await anyio.sleep_forever()

    async with temporary_bus() as bus, ByteBudget().share(lambda: None) as share:
        merged = MergedFrames({"b": Cursor(7)})
        frames = merged.run({name: bus.session(name) for name in ("a", "b")}, part, share, Taker(is_ready=True))
        async with aclosing(frames):
            frame = await anext(frames)
            await anyio.wait_all_tasks_blocked()
            assert [gates[name].is_ready() for name in ("a", "b")] == [False, False]
            assert merged.encode(frame).endswith(b"\nid: b:7-0,a:1-0\n\n")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(look)
                await anext(frames)
        assert later == [True, True]


async def test_a_merged_stream_starts_after_its_cursors_and_ignores_other_sessions(bus: Bus, client: Client) -> None:
    for name in ("a", "b"):
        await bus.session(name).publish(*[ExtensionMessage.of("tick", number) for number in (1, 2)])
    path = "/api/events?sessions=a,b&lanes=all&after=a:1-0,gone:7-0"
    async with client.sse(path) as source, aclosing(frames_of(source, [""])) as frames:
        assert sorted(await take(frames, 3)) == [("a", 2), ("b", 1), ("b", 2)]


async def test_an_erased_session_ends_alone_and_the_others_go_on(bus: Bus, client: Client) -> None:
    await bus.session("a").publish(ExtensionMessage.of("tick", 1))
    await bus.session("a").erase()
    async with client.sse("/api/events?sessions=a,b&lanes=all") as source, aclosing(frames_of(source, [""])) as frames:
        with anyio.fail_after(120):
            begun = [await anext(frames) for _ in range(2)]
        assert {(name, data["session"]) for name, _, data in begun} == {("failed", "a"), ("caughtup", "b")}
        (failure,) = (data for name, _, data in begun if name == "failed")
        assert (failure["status"], failure["error"]) == (409, "session_erased")
        await bus.session("b").publish(ExtensionMessage.of("tick", 1))
        assert await take(frames, 1) == [("b", 1)]


async def test_a_merged_stream_of_no_session_or_of_too_many_or_with_a_wrong_cursor_is_refused() -> None:
    async with api(bounds=UiBounds(streamed_sessions=2)) as (_, client):
        for query in ("", "?sessions=", "?sessions=a,b,c", "?sessions=a b", "?sessions=a&after=7-0", "?sessions=a&x=1"):
            assert (await client.get(f"/api/events{query}")).status_code == 400, query
        many = {"Last-Event-ID": cursors_text(dict.fromkeys(NAMES, START))}
        assert (await client.get("/api/events?sessions=a&lanes=all", headers=many)).status_code == 400


def test_cursors_of_sessions_are_read_back_and_other_texts_are_refused() -> None:
    cursors = {"a": Cursor(7, 3, "0_abc"), "B-_9": Cursor(0), "c": Cursor(10**17)}
    assert parse_cursors(cursors_text(cursors), 3) == cursors
    assert parse_cursors("", 3) == {}
    for text in ("a", "a:", "a:1-0,", "a:1-0,a:2-0", "a:1-0,b:1,c:1,d:1", "a:\u0661", ":1-0", "a:1-0 "):
        with pytest.raises((InvalidCursor, InvalidSessionId)):
            parse_cursors(text, 3)


async def test_the_memory_of_a_part_is_freed_when_the_client_of_its_response_is_blocked() -> None:
    budget, gone = ByteBudget(UiBounds(memory_bytes=3, patience_seconds=0.01)), anyio.Event()
    async with budget.share(gone.set) as whole, whole.part() as part, budget.share(lambda: None) as other:
        await part.take(3)
        whole.blocked_at = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.take, 3)
            with anyio.fail_after(60):
                await gone.wait()
            part.keep(0)


# --- changes ------------------------------------------------------------------------------------------------------


async def test_the_stream_of_changes_names_the_sessions_that_have_new_entries() -> None:
    async with api(bounds=UiBounds(changes_seconds=0.01)) as (bus, client):
        await bus.session("old").publish(ExtensionMessage.of("tick"))
        async with client.sse("/api/changes") as source, aclosing(frames_of(source, [""])) as frames:
            with anyio.fail_after(120):
                assert (await anext(frames))[0] == "ready"
                for name in ("a", "b"):
                    await bus.session(name).publish(ExtensionMessage.of("tick"), ExtensionMessage.of("tick"))
                positions = dict[object, object]()
                while positions.keys() != {"a", "b"}:
                    name, _, data = await anext(frames)
                    assert name == "changed"
                    named = data["sessions"]
                    assert isinstance(named, list)
                    changed = cast("list[dict[str, object]]", named)
                    positions |= {each["session"]: each["position"] for each in changed}
    assert positions == {"a": 2, "b": 2}


async def test_a_client_that_is_too_slow_for_the_changes_is_told_that_it_missed_some() -> None:
    async with temporary_bus() as bus:
        changes = Changes(bus, UiBounds(changes_seconds=0.001, changes_kept=2))
        async with aclosing(changes.follow()) as slow, aclosing(changes.follow()) as quick:
            with anyio.fail_after(120):
                assert (await anext(slow)).is_complete
                await anext(quick)
                for number in range(4):
                    await bus.session(f"s{number}").publish(ExtensionMessage.of("tick"))
                    assert (await anext(quick)).positions == {f"s{number}": 1}
                found = [await anext(slow) for _ in range(3)]
    assert found[0] == ({}, False)
    assert [*found[1].positions, *found[2].positions] == ["s2", "s3"]


# --- the number of streams ----------------------------------------------------------------------


async def test_a_client_that_is_gone_before_its_stream_begins_leaves_nothing_open() -> None:
    asked, go = anyio.Event(), anyio.Event()

    async def authorize(request: AccessRequest) -> Decision:
        asked.set()
        await go.wait()
        return await authorize_by_rights(request)

    async with api(authorize=authorize) as (_, client):
        before = len(anyio.get_running_tasks())
        async with connected(client, head_of(client, "GET /api/sessions/s/events")):
            await asked.wait()
        await client.get("/favicon.ico")  # the server handles this after the end of the connection
        await client.aclose()
        go.set()
        await eventually(lambda: len(anyio.get_running_tasks()) <= before)


OTHER = {"Authorization": "Bearer reader-token"}


async def wait_for_place(client: Client) -> None:
    """Wait until a stream may be opened: the server closes the others a moment later than the client."""

    async def is_open() -> bool:
        async with client.stream("GET", "/api/changes") as reply:
            return reply.status_code == 200

    await until(is_open)


async def test_a_token_may_have_a_limited_number_of_open_streams() -> None:
    bounds = UiBounds(access=AccessBounds(streams=2), heartbeat_seconds=15.5)
    one, merged, changes = "/api/sessions/s/events?lanes=all", "/api/events?sessions=s&lanes=all", "/api/changes"
    async with api(bounds=bounds, reader_token="reader-token") as (_, client):
        async with AsyncExitStack() as stack:
            for path in (one, changes):
                await stack.enter_async_context(client.sse(path))
            for path in (one, merged, changes):
                reply = await client.get(path)
                assert (reply.status_code, reply.headers["retry-after"]) == (429, "16")  # the heartbeat, whole seconds
                assert "2 open event streams" in reply.text
            # Another token is not concerned, and neither are other requests.
            await stack.enter_async_context(client.sse(one, headers=OTHER))
            assert (await client.get("/api/sessions")).status_code == 200
        await wait_for_place(client)


async def test_a_merged_stream_counts_once_for_each_session_that_it_follows() -> None:
    async with api(bounds=UiBounds(access=AccessBounds(followed=5)), reader_token="reader-token") as (_, client):
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(client.sse(MERGED))
            for headers in (None, OTHER):  # another token has a number of its own
                reply = await client.get("/api/events?sessions=a,b,c,d,e,f&lanes=all", headers=headers)
                assert reply.status_code == 429
                assert "5 sessions together" in reply.text
                assert int(reply.headers["retry-after"]) > 0
            assert (await client.get(MERGED)).status_code == 429
            for path in ("/api/events?sessions=c&lanes=all", "/api/sessions/d/events?lanes=all"):
                await stack.enter_async_context(client.sse(path))
            for path in ("/api/sessions/e/events?lanes=all", "/api/events?sessions=e&lanes=all", "/api/changes"):
                assert (await client.get(path)).status_code == 429, path
            await stack.enter_async_context(client.sse(MERGED, headers=OTHER))
        await wait_for_place(client)


async def test_each_session_of_a_merged_stream_counts_as_a_request() -> None:
    bounds = UiBounds(access=AccessBounds(burst=7, requests_per_second=0.000_1))
    async with api(bounds=bounds) as (_, client):
        for path, status in (("/api/events?sessions=a,b,c,d,e", 200), ("/api/events?sessions=a,b,c", 429)):
            async with client.stream("GET", f"{path}&lanes=all") as reply:
                assert reply.status_code == status
        assert (await client.get("/api/sessions")).status_code == 200


async def test_a_merged_stream_starts_its_sessions_one_after_the_other() -> None:
    started = list[str]()

    async def part(session: Session, share: Share, outlet: Outlet) -> AsyncGenerator[Frame]:
        del share, outlet
        started.append(session.id)
        yield Frame(session.id, "caughtup", "{}", None)

    most = 0
    async with temporary_bus() as bus, ByteBudget().share(lambda: None) as share, anyio.create_task_group() as tasks:
        sessions = {f"s{number}": bus.session(f"s{number}") for number in range(20)}

        async def count() -> None:
            nonlocal most
            while True:
                before = len(started)
                await anyio.lowlevel.checkpoint()
                most = max(most, len(started) - before)

        tasks.start_soon(count)
        async with aclosing(MergedFrames({}).run(sessions, part, share, Taker(is_ready=False))) as frames:
            found = [frame.session async for frame in frames]
        tasks.cancel_scope.cancel()
        assert sorted(found) == sorted(sessions)
        assert most <= 2
