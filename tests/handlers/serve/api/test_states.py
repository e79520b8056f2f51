"""What a session does, told by the list, the status and the filters: work that failed, and calls that were decided."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.bus.messages import (
    AgentStarted,
    Approve,
    ControlAnswered,
    ToolEnded,
    ToolStarted,
    ToolWaiting,
    TurnId,
    TurnStarted,
)
from lanebus.groups import RetryPolicy
from lanebus.handlers.agent import Agent, Run, Worker
from lanebus.handlers.projections import look_at_state
from lanebus.handlers.serve import Principal
from tests.support.agent.agents import until
from tests.support.page.samples import begun, waiting_for_approval
from tests.support.page.serving import client_of, serving
from tests.support.serve import Client, signed

CAUSE = "RuntimeError: the guard is broken"


async def broken(run: Run) -> None:
    """Raise before a loop begins, as a faulty guard does."""
    raise RuntimeError("the guard is broken")


@asynccontextmanager
async def working(bus: Bus, agent: Agent, retry: RetryPolicy) -> AsyncGenerator[None]:
    worker = Worker(bus, agent, retry=retry)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        yield
        worker.stop()


async def listed(client: Client, session: str = "s1") -> Mapping[str, JsonValue]:
    found = (await client.get("/api/sessions")).json()
    row: Mapping[str, JsonValue] = next(each for each in found["sessions"] if each["id"] == session)
    assert found["states"].get(row["state"], 0) >= 1
    return row


async def status(client: Client, session: str = "s1") -> Mapping[str, JsonValue]:
    found: Mapping[str, JsonValue] = (await client.get(f"/api/sessions/{session}/status")).json()
    return found


async def agree(client: Client, state: str, session: str = "s1") -> Mapping[str, JsonValue]:
    """Wait until the list tells a state, and check that the status and the filter tell the same. Return the status."""

    async def is_so() -> bool:
        return (await listed(client, session))["state"] == state

    await until(is_so)
    found, row = await status(client, session), await listed(client, session)
    assert (found["state"], found["failure"]) == (row["state"], row["failure"])
    matching = (await client.get(f"/api/sessions?state={state}")).json()["sessions"]
    assert session in [each["id"] for each in matching]
    return found


async def test_a_session_that_workers_gave_up_is_dead_with_its_cause_until_redriven(bus: Bus, client: Client) -> None:
    await bus.session("s1").publish(UserMessage.text("hello?"))
    await agree(client, "queued")
    async with working(bus, broken, RetryPolicy(attempts=2, base=0)):
        found = await agree(client, "dead")
    letters = (await client.get("/api/sessions/s1/dead-letters")).json()["letters"]
    assert found["failure"] == {"group": "agents", "attempts": 2, "reason": CAUSE, "since": letters[0]["time"]}
    assert (await client.post("/api/sessions/s1/redrive", json={})).json() == {"letters": 1}
    assert (await agree(client, "queued"))["failure"] is None


@pytest.mark.parametrize("end", ["killed", "handed back"])
async def test_an_open_loop_waits_for_a_worker_once_its_lease_is_over(bus: Bus, client: Client, end: str) -> None:
    session = bus.session("s1")
    await session.publish(UserMessage.text("hello?"))
    lease = await session.acquire_lease("w1", 600)
    assert lease is not None
    await session.publish(*begun("s1"), epoch=lease.epoch)
    await agree(client, "working")
    if end == "killed":
        await session.renew_lease(lease, 0.001)
    else:
        await session.release_lease(lease)
    await agree(client, "queued")
    assert await look_at_state(session, await session.head(), None) == "queued"
    assert await session.acquire_lease("w2", 600) is not None
    await agree(client, "working")


async def test_a_loop_that_a_program_writes_without_a_lease_works(bus: Bus, client: Client) -> None:
    begun = AgentStarted(loop_id="s1.own.1", agent="agent")
    await bus.session("s1").publish(UserMessage.text("hello?"), begun.as_extension())
    await agree(client, "working")


async def test_a_session_between_two_attempts_is_tried_again_and_not_idle(bus: Bus, client: Client) -> None:
    await bus.session("s1").publish(UserMessage.text("hello?"))
    async with working(bus, broken, RetryPolicy(attempts=5, base=600, jitter="none")):
        found = await agree(client, "retrying")
    assert found["failure"] == {"group": "agents", "attempts": 1, "reason": CAUSE, "since": None}


async def test_a_session_that_continued_after_a_dead_letter_is_not_dead(bus: Bus, client: Client) -> None:
    async def fails_once(run: Run) -> None:
        if run.snapshot.loop_state.read_up_to == 0:
            raise RuntimeError("the guard is broken")
        await run.publish(AssistantMessage.text("Yes."))

    session = bus.session("s1")
    await session.publish(UserMessage.text("hello?"))
    async with working(bus, fails_once, RetryPolicy(attempts=1, base=0)):
        await agree(client, "dead")
        await session.publish(UserMessage.text("and now?"))
        await agree(client, "idle")
    await session.publish(UserMessage.text("once more"))
    await agree(client, "queued")
    assert await bus.dead_letters("agents").count() == 1


async def test_the_cause_is_for_tokens_that_may_read_dead_letters(bus: Bus, tmp_path: Path) -> None:
    files, token = signed(tmp_path, Principal(name="ann", actions=("read.sessions", "read.status")))
    await bus.session("s1").publish(UserMessage.text("hello?"))
    async with (
        serving(bus, token_files=files) as served,
        client_of(served) as client,
        working(bus, broken, RetryPolicy(attempts=1, base=0)),
    ):
        assert (await agree(client, "dead"))["failure"] is not None
        client.headers["Authorization"] = f"Bearer {token}"
        assert (await agree(client, "dead"))["failure"] is None


# --- decisions ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def turn(bus: Bus) -> TurnId:
    """The turn of the call c0 of s1, which waits for a person."""
    return await waiting_for_approval(bus.session("s1"), "delete it", "rm")


async def decide(client: Client, verb: str, turn: TurnId, key: str) -> tuple[int, Mapping[str, JsonValue]]:
    body = {"command": verb, "turnId": str(turn), "toolCallId": "c0", "key": key}
    reply = await client.post("/api/sessions/s1/commands", json=body)
    return reply.status_code, reply.json()


def decisions(found: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the decision about each waiting call of a status."""
    waiting = found["waiting"]
    assert isinstance(waiting, list)
    return [call["decision"] for call in waiting if isinstance(call, dict)]


async def test_a_call_that_was_approved_waits_for_a_worker_and_a_second_decision_is_refused_also_after_it_ran(
    bus: Bus, client: Client, turn: TurnId
) -> None:
    session, following = bus.session("s1"), turn.model_copy(update={"turn_index": 1})
    await agree(client, "waiting")
    assert (await decide(client, "approve", turn, "k1"))[0] == 201
    position = (await session.head()).position
    decision = {"decision": "approve", "by": "page", "position": position}
    assert decisions(await agree(client, "queued")) == [decision]
    assert (await listed(client))["waiting"] == 0
    inbox = (await client.get("/api/waiting")).json()
    assert (inbox["count"], [call["decision"] for call in inbox["waiting"]]) == (0, [decision])
    (shown,) = (await client.get("/api/sessions/s1/timeline")).json()["turns"]
    assert [(wait["decision"], wait["command"]) for tool in shown["tools"] for wait in tool["waits"]] == [
        ("approve", None)
    ]
    applied = ControlAnswered(control=position, outcome="applied").as_extension()
    ran = (
        ToolStarted(turn_id=turn, tool_call_id="c0", tool_name="rm").as_extension(),
        ToolResultMessage(tool_call_id="c0", tool_name="rm"),
        ToolEnded(turn_id=turn, tool_call_id="c0", tool_name="rm", is_error=False).as_extension(),
        TurnStarted(turn_id=following).as_extension(),
    )
    for messages in ((), (applied,), ran):
        if messages:
            await session.publish(*messages)
        end = (await session.head()).position
        for verb in ("deny", "approve"):
            status, problem = await decide(client, verb, turn, f"k-{verb}")
            assert (status, problem["error"]) == (409, "call_decided")
            assert f"approved by page, at position {position}" in str(problem["detail"])
        assert await decide(client, "approve", turn, "k1") == (200, {"positions": [position], "duplicate": True})
        assert (await session.head()).position == end
    # A later call with the same id is another call.
    await session.publish(
        AssistantMessage(content=(ToolCallBlock(id="c0", name="rm"),), turn_id=following, stop_reason="toolUse"),
        ToolWaiting(turn_id=following, tool_call_id="c0", tool_name="rm").as_extension(),
    )
    assert (await decide(client, "deny", following, "k2"))[0] == 201


async def test_a_decision_that_a_worker_refused_leaves_a_call_to_decide(bus: Bus, client: Client, turn: TurnId) -> None:
    session = bus.session("s1")
    sent = await session.publish(Approve(turn_id=turn, tool_call_id="c0", call_hash="0" * 64).as_extension())
    await agree(client, "queued")
    await session.publish(ControlAnswered(control=sent.position, outcome="refused").as_extension())
    assert decisions(await agree(client, "waiting")) == [None]
    assert (await decide(client, "deny", turn, "k2"))[0] == 201


async def test_of_two_decisions_at_the_same_time_one_is_published(client: Client, turn: TurnId) -> None:
    statuses: list[int] = []

    async def send(verb: str, key: str) -> None:
        statuses.append((await decide(client, verb, turn, key))[0])

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(send, ("approve", "deny")[number % 2], f"k{number}")
    assert sorted(statuses) == [201, 409, 409, 409, 409, 409]
