"""The states of projections over HTTP: now, at a position, and as a stream."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import cast

import anyio

from lanebus import Bus, UserMessage
from lanebus.handlers.projections import Projection, projection
from tests.support.agent.agents import SECONDS
from tests.support.serve import DEFAULT_UI_BOUNDS, Client, UiBounds, api

S = "/api/sessions/s1/projections"


@projection("words", version=3)
def words(count: int, message: UserMessage) -> int:
    return count + len(message.text_content().split())


@asynccontextmanager
async def opened(bounds: UiBounds = DEFAULT_UI_BOUNDS) -> AsyncGenerator[tuple[Bus, Client]]:
    async with api(bounds=bounds, projections=[cast("Projection[object]", words)]) as (bus, client):
        await bus.session("s1").publish(UserMessage.text("one two"), UserMessage.text("three"))
        yield bus, client


async def states(client: Client, after: str = "") -> AsyncGenerator[dict[str, object]]:
    """Yield the data of the frames, and its id as `id`."""
    headers = {"Last-Event-ID": after} if after else {}
    async with client.stream("GET", f"{S}/words/events", headers=headers) as reply:
        assert reply.status_code == 200
        found: dict[str, object] = {}
        async for line in reply.aiter_lines():
            name, _, text = line.partition(": ")
            if name == "data":
                found |= json.loads(text)
            elif name == "id":
                found["id"] = text
            elif not line and found:
                yield found
                found = {}


async def test_a_projection_has_its_state_now_and_at_an_earlier_position() -> None:
    async with opened() as (_, client):
        known = (await client.get("/api/projections")).json()["projections"]
        assert [each["name"] for each in known] == ["usage", "turns", "sessions", "status", "timeline", "words"]
        now = (await client.get(f"{S}/words")).json()
        assert (now["name"], now["version"], now["position"], now["state"], now["unreadable"]) == ("words", 3, 2, 3, 0)
        past = (await client.get(f"{S}/words?position=1")).json()
        assert (past["position"], past["state"]) == (1, 2)
        own = (await client.get(f"{S}/sessions?position=1")).json()
        assert (own["state"]["llm"], own["state"]["title"]) == (1, "one two")
        assert (await client.get(f"{S}/words?position=3")).status_code == 409
        for missing in ("nosuch", "nosuch/events"):
            assert (await client.get(f"{S}/{missing}")).status_code == 404


async def test_the_stream_sends_the_state_after_changes_and_resumes_after_the_last_that_was_seen() -> None:
    with anyio.fail_after(SECONDS):
        async with opened() as (bus, client):
            async with aclosing(states(client)) as frames:
                first = await anext(frames)
                assert (first["position"], first["state"], first["id"]) == (2, 3, first["cursor"])
                await bus.session("s1").publish(UserMessage.text("four"))
                second = await anext(frames)
                assert (second["position"], second["state"]) == (3, 4)
            await bus.session("s1").publish(UserMessage.text("five"))
            async with aclosing(states(client, str(second["id"]))) as frames:
                assert (await anext(frames))["state"] == 5
                with anyio.move_on_after(0.2) as rest:
                    await anext(frames)
                assert rest.cancelled_caught, "a state that was sent before"


async def test_changes_within_a_pause_make_one_frame() -> None:
    async with opened(UiBounds(state_seconds=0.5)) as (bus, client):
        with anyio.fail_after(SECONDS):
            async with aclosing(states(client)) as frames:
                await anext(frames)
                for text in "abcdefghij":
                    await bus.session("s1").publish(UserMessage.text(text))
                seen = [int(str((await anext(frames))["state"]))]
                while seen[-1] < 13:
                    seen.append(int(str((await anext(frames))["state"])))
                assert len(seen) < 10
