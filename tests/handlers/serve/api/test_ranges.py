"""Ranges of entries, and filtered event streams."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from lanebus import Bus, Delta, ExtensionMessage, UserMessage
from lanebus.handlers.serve.api.openapi import endpoints
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, UiBounds
from tests.support.page.serving import client_of, serving, temporary_bus

__all__ = ()

ENTRIES, EVENTS = "/api/sessions/s1/entries", "/api/sessions/s1/events"


@asynccontextmanager
async def opened(bounds: UiBounds | None = None) -> AsyncGenerator[tuple[Bus, httpx2.AsyncClient]]:
    """Yield a session with 12 entries: a user message at each third position, else ticks."""
    async with temporary_bus() as bus, serving(bus, bounds=bounds or UiBounds()) as served, client_of(served) as client:
        for at in range(1, 13):
            message = ExtensionMessage.of("tick.a" if at % 2 else "tick.b", at) if at % 3 else UserMessage.text(str(at))
            await bus.session("s1").publish(message)
        yield bus, client


async def positions(client: httpx2.AsyncClient, query: str) -> list[int]:
    reply = await client.get(f"{ENTRIES}?{query}")
    assert reply.status_code == 200, reply.text
    return [entry["position"] for entry in reply.json()["entries"]]


async def test_entries_are_chosen_by_position_lane_and_kind() -> None:
    async with opened() as (_, client):
        assert await positions(client, "after=3&until=5") == [4, 5]
        assert await positions(client, "before=5&limit=2") == [3, 4]
        assert await positions(client, "after=2&before=5&limit=9") == [3, 4]
        assert await positions(client, "after=3&limit=2") == [4, 5]
        assert await positions(client, "lanes=llm") == [3, 6, 9, 12]
        assert await positions(client, "kinds=user") == [3, 6, 9, 12]
        assert await positions(client, "kinds=tick.a,user&after=6") == [7, 9, 11, 12]
        assert await positions(client, "kinds=tick.*&lanes=extension&until=4") == [1, 2, 4]
        assert await positions(client, "kinds=of_no_message") == []


@pytest.mark.parametrize("query", ["after=13", "after=9999&limit=5", "after=13&lanes=llm"])
async def test_entries_after_the_end_are_refused_with_the_last_position(query: str) -> None:
    async with opened() as (_, client):
        reply = await client.get(f"{ENTRIES}?{query}")
        assert (reply.status_code, reply.json()["error"]) == (409, "log_rolled_back")
        assert "unchanged up to 12" in reply.json()["detail"]
        end = (await client.get(f"{ENTRIES}?after=12")).json()
        assert (end["entries"], end["more"]) == ([], False)
        assert (await client.get(f"{ENTRIES}?after={end['cursor']}")).status_code == 200


async def test_entries_after_a_cursor_of_another_log_are_refused() -> None:
    async with opened() as (_, client):
        for position in (5, 12):
            reply = await client.get(f"{ENTRIES}?after={position}-0.0_other")
            assert (reply.status_code, reply.json()["error"]) == (409, "log_rolled_back"), position


async def test_a_page_backwards_without_a_selected_entry_names_the_previous_one() -> None:
    async with opened() as (_, client):
        page = (await client.get(f"{ENTRIES}?before=12&limit=2&kinds=user")).json()
        assert (page["entries"], page["previous"]) == ([], 10)


async def test_pages_backwards_return_every_entry_once() -> None:
    async with opened() as (_, client):
        found = list[int]()
        before: int | None = 13
        for _ in range(20):
            reply = (await client.get(f"{ENTRIES}?before={before}&limit=5&kinds=tick.*")).json()
            found = [entry["position"] for entry in reply["entries"]] + found
            before = reply["previous"]
            if before is None:
                break
        assert before is None
        assert found == [1, 2, 4, 5, 7, 8, 10, 11]


async def test_entries_are_chosen_by_the_time_of_their_append() -> None:
    async with opened() as (_, client):
        entries = (await client.get(ENTRIES)).json()["entries"]
        for at in (0, 5, 11):
            moment = entries[at]["time"]
            after = [entry["position"] for entry in entries if entry["time"] >= moment]
            assert await positions(client, f"since={moment}") == after
            assert await positions(client, f"beforeTime={moment}") == [*range(1, after[0])]
        assert await positions(client, "since=2000-01-01T00:00:00Z&beforeTime=2200-01-01T00:00:00%2B02:00") == [
            *range(1, 13)
        ]
        assert await positions(client, "since=9999999999") == []


@pytest.mark.parametrize(
    "query",
    [
        *("before=0", "before=x", "limit=-1", "limit=1e3", "since=x", "since=nan", "since=2026-01-31T12:00:00"),
        *("beforeTime=-1", "kinds=,", "kinds=user,", "lanes=all,llm"),
    ],
)
async def test_a_range_of_a_wrong_form_is_refused(query: str) -> None:
    async with opened() as (_, client):
        reply = await client.get(f"{ENTRIES}?{query}")
        assert (reply.status_code, reply.json()["error"]) == (400, "invalid_parameter")


async def frames(
    client: httpx2.AsyncClient, query: str, *, until: str, caught_up: Callable[[], Awaitable[object]] | None = None
) -> list[tuple[str, str]]:
    """Return the events and ids of a stream until an event, or until a message with this data. A frame that has only an
    id is "moved".

    Args:
        client: the client.
        query: the stream's query.
        until: the last event, or the data of the last message.
        caught_up: called once when the stream has caught up.
    """
    found, lines = list[tuple[str, str]](), list[str]()
    with anyio.fail_after(60):
        async with client.stream("GET", f"{EVENTS}?{query}") as reply:
            assert reply.status_code == 200
            async for line in reply.aiter_lines():
                if line:
                    lines.append(line)
                    continue
                fields = dict(each.split(": ", 1) for each in lines if not each.startswith(":"))
                lines.clear()
                if not fields:
                    continue
                data = json.loads(fields.get("data", "{}"))
                name = fields.get("event", "moved")
                found.append((name, fields["id"].split(".")[0]))
                if name == until or data.get("message", {}).get("data") == until:
                    break
                if name == "caughtup" and caught_up is not None:
                    await caught_up()
    return found


async def test_a_stream_sends_the_extension_lane_unless_others_are_chosen() -> None:
    async with opened() as (_, client):
        for query, expected in (
            ("", [1, 2, 4, 5, 7, 8, 10, 11]),
            ("lanes=llm", [3, 6, 9, 12]),
            ("lanes=all", [*range(1, 13)]),
            ("lanes=all&kinds=tick.b,user&after=5", [6, 8, 9, 10, 12]),
        ):
            found = await frames(client, query, until="caughtup")
            assert [int(id.partition("-")[0]) for name, id in found if name == "entry"] == expected


async def test_a_filtered_stream_moves_its_cursor_past_what_it_leaves_out() -> None:
    async with opened(UiBounds(skipped_entries=3)) as (bus, client):

        async def publish() -> None:
            for at in range(13, 17):
                await bus.session("s1").publish(ExtensionMessage.of("tick.a", at))
            await bus.session("s1").publish(ExtensionMessage.of("mark", "over"))

        found = await frames(client, "kinds=mark", until="over", caught_up=publish)
        assert ("moved", "12-0") in found[: found.index(("caughtup", "12-0"))]  # past the stored entries
        assert found[-2:] == [("moved", "15-0"), ("entry", "17-0")]


@pytest.mark.parametrize(("live", "events"), [("true", {"delta", "entry"}), ("false", {"entry"})])
async def test_live_deltas_are_sent_unless_the_client_wants_none(live: str, events: set[str]) -> None:
    async with opened() as (bus, client):

        async def publish() -> None:
            await bus.session("s1").preview(Delta(kind="text", message_id="m1", delta="x"))
            await bus.session("s1").publish(ExtensionMessage.of("mark", "over"))

        query = f"lanes=all&after=12&live={live}"
        found = await frames(client, query, until="over", caught_up=publish)
        assert {name for name, _ in found[1:]} - {"caughtup"} == events


async def test_a_limit_over_the_maximum_counts_as_the_maximum() -> None:
    async with opened(UiBounds(page_entries=3, sessions=1)) as (bus, client):
        await bus.session("s2").publish(UserMessage.text("hi"))
        page = (await client.get(f"{ENTRIES}?limit=9999")).json()
        assert ([entry["position"] for entry in page["entries"]], page["more"]) == ([1, 2, 3], True)
        listed = (await client.get("/api/sessions?limit=9999")).json()
        assert (listed["count"], len(listed["sessions"]), listed["cursor"] is None) == (2, 1, False)


def test_each_limit_says_its_maximum() -> None:
    limits = {
        each.path: parameter for each in endpoints() for parameter in each.parameters if parameter.name == "limit"
    }
    maximum = {"entries": DEFAULT_UI_BOUNDS.page_entries, "turns": DEFAULT_UI_BOUNDS.turns}
    maximum |= {"sessions": DEFAULT_UI_BOUNDS.sessions, "waiting": DEFAULT_UI_BOUNDS.sessions}
    maximum["timeline"] = DEFAULT_UI_BOUNDS.turns
    assert {path.rpartition("/")[2] for path in limits} == maximum.keys()
    for path, parameter in limits.items():
        assert f"counts as {maximum[path.rpartition('/')[2]]:,}" in parameter.description
