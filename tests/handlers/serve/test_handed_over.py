"""A right to a session is asked for again when the session is handed over: nothing of the next agent is sent."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import httpx2
import pytest
from pydantic import JsonValue

from lanebus import Bus, Delta, ExtensionMessage, Lane, UserMessage
from lanebus.access import AccessRequest, Decision, authorize_by_rights
from lanebus.bus.wire import START
from lanebus.handlers.protocols.ai_sdk.encoder import ApprovalId
from lanebus.handlers.serve import Authorize, Principal
from lanebus.handlers.serve.access.access import Access
from lanebus.handlers.serve.access.credentials import DEFAULT_ACCESS_BOUNDS, Credentials
from lanebus.handlers.serve.api.entries import EntriesQuery, entries_json
from lanebus.handlers.serve.budget import ByteBudget
from lanebus.handlers.serve.gate import SessionRight
from lanebus.handlers.serve.stream import session_frames
from lanebus.handlers.serve.transfer import History
from lanebus.messages import TurnId
from tests.support.page.samples import begun
from tests.support.serve import DEFAULT_UI_BOUNDS, Client, UiBounds, api, error_of, signed

SECRET = "of-billing-only"
HELPDESK = Principal(name="helpdesk", actions=("read", "send"), agents=("support",))

STREAMS = {
    "both lanes": "/api/sessions/s1/events?lanes=all",
    "one lane": "/api/sessions/s1/events?lanes=llm",
    "one kind": "/api/sessions/s1/events?lanes=all&kinds=user",
    "several": "/api/events?sessions=s1&lanes=all",
    "a projection": "/api/sessions/s1/projections/sessions/events",
    "the chat": "/chat/s1/stream",
    "AG-UI": "/agui/support",
}


async def only_support(request: AccessRequest) -> Decision:
    """Decide as a hook of a user would: sessions of other agents are refused."""
    if request.session is not None and request.agent not in {"support", ""}:
        return Decision(False, "not yours")
    return await authorize_by_rights(request)


@asynccontextmanager
async def opened(
    folder: Path, authorize: Authorize | None = None, bounds: UiBounds = DEFAULT_UI_BOUNDS
) -> AsyncGenerator[tuple[Bus, Client]]:
    """Yield a bus with a session of the agent `support`, and a client that may see only this agent's sessions."""
    files, token = signed(folder, HELPDESK)
    async with api(token_files=files, authorize=authorize, bounds=bounds) as (bus, client):
        await bus.session("s1").publish(UserMessage.text("hello"), agent="support")
        if authorize is None:
            client.headers["Authorization"] = f"Bearer {token}"
        yield bus, client


@asynccontextmanager
async def stream(client: Client, path: str) -> AsyncGenerator[httpx2.Response]:
    body: JsonValue = {"threadId": "s1", "runId": "r1", "messages": []}
    method, sent = ("POST", body) if path.startswith("/agui") else ("GET", None)
    async with client.stream(method, path, json=sent) as reply:
        assert reply.status_code == 200
        yield reply


async def read_to_end(reply: httpx2.Response, begun: anyio.Event) -> bytes:
    """Read a stream until the server ends it. Set `begun` when the first frame with content has arrived."""
    received = b""
    with anyio.fail_after(120):
        async for chunk in reply.aiter_raw():
            received += chunk
            if any(mark in received for mark in (b"caughtup", b"event: state", b"hello", b"start-step", b"SNAPSHOT")):
                begun.set()
    return received


@pytest.mark.parametrize("decides", ["rules", "hook"])
@pytest.mark.parametrize("path", STREAMS.values(), ids=STREAMS)
async def test_a_stream_ends_at_a_handover_before_what_follows_it(tmp_path: Path, path: str, decides: str) -> None:
    async with opened(tmp_path, None if decides == "rules" else only_support) as (bus, client):
        session, arrived, received = bus.session("s1"), anyio.Event(), b""

        async def listen(reply: httpx2.Response) -> None:
            nonlocal received
            received = await read_to_end(reply, arrived)

        await session.publish(*begun("s1", agent="support"))  # the protocols' streams wait for its end
        async with stream(client, path) as reply, anyio.create_task_group() as tasks:
            tasks.start_soon(listen, reply)
            await arrived.wait()
            await session.hand_over("billing")
            await session.publish(UserMessage.text(SECRET), ExtensionMessage.of("note", {"x": SECRET}))
        assert SECRET.encode() not in received
        assert (await client.get("/api/sessions/s1/entries")).status_code == 403


@pytest.mark.parametrize("path", [STREAMS["one lane"], STREAMS["several"], STREAMS["a projection"]])
async def test_a_stream_ends_soon_after_a_handover_that_nothing_follows(tmp_path: Path, path: str) -> None:
    async with opened(tmp_path) as (bus, client), stream(client, path) as reply, anyio.create_task_group() as tasks:
        begun = anyio.Event()
        tasks.start_soon(read_to_end, reply, begun)
        await begun.wait()
        await bus.session("s1").hand_over("billing")


async def test_of_several_sessions_only_the_one_that_was_handed_over_is_dropped(tmp_path: Path) -> None:
    async with opened(tmp_path) as (bus, client):
        await bus.session("s2").publish(UserMessage.text("hello too"), agent="support")
        with anyio.fail_after(120):
            async with client.sse("/api/events?sessions=s1,s2&lanes=llm") as source:
                events = aiter(source)
                caught_up = 0
                while caught_up < 2:
                    caught_up += (await anext(events)).event == "caughtup"
                await bus.session("s1").hand_over("billing")
                failed = await anext(events)
                assert failed.event == "failed"
                told = json.loads(failed.data)
                assert (told["session"], told["status"], told["error"]) == ("s1", 403, "access_refused")
                await bus.session("s1").publish(UserMessage.text(SECRET))
                await bus.session("s2").publish(UserMessage.text("on it"))
                entry = await anext(events)
                assert ("on it" in entry.data, SECRET in entry.data) == (True, False)
        refused = await client.get("/api/events?sessions=s2,s1&lanes=llm")
        assert (refused.status_code, "session s1: this token does not" in refused.json()["detail"]) == (403, True)


async def test_a_handover_to_an_agent_that_the_token_allows_loses_and_repeats_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, authorize_by_rights) as (bus, client):
        session = bus.session("s1")
        with anyio.fail_after(120):
            async with client.sse("/api/sessions/s1/events?lanes=all") as source:
                events = aiter(source)
                names = [(await anext(events)).event for _ in range(2)]
                await session.hand_over("billing")
                await session.publish(UserMessage.text("one"))
                await session.preview(Delta(kind="text", message_id="m1", delta="two"))
                await session.publish(UserMessage.text("three"))
                seen = [await anext(events) for _ in range(4)]
        assert names == ["entry", "caughtup"]
        assert [each.event for each in seen] == ["entry", "entry", "delta", "entry"]
        assert [each.id.partition(".")[0] for each in seen] == ["2-0", "3-0", "3-1", "4-0"]


def right_of(bus: Bus) -> SessionRight:
    """Return the right of the help desk, as it was when the session belonged to `support`."""
    asked = AccessRequest(principal=HELPDESK, action="read.events", session="s1", agent="support", lane=Lane.LLM)
    return SessionRight(Access(Credentials("start-token")), bus, [asked])


async def test_stored_entries_are_not_read_on_after_a_handover(bus: Bus) -> None:
    bounds = replace(DEFAULT_UI_BOUNDS, read_bytes=1, read_entries=1, page_entries=1)
    session = bus.session("s1")
    await session.publish(*(UserMessage.text(f"m{number}") for number in range(5)), agent="support")
    async with ByteBudget().share(lambda: None) as share:
        frames = session_frames(session, START, share, History(bounds), right=right_of(bus), bounds=bounds)
        async with aclosing(frames):
            assert b'"m0"' in (await anext(frames)).whole
            await session.hand_over("billing")
            assert [frame.event async for frame in frames] == ["failed"]


async def test_an_answer_ends_before_a_handover_and_says_that_there_is_more(bus: Bus) -> None:
    bounds = replace(DEFAULT_UI_BOUNDS, read_bytes=1, read_entries=1)
    session, query, history = bus.session("s1"), EntriesQuery(frozenset(Lane)), History(bounds)
    await session.publish(*(UserMessage.text("x" * 2_000) for _ in range(5)), agent="support")
    async with ByteBudget().share(lambda: None) as share:
        parts = entries_json(session, query, share, history, right=right_of(bus), bounds=bounds)
        async with aclosing(parts):
            text = await anext(parts) + await anext(parts)
            await session.hand_over("billing")
            told = json.loads(text + b"".join([part async for part in parts]))
            assert (len(told["entries"]), told["more"]) == (1, True)
        parts = entries_json(session, query, share, history, right=None, is_valid=lambda: False, bounds=bounds)
        told = json.loads(b"".join([part async for part in parts]))
        assert (told["entries"], told["more"]) == ([], True)


ANSWERS = (
    *("entries", "status", "turns", "timeline", "usage", "context?model=m", "call?id=c1", "dead-letters", "forks"),
    *("projections/sessions", "turns/main.1%230/request", ""),
)


@pytest.mark.parametrize("path", ANSWERS)
async def test_an_answer_that_was_allowed_before_a_handover_is_not_sent_after_it(tmp_path: Path, path: str) -> None:
    handed: list[str] = []

    async def slow(request: AccessRequest) -> Decision:
        """Allow the agent that the request names, after the session was handed over meanwhile."""
        decision = await only_support(request)
        if not handed and request.session == "s1":
            handed.append(request.action)
            await session.hand_over("billing")
            await session.publish(UserMessage.text(SECRET))
        return decision

    async with opened(tmp_path, slow) as (bus, client):
        session = bus.session("s1")
        reply = await client.get(f"/api/sessions/s1/{path}".rstrip("/"))
        assert handed
        assert (reply.status_code, SECRET in reply.text) in {(403, False), (404, False), (400, False)}
        assert reply.status_code == 403 or path in {"call?id=c1", "turns/main.1%230/request"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/sessions/s1/messages", {"text": "for support"}),
        ("/api/sessions/s1/messages", {"text": "for support", "followUp": True}),
        ("/api/sessions/s1/commands", {"command": "pause"}),
        ("/api/sessions/s1/commands", {"command": "steer", "text": "for support"}),
        ("/chat", {"id": "s1", "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "x"}]}]}),
    ],
)
async def test_a_message_to_an_agent_that_the_token_allows_does_not_reach_the_next_agent(
    tmp_path: Path, path: str, body: JsonValue
) -> None:
    asked: list[AccessRequest] = []

    async def slow(request: AccessRequest) -> Decision:
        decision = await only_support(request)
        asked.append(request)
        if len(asked) == 1:
            await bus.session("s1").hand_over("billing")
        return decision

    async with opened(tmp_path, slow) as (bus, client):
        reply = await client.post(path, json=body)
        assert reply.status_code in {403, 409}
        kinds = {"user", "control.*"}
        assert [envelope.message async for envelope in bus.session("s1").read(kinds=kinds, after="1-0")] == []


DEEDS: list[tuple[str, JsonValue]] = [
    ("agent", {"agent": "support"}),
    ("forks", {"id": "s2", "agent": "support"}),
    ("forks", {"id": "s2", "agent": "support", "position": 1}),
    ("close", {}),
    ("reopen", {}),
    ("trim", {"before": 2}),
    ("trim", {"before": 2, "force": True}),
    ("trim", {"before": 2, "dryRun": True}),
    ("redrive", {}),
]


@pytest.mark.parametrize(("path", "body"), DEEDS)
async def test_what_was_allowed_for_one_agent_is_not_done_to_the_session_of_the_next(
    tmp_path: Path, path: str, body: JsonValue
) -> None:
    handed: list[str] = []

    async def slow(request: AccessRequest) -> Decision:
        decision = await only_support(request)
        if not handed:
            handed.append(request.action)
            session = bus.session("s1")
            await session.reopen()
            await session.hand_over("billing")
            await session.publish(UserMessage.text(SECRET))
            if path == "reopen":
                await session.close()
            if path == "redrive":
                await give_up(bus)
        return decision

    async with opened(tmp_path, slow) as (bus, client):
        reply = await client.post(f"/api/sessions/s1/{path}", json=body)
        assert error_of(reply) == (409, "wrong_agent")
        head = await bus.session("s1").head()
        assert (head.agent, head.is_closed, head.trimmed) == ("billing", path == "reopen", 0)
        assert (await bus.session("s2").head()).position == 0
        assert not [holder for holder in await bus.session("s1").checkpoints() if holder.startswith("f:")]
        assert await bus.dead_letters("workers").count() == (path == "redrive")


async def test_an_approval_over_the_chat_is_asked_for_with_the_agent_that_it_names(tmp_path: Path) -> None:
    async def only_reads_billing(request: AccessRequest) -> Decision:
        return Decision(request.agent != "billing" or request.action.startswith("read"), "not yours")

    approval = ApprovalId(TurnId(loop_id="s1.main.1", turn_index=0), 2, "0" * 64, "c1")
    answered: JsonValue = {"id": str(approval), "approved": True}
    part: JsonValue = {"type": "dynamic-tool", "state": "approval-responded", "approval": answered}
    said: JsonValue = {"id": "a", "role": "assistant", "parts": [part]}
    async with opened(tmp_path, only_reads_billing) as (_, client):
        reply = await client.post("/chat", json={"id": "s1", "agent": "billing", "messages": [said]})
        assert error_of(reply) == (403, "access_refused")


@pytest.mark.parametrize(("parent", "answers"), [("s1", [409, 403]), ("known", [403])])
async def test_a_trim_by_force_passes_no_fork_that_is_made_while_the_forks_are_asked_for(
    tmp_path: Path, parent: str, answers: list[int]
) -> None:
    async def slow(request: AccessRequest) -> Decision:
        if request.session == "last" and not (await bus.session("secret").head()).position:
            await bus.session(parent).fork(2, id="secret")
        return Decision(request.session != "secret", "not yours")

    async with opened(tmp_path, slow) as (bus, client):
        session = bus.session("s1")
        await session.publish(UserMessage.text("shared"), wake=False)
        await (await session.fork(2, id="known")).fork(2, id="last")
        for status in answers:
            reply = await client.post("/api/sessions/s1/trim", json={"before": 3, "force": True})
            assert reply.status_code == status
            assert "secret" not in reply.text
        assert len([each async for each in bus.session("secret").read(until=2)]) == 2


async def test_trims_wait_behind_those_of_their_principal_and_do_not_hold_up_other_reads(tmp_path: Path) -> None:
    refused, asked = anyio.Event(), anyio.Event()

    async def slow(request: AccessRequest) -> Decision:
        if request.session == "known" and not refused.is_set():
            asked.set()
            await refused.wait()
        return Decision(True)

    found: list[int] = []
    async with opened(tmp_path, slow, replace(DEFAULT_UI_BOUNDS, queued=1)) as (bus, client):

        async def trim() -> None:
            body = {"before": 2, "force": True, "dryRun": True}
            found.append((await client.post("/api/sessions/s1/trim", json=body)).status_code)
            if found[-1] == 429:
                refused.set()

        await bus.session("s1").fork(1, id="known")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(trim)
                await asked.wait()
                assert (await client.get("/api/sessions/s1/status")).status_code == 200
                for _ in range(3):
                    tasks.start_soon(trim)
    assert sorted(found) == [200, 200, 200, 429]


@pytest.mark.parametrize(("most", "status"), [(2, 409), (3, 200)])
async def test_a_limited_token_trims_no_session_with_more_forks_than_it_may_ask_for(
    tmp_path: Path, most: int, status: int
) -> None:
    async def allow(request: AccessRequest) -> Decision:
        return Decision(True)

    async with opened(tmp_path, allow, replace(DEFAULT_UI_BOUNDS, sessions=most)) as (bus, client):
        session = bus.session("s1")
        for name in ("s2", "s3", "s4"):  # each a fork of the one before
            session = await session.fork(1, id=name)
        reply = await client.post("/api/sessions/s1/trim", json={"before": 2, "dryRun": True})
        assert reply.status_code == status
        assert ("more than 2 forks" in reply.text) == (status == 409)


async def give_up(bus: Bus) -> None:
    """Turn the work of the session into a dead letter of its present agent."""
    async with bus.consumer("workers", "w1", agents=("billing",)) as consumer:
        for item in await consumer.fetch(1):
            await consumer.dead_letter(item, reason="broken")


async def test_a_handover_is_of_the_agent_that_the_session_had_and_not_of_the_one_that_it_gets(tmp_path: Path) -> None:
    handed: list[str] = []

    async def slow(request: AccessRequest) -> Decision:
        if not handed:
            handed.append(request.action)
            await bus.session("s1").hand_over("billing")
        return await authorize_by_rights(request)

    async with opened(tmp_path, slow) as (bus, client):
        body = {"agent": "legal", "key": "k1"}
        reply = await client.post("/api/sessions/s1/agent", json=body)
        assert error_of(reply) == (409, "wrong_agent")
        assert (await client.post("/api/sessions/s1/agent", json=body)).status_code == 201
        await bus.session("s1").hand_over("billing")
        assert (await client.post("/api/sessions/s1/agent", json=body)).json()["duplicate"] is True


@pytest.mark.parametrize(("path", "body"), DEEDS)
async def test_nothing_is_done_for_a_token_that_was_revoked_while_a_hook_decided(
    tmp_path: Path, path: str, body: JsonValue
) -> None:
    files, token = signed(tmp_path, replace(HELPDESK, actions=("*",), agents=("*",)))
    revoked = tmp_path / "revoked"
    revoked.write_text("")

    async def slow(request: AccessRequest) -> Decision:
        if not revoked.read_text():
            revoked.write_text(f"{request.principal.token_id}\n")
            await anyio.sleep(2 * DEFAULT_ACCESS_BOUNDS.refresh_seconds)
        return await authorize_by_rights(request)

    async with api(token_files=replace(files, revoked=revoked), authorize=slow) as (bus, client):
        session = bus.session("s1")
        await session.publish(UserMessage.text("hello"), agent="billing")
        if path == "redrive":
            await give_up(bus)
        if path == "reopen":
            await session.close()
        before = await session.head()
        client.headers["Authorization"] = f"Bearer {token}"
        assert error_of(await client.post(f"/api/sessions/s1/{path}", json=body)) == (401, "token_unknown")
        after = await session.head()
        assert (after.position, after.agent, after.trimmed) == (before.position, before.agent, before.trimmed)
        assert (await bus.session("s2").head()).position == 0
        assert await bus.dead_letters("workers").count() == (path == "redrive")


async def test_a_token_of_one_agent_begins_a_chat_with_it(tmp_path: Path) -> None:
    message: JsonValue = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "x"}]}
    async with opened(tmp_path) as (bus, client):
        for agent, status in (("support", 200), ("billing", 403)):
            body: JsonValue = {"id": f"new-{agent}", "agent": agent, "messages": [message]}
            async with client.stream("POST", "/chat", json=body) as reply:
                assert reply.status_code == status
        assert (await bus.session("new-support").head()).agent == "support"
        assert (await bus.session("new-billing").head()).position == 0


async def test_a_list_shows_no_session_that_was_handed_over_while_it_was_made(tmp_path: Path) -> None:
    async with opened(tmp_path) as (bus, client):
        assert [each["id"] for each in (await client.get("/api/sessions")).json()["sessions"]] == ["s1"]
        await bus.session("s1").hand_over("billing")
        told = (await client.get("/api/sessions")).json()
        assert (told["count"], told["sessions"], told["agents"]) == (0, [], {})
