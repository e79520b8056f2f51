"""The route of AG-UI without its clients: refusals, disconnects, and streams that the server ends."""

import base64
from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
import pytest
from pydantic import JsonValue

from lanebus import ExtensionMessage, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, tool
from lanebus.handlers.providers import Piece
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS
from tests.support.agent.agents import Pause, ScriptedModel, answer, calls, wait_for
from tests.support.agent.served_agent import ending_server, served_agent
from tests.support.node.agui import dig, read_events, types_of
from tests.support.page.serving import client_of, serving, temporary_bus


def asked(content: JsonValue = "hi", thread: str = "t1", **fields: JsonValue) -> dict[str, JsonValue]:
    said: list[JsonValue] = [] if content is None else [{"id": "m1", "role": "user", "content": content}]
    return {"threadId": thread, "runId": "r1", "messages": said, **fields}


async def read_until(pieces: AsyncIterator[bytes], text: bytes) -> bytes:
    received = b""
    with anyio.fail_after(120):
        async for piece in pieces:
            received += piece
            if text in received:
                break
    return received


async def test_wrong_requests_are_refused_and_publish_nothing() -> None:
    nowhere: dict[str, JsonValue] = {"interruptId": f"t2.main.1#0/c1/{'0' * 64}", "status": "resolved"}
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        events = read_events((await client.post("/agui/suport", json=asked())).text)
        assert (types_of(events), events[-1]["code"]) == (["RUN_STARTED", "RUN_ERROR"], "lanebus.unknown_agent")
        assert "'suport'" in str(events[-1]["message"])
        events = read_events((await client.post("/agui/agent", json=asked(None))).text)
        assert types_of(events) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        assert events[1]["messages"] == []
        assert await bus.sessions() == []
        await bus.session("t1", agent="billing").publish(UserMessage.text("mine"))
        for path, body, status in (
            ("/agui/support", asked(), 409),
            ("/agui/billing", {"threadId": "t1"}, 400),
            ("/agui/billing", asked(thread="a b"), 400),
            ("/agui/no such", asked(), 400),
            ("/agui/billing?after=1", asked(), 400),
            ("/agui/billing", asked(resume=[{"interruptId": "x", "status": "resolved"}]), 400),
            ("/agui/agent", asked(None, "t2", resume=[{**nowhere, "payload": {"approved": True}}]), 404),
        ):
            assert (await client.post(path, json=body)).status_code == status, (path, body)
        assert [each.session for each in await bus.sessions()] == ["t1"]
        assert (await bus.session("t1").head()).position == 1


async def test_a_message_to_an_agent_without_a_worker_is_accepted_and_the_client_is_told_that_it_waits() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await bus.session("earlier", agent="nobody").publish(UserMessage.text("hi"))
        async with client.stream("POST", "/agui/nobody", json=asked()) as reply:
            pieces = reply.aiter_raw()
            received = await read_until(pieces, b"lanebus.noWorker")
            received += b"" if received.endswith(b"\n\n") else await read_until(pieces, b"\n\n")
        events = read_events(received.decode())
        told = events[-1]
        assert types_of(events) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "CUSTOM"]
        assert (dig(told, "value", "agent"), (await bus.session("t1").head()).agent) == ("nobody", "nobody")


PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(60_000)
"""larger than what stays in the message"""


def with_picture(data: bytes) -> list[JsonValue]:
    source: JsonValue = {"type": "data", "value": base64.b64encode(data).decode(), "mimeType": "image/png"}
    return [{"type": "text", "text": "see"}, {"type": "image", "source": source}]


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("é\u2028\ud7ff😀", "bye"),
        (with_picture(PICTURE), with_picture(PICTURE + b"\0")),
        (with_picture(PICTURE), "see"),
    ],
    ids=["texts", "pictures", "text for picture"],
)
async def test_an_id_of_a_message_with_other_content_is_refused_and_what_a_snapshot_showed_is_a_repeat(
    first: JsonValue, other: JsonValue
) -> None:
    said = str(first)[:5] * 3
    async with served_agent(AgentLoop(ScriptedModel(answer(said)))) as served, client_of(served) as client:
        events = read_events((await client.post("/agui/agent", json=asked(first))).text)
        pieces = [str(event["delta"]) for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
        assert "".join(pieces) == said
        again = read_events((await client.post("/agui/agent", json=asked(first))).text)
        shown = dig(again[1], "messages", 0, "content")
        assert (shown == first) == isinstance(first, str)
        before = (await served.bus.session("t1").head()).position
        refused = await client.post("/agui/agent", json=asked(other))
        assert (refused.status_code, refused.json()["error"]) == (409, "key_reused")
        assert "'m1' belongs to other content, at position 1: use a new key or id" in refused.json()["detail"]
        assert (await client.post("/agui/agent", json=asked(shown))).status_code == 200
        assert (await served.bus.session("t1").head()).position == before


async def test_an_answer_to_an_interrupt_that_is_repeated_with_another_reason_in_the_same_run_is_refused() -> None:
    model = ScriptedModel(calls(ToolCallBlock(id="c1", name="pay", arguments={"amount": 3})), answer("A pity."))
    async with served_agent(AgentLoop(model, [pay])) as served, client_of(served) as client:
        waits = read_events((await client.post("/agui/agent", json=asked())).text)[-1]
        for reason, status in (("too much", 200), ("never", 409), ("too much", 200)):
            given: dict[str, JsonValue] = {"interruptId": dig(waits, "outcome", "interrupts", 0, "id")}
            given |= {"status": "resolved", "payload": {"approved": False, "reason": reason}}
            body = asked(None, runId="r2", resume=[given])
            assert (await client.post("/agui/agent", json=body)).status_code == status


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def test_a_client_that_disconnects_does_not_stop_the_agent() -> None:
    pause = Pause()
    model = ScriptedModel([Piece("text", "Once "), pause, *answer("Once upon a time.")[1:]])
    async with served_agent(AgentLoop(model)) as served, client_of(served) as client:
        async with client.stream("POST", "/agui/agent", json=asked()) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            await read_until(reply.aiter_raw(), b"Once")
        pause.over.set()
        await wait_for(served.bus.session("t1"), "assistant stop: Once upon a time.")


async def test_a_server_that_ends_says_that_the_agent_goes_on() -> None:
    agent = AgentLoop(ScriptedModel([Piece("text", "Once upon "), Pause()]))
    async with (
        ending_server(agent) as (client, ending),
        client.stream("POST", "/agui/agent", json=asked()) as reply,
    ):
        pieces = reply.aiter_raw()
        await read_until(pieces, b"Once upon")
        ending.set()
        (last,) = read_events((await read_until(pieces, b"\n\n")).decode())
        assert (last["type"], last["code"]) == ("RUN_ERROR", "lanebus.cut")


async def test_only_the_newest_entries_and_messages_are_read_and_whatever_is_left_is_whole() -> None:
    bounds = replace(DEFAULT_UI_BOUNDS, run_entries=3, run_messages=2, small_bytes=100, read_bytes=1_000)
    async with temporary_bus() as bus, serving(bus, bounds=bounds) as served, client_of(served) as client:
        session = bus.session("t1", agent="agent")
        for number in range(6):
            await session.publish(UserMessage.text(f"{number} " + "x" * 2_000))
        await session.publish(ExtensionMessage.of("tick"))
        async with client.stream("POST", "/agui/agent", json=asked(None)) as reply:
            received = await read_until(reply.aiter_raw(), b'"MESSAGES_SNAPSHOT"')
            received += await read_until(reply.aiter_raw(), b"\n\n") if not received.endswith(b"\n\n") else b""
    snapshot = read_events(received.decode())[-1]
    assert [str(dig(snapshot, "messages", at, "content"))[:2] for at in (0, 1)] == ["4 ", "5 "]
