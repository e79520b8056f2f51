"""The routes of the AI SDK without its client: repeats, refusals, and streams that the server ends."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
import httpx2
import pytest
from pydantic import JsonValue

from lanebus import ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, tool
from lanebus.handlers.agent import Worker
from lanebus.handlers.protocols.ai_sdk.encoder import ApprovalId
from lanebus.handlers.providers import Piece
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS
from lanebus.messages import TurnId
from tests.support.agent.agents import Pause, ScriptedModel, answer, calls, wait_for
from tests.support.agent.served_agent import ending_server, served_agent, wait_for_worker
from tests.support.page.serving import Served, client_of, serving, temporary_bus


def said(text: str, id: str, chat: str = "c1", **fields: JsonValue) -> dict[str, JsonValue]:
    message: JsonValue = {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": chat, "messages": [message], "trigger": "submit-message", **fields}


def chunks(content: bytes) -> list[dict[str, JsonValue]]:
    lines = [line.removeprefix("data: ") for line in content.decode().split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text(content: bytes) -> str:
    return "".join(str(each["delta"]) for each in chunks(content) if each["type"] == "text-delta")


async def positions(served: Served) -> int:
    return (await served.bus.session("c1").head()).position


async def test_a_repeated_message_is_published_once_and_its_own_answer_is_repeated() -> None:
    async with (
        served_agent(AgentLoop(ScriptedModel(answer("First."), answer("Second.")))) as served,
        client_of(served) as client,
    ):
        first = await client.post("/chat", json=said("hi", "m1"))
        second = await client.post("/chat", json=said("bye", "m2"))
        before = await positions(served)
        again = await client.post("/chat", json=said("hi", "m1"))
        assert (text(first.content), text(second.content), text(again.content)) == ("First.", "Second.", "First.")
        assert chunks(again.content)[0] == chunks(first.content)[0] == {"type": "start", "messageId": "c1.main.1"}
        assert await positions(served) == before
        assert first.headers["content-type"].startswith("text/event-stream")
        assert (await client.get("/chat/c1/stream")).status_code == 204
        assert (await client.get("/chat/none/stream")).status_code == 204


def picture(content: bytes) -> dict[str, JsonValue]:
    url = f"data:image/png;base64,{b64encode(content).decode()}"
    part: JsonValue = {"type": "file", "url": url, "mediaType": "image/png"}
    return {"id": "c1", "messages": [{"id": "m1", "role": "user", "parts": [part]}]}


def decided(approval: JsonValue, *more: JsonValue, approved: bool, **fields: JsonValue) -> dict[str, JsonValue]:
    given: JsonValue = {"id": approval, "approved": approved, **fields}
    part: JsonValue = {"type": "dynamic-tool", "state": "approval-responded", "approval": given}
    return {"id": "c1", "messages": [{"id": "c1.main.1", "role": "assistant", "parts": [part]}, *more]}


def asked_in(content: bytes) -> str:
    """Return the id of the approval that a stream asks for."""
    return str(next(each for each in chunks(content) if each["type"] == "tool-approval-request")["approvalId"])


@pytest.mark.parametrize(
    ("first", "other"),
    [(said("hi", "m1"), said("bye", "m1")), (said("hi", "m1"), picture(b"a")), (picture(b"a"), picture(b"b"))],
    ids=["texts", "picture for text", "pictures"],
)
async def test_an_id_of_a_message_with_other_content_is_refused(
    first: dict[str, JsonValue], other: dict[str, JsonValue]
) -> None:
    async with served_agent(AgentLoop(ScriptedModel(answer("First.")))) as served, client_of(served) as client:
        assert text((await client.post("/chat", json=first)).content) == "First."
        before = await positions(served)
        refused = await client.post("/chat", json=other)
        assert (refused.status_code, refused.json()["error"]) == (409, "key_reused")
        assert "'m1' belongs to other content, at position 1: use a new key or id" in refused.json()["detail"]
        assert text((await client.post("/chat", json=first)).content) == "First."
        assert await positions(served) == before


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


PAY = ToolCallBlock(id="call-1", name="pay", arguments={"amount": 3})


async def test_a_repeated_approval_is_published_once_and_one_of_other_arguments_is_asked_again() -> None:
    model = ScriptedModel(calls(PAY), answer("Done."))
    async with served_agent(AgentLoop(model, [pay])) as served, client_of(served) as client:
        client.headers["AI-SDK-Version"] = "6"
        asked = asked_in((await client.post("/chat", json=said("hi", "m1"))).content)
        forged = decided(asked.replace(PAY.call_hash, "0" * 64), approved=True)
        found = (await client.post("/chat", json=forged)).content
        again = asked_in(found)
        assert again != asked
        assert "tool-output-available" not in {str(each["type"]) for each in chunks(found)}
        body = decided(again, approved=True)
        rest = await client.post("/chat", json=body)
        before = await positions(served)
        assert rest.content == (await client.post("/chat", json=body)).content
        assert text(rest.content) == "Done."
        assert "tool-input-start" not in {str(each["type"]) for each in chunks(rest.content)}
        assert await positions(served) == before


async def test_a_denial_that_is_repeated_with_another_reason_is_a_repeat_so_that_the_chat_goes_on() -> None:
    model = ScriptedModel(calls(PAY), answer("A pity."), answer("Hello."))
    async with served_agent(AgentLoop(model, [pay])) as served, client_of(served) as client:
        client.headers["AI-SDK-Version"] = "6"
        asked = asked_in((await client.post("/chat", json=said("hi", "m1"))).content)
        denied = decided(asked, approved=False, reason="too much")
        assert text((await client.post("/chat", json=denied)).content) == "A pity."
        next_one: JsonValue = {"id": "m2", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
        again = decided(asked, next_one, approved=False, reason="no")
        assert text((await client.post("/chat", json=again)).content) == "Hello."


async def test_a_wrong_request_writes_nothing() -> None:
    elsewhere = ApprovalId(TurnId(loop_id="other.main.1", turn_index=0), 1, "0" * 64, "call-1")
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await bus.session("c2").publish(UserMessage.text("hi"), agent="billing")
        bodies: tuple[tuple[JsonValue, int], ...] = (
            (said("hi", "m1", trigger="regenerate-message"), 400),
            (said("hi", "m1", chat="no session!"), 400),
            (said("", "m1"), 400),
            ({"id": "c1", "messages": "none"}, 400),
            (decided(str(elsewhere), approved=True), 400),
            (said("hi", "m1", chat="c2", agent="main"), 409),
        )
        for body, status in bodies:
            assert (await client.post("/chat", json=body)).status_code == status
        wrong = await client.post("/chat", json=said("hi", "m1"), headers={"AI-SDK-Version": "4"})
        assert (wrong.status_code, "from 5" in wrong.text) == (400, True)
        assert (await client.get("/chat/c1/stream", headers={"AI-SDK-Version": "x"})).status_code == 400
        assert await positions(served) == 0


async def read_until(reply: httpx2.Response, text: bytes) -> AsyncIterator[bytes]:
    """Read a stream until it has a text. Return the rest."""
    stream, received = reply.aiter_raw(), b""
    with anyio.fail_after(120):
        while text not in received:
            received += await anext(stream)
    return stream


@pytest.mark.parametrize("version", ["5", "7"])
async def test_a_server_that_ends_never_makes_an_answer_look_complete(version: str) -> None:
    rest, is_cut, headers = b"", False, {"AI-SDK-Version": version}
    agent = AgentLoop(ScriptedModel([Piece("text", "Once upon "), Pause()]))
    async with (
        ending_server(agent) as (client, ending),
        client.stream("POST", "/chat", json=said("hi", "m1"), headers=headers) as reply,
    ):
        stream = await read_until(reply, b"Once upon")
        ending.set()
        with anyio.fail_after(120):
            try:
                async for piece in stream:
                    rest += piece
            except httpx2.TransportError:
                is_cut = True
    assert b"[DONE]" not in rest
    assert b"bye" not in rest
    assert is_cut == (version == "7")
    assert (b"The connection ended. Resume the answer." in rest) == (version == "5")


async def test_no_client_is_told_of_a_missing_worker_while_one_serves_the_agent_or_a_person_has_to_act() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        async with Worker(bus, AgentLoop(ScriptedModel(calls(PAY)), [pay]), name="w1"):
            await wait_for_worker(bus)
            streams = [await client.post("/chat", json=said("hi", "m1"))]
        assert await bus.live_workers() == {}
        streams += [await client.post("/chat", json=said("hi", "m1")), await client.get("/chat/c1/stream")]
        for each in streams:
            found = [str(chunk["type"]) for chunk in chunks(each.content)]
            assert ("data-approval" in found, "data-no-worker" in found) == (True, False)


async def test_a_session_that_rests_only_for_a_worker_can_be_resumed_before_one_takes_it() -> None:
    bounds = replace(DEFAULT_UI_BOUNDS, heartbeat_seconds=0.05)
    async with temporary_bus() as bus, serving(bus, bounds=bounds) as served, client_of(served) as client:
        async with client.stream("POST", "/chat", json=said("hi", "m1")) as reply:
            await read_until(reply, b": hb")
        async with client.stream("GET", "/chat/c1/stream") as reply:
            assert reply.status_code == 200
            async with Worker(bus, AgentLoop(ScriptedModel(answer("Hello."))), name="w1"):
                with anyio.fail_after(120):
                    assert text(await reply.aread()) == "Hello."
                await wait_for(bus.session("c1"), "assistant stop: Hello.")


async def test_a_long_answer_larger_than_the_budget_of_small_frames_is_whole() -> None:
    bounds = replace(DEFAULT_UI_BOUNDS, small_bytes=100, read_bytes=1_000, memory_bytes=4_000, piece_bytes=500)
    long = "word " * 5_000
    async with temporary_bus() as bus, serving(bus, bounds=bounds) as served, client_of(served) as client:
        model = ScriptedModel(answer(long), answer("Short."))
        async with Worker(bus, AgentLoop(model), name="w1"):
            assert text((await client.post("/chat", json=said("hi", "m1"))).content) == long
            assert text((await client.post("/chat", json=said("hi", "m1"))).content) == long
