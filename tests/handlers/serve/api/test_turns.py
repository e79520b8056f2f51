"""The turns, the timeline, the context at a position and the request of a turn, over HTTP."""

import json
from collections.abc import Callable
from contextlib import aclosing
from decimal import Decimal
from hashlib import sha256
from typing import cast

import anyio
import pytest

from lanebus import Bus, TextBlock, ToolCallBlock, ToolResultMessage
from lanebus.bus.messages import AssistantMessage, MessageStarted, RequestDefined, TurnStarted, UserMessage
from lanebus.handlers.context import PastBounds
from lanebus.handlers.providers import PROVIDERS
from lanebus.handlers.serve.api import turns as requests
from lanebus.messages import Cost, ImageBlock, MediaRef, TurnId, Usage
from tests.support.agent.agents import SECONDS, until
from tests.support.agent.scripted_agent import ENTRIES, answer_all
from tests.support.serve import Client, UiBounds, api, error_of

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(60_000)


async def speak(bus: Bus) -> None:
    """Publish a turn with its request: positions 1 to 6."""
    described = {"provider": "anthropic", "model": "claude-x", "api": "anthropic", "maxTokens": 77}
    options = {"options": {"temperature": 0.5}}
    defined = RequestDefined.model_validate({"hash": "", "options": options, **described})
    defined = defined.model_copy(update={"hash": sha256(defined.to_json_bytes()).hexdigest()[:32]})
    said = {"turn_id": TURN, "id": "m1", "provider": "anthropic", "model": "claude-x"}
    await bus.session("s1").publish(
        UserMessage(content=(ImageBlock(media=MediaRef.from_bytes(PICTURE)),)),
        defined.as_extension(),
        TurnStarted(turn_id=TURN, prompts=(1,), request=defined.hash).as_extension(),
        MessageStarted(turn_id=TURN, message_id="m1", shown=1).as_extension(),
        AssistantMessage.text("a picture").model_copy(update=said),
        UserMessage.text("later"),
    )


async def ask(bus: Bus, count: int) -> None:
    """Publish questions one by one. Each waits for the answer to the previous one."""
    session = bus.session("s1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_all, session)
        for number in range(1, count + 1):
            await session.publish(UserMessage.text("17 × 23?"))
            with anyio.fail_after(SECONDS):
                async with aclosing(session.follow()) as envelopes:
                    async for envelope in envelopes:
                        if envelope.position == number * ENTRIES:
                            break
        tasks.cancel_scope.cancel()


async def test_the_request_of_a_turn_is_the_body_that_was_sent_with_texts_for_media(bus: Bus, client: Client) -> None:
    await speak(bus)
    answer = (await client.get("/api/sessions/s1/turns/main.1%230/request")).json()
    assert (answer["isExact"], answer["provider"], answer["position"]) == (True, "anthropic", 1)
    assert (answer["request"]["max_tokens"], answer["request"]["temperature"]) == (77, 0.5)
    (message,) = answer["request"]["messages"]
    (block,) = message["content"]
    assert block["source"]["data"].startswith("stored media ")
    assert answer["messages"] == [{"index": 0, "role": "user", "position": 1, "isMadeUp": False}]
    other = (await client.get("/api/sessions/s1/turns/main.1%230/request?provider=openai-chat")).json()
    assert (other["isExact"], other["provider"]) == (False, "openai-chat")


async def test_the_context_of_a_position_has_the_messages_up_to_it_and_the_tools_then(bus: Bus, client: Client) -> None:
    await speak(bus)
    first = (await client.get("/api/sessions/s1/context?position=4")).json()
    assert (first["position"], first["model"], first["request"]["max_tokens"]) == (4, "claude-x", 77)
    assert [each["position"] for each in first["messages"]] == [1]
    whole = (await client.get("/api/sessions/s1/context")).json()
    assert [each["position"] for each in whole["messages"]] == [1, 5, 6]
    again = (await client.get("/api/sessions/s1/context?position=4&provider=gemini&model=g")).json()
    assert (again["provider"], again["model"], "contents" in again["request"]) == ("gemini", "g", True)
    beyond = await client.get("/api/sessions/s1/context?position=7")
    assert error_of(beyond) == (409, "no_such_position")
    assert (await client.get("/api/sessions/s1/context?position=1&model=")).status_code == 400  # names no model yet
    assert (await client.get("/api/sessions/s1/context?provider=acme")).status_code == 400


async def test_a_result_is_made_up_only_if_the_log_has_none_whatever_a_real_one_says(bus: Bus, client: Client) -> None:
    calls = tuple(ToolCallBlock(id=name, name="search") for name in ("silent", "rude"))
    answer = AssistantMessage(content=calls, provider="anthropic", model="claude-x")
    await bus.session("s1").publish(UserMessage.text("hi"), answer)
    made_up = (await client.get("/api/sessions/s1/context")).json()["request"]["messages"][-1]["content"][-1]["content"]
    said = ToolResultMessage.of(calls[1], made_up).model_copy(update={"is_error": True})
    await bus.session("s1").publish(said)
    found = (await client.get("/api/sessions/s1/context")).json()
    assert found["request"]["messages"][-1]["content"][-1]["content"] == made_up
    assert [(each["role"], each["position"], each["isMadeUp"]) for each in found["messages"]] == [
        *(("user", 1, False), ("assistant", 2, False), ("toolResult", None, True), ("toolResult", 3, False))
    ]


async def test_a_context_larger_than_the_cache_of_contexts_is_refused() -> None:
    async with api(bounds=UiBounds(contexts=PastBounds(size_bytes=40_000))) as (bus, client):
        session = bus.session("s1")
        await speak(bus)
        for path in ("context", "turns/main.1%230/request"):
            assert (await client.get(f"/api/sessions/s1/{path}")).status_code == 200
        for _ in range(10):
            await session.publish(UserMessage.text("x" * 10_000))
        fork = await session.fork(16)
        for name in ("s1", fork.id):
            reply = await client.get(f"/api/sessions/{name}/context")
            assert error_of(reply) == (413, "context_too_large")
            assert "earlier position" in reply.json()["detail"]
        assert (await client.get("/api/sessions/s1/context?position=6")).status_code == 200
        late = TurnId(loop_id="s1.main.2", turn_index=0)
        await session.publish(MessageStarted(turn_id=late, message_id="m2", shown=16).as_extension())
        reply = await client.get("/api/sessions/s1/turns/main.2%230/request")
        assert error_of(reply) == (413, "context_too_large")


async def test_a_request_is_refused_before_all_of_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written, encode = 0, cast("Callable[[object], bytes]", vars(requests)["json_bytes"])

    def counted(value: object) -> bytes:
        nonlocal written
        data = encode(value)
        written += len(data)
        return data

    monkeypatch.setattr(requests, "json_bytes", counted)
    async with api(bounds=UiBounds(request_bytes=20_000)) as (bus, client):
        await speak(bus)
        assert (await client.get("/api/sessions/s1/context")).status_code == 200
        for _ in range(50):
            await bus.session("s1").publish(UserMessage.text("x" * 10_000))
        written = 0
        reply = await client.get("/api/sessions/s1/context")
        assert error_of(reply) == (413, "request_too_large")
    assert written < 40_000


@pytest.mark.parametrize("provider", [*PROVIDERS])
async def test_stored_media_are_a_text_in_the_request_of_each_provider(bus: Bus, client: Client, provider: str) -> None:
    pictures = [ImageBlock(media=MediaRef.from_bytes(PICTURE + bytes([at]))) for at in range(3)]
    await bus.session("s1").publish(UserMessage(content=(*pictures, TextBlock(text="c3RvcmVkIG1lZGlhIGlz"))))
    reply = await client.get(f"/api/sessions/s1/context?provider={provider}&model=m")
    assert reply.status_code == 200
    assert reply.text.count("stored media ") == 3
    assert reply.text.count("c3RvcmVkIG1lZGlh") == 1


async def test_the_timeline_of_a_window_has_its_turns_and_loops_and_the_sum_of_all(bus: Bus, client: Client) -> None:
    await ask(bus, 3)
    whole = (await client.get("/api/sessions/s1/timeline")).json()
    assert (whole["count"], whole["first"], len(whole["turns"]), len(whole["loops"])) == (6, 0, 6, 3)
    assert whole["usage"]["cost"]["total"] == "0.0750"
    first = whole["turns"][0]
    assert (first["startedPosition"], first["lastPosition"], first["entries"]) == (3, 10, 7)
    assert [(call["position"], call["message"]) for call in first["calls"]] == [(4, 5)]
    assert [(tool["startedPosition"], tool["endedPosition"], tool["attempts"]) for tool in first["tools"]] == [
        (6, 9, 1)
    ]
    window = (await client.get("/api/sessions/s1/timeline?first=2&limit=2")).json()
    assert [turn["index"] for turn in window["turns"]] == [2, 3]
    assert (window["count"], [loop["loopId"] for loop in window["loops"]]) == (6, ["s1.main.16"])
    assert (window["started"], window["ended"]) == (whole["started"], whole["ended"])
    newest = (await client.get("/api/sessions/s1/turns?limit=1")).json()
    assert [turn["index"] for turn in newest["turns"]] == [5]
    beyond = (await client.get("/api/sessions/s1/timeline?first=9")).json()
    assert (beyond["turns"], beyond["first"]) == ([], 6)
    assert (await client.get("/api/sessions/s1/timeline?first=-1")).status_code == 400


@pytest.mark.parametrize("total", [None, "0.0000001"])
async def test_usage_and_turns_have_the_cost_of_the_message_json(bus: Bus, client: Client, total: str | None) -> None:
    cost = None if total is None else Cost(input=Decimal("0.10"), total=Decimal(total), source="prices/1")
    usage = Usage(input=2, output=1, total_tokens=3, cost=cost)
    answer = AssistantMessage(content=(TextBlock(text="Hi"),), stop_reason="stop", usage=usage)
    await bus.session("s1").publish(UserMessage.text("x"), answer)
    wanted = {"cost": None, **json.loads(usage.to_json())}
    shown = (await client.get("/api/sessions/s1/usage")).json()
    assert {name: shown[name] for name in wanted} == wanted
    (turn,) = (await client.get("/api/sessions/s1/turns")).json()["turns"]
    assert turn["usage"] == wanted


async def test_a_fold_that_takes_longer_than_a_request_may_wait_is_not_cut_off() -> None:
    async with api(bounds=UiBounds(wait_seconds=0.02)) as (bus, client):
        for _ in range(10):
            await bus.session("s1").publish(*(UserMessage.text("hi") for _ in range(200)))

        async def is_listed() -> bool:
            reply = await client.get("/api/sessions")
            return reply.status_code == 200 and bool(reply.json()["isComplete"])

        await until(is_listed)  # until then, the server reads sessions for its list, in turns with the requests
        reply = await client.get("/api/sessions/s1/turns")
    assert (reply.status_code, reply.json()) == (200, reply.json() | {"count": 0})
