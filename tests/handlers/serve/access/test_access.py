"""Rights that end, hooks, limits and the audit log, on a real server."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import cast

import anyio
import httpx2
import pytest
from pydantic import JsonValue

from lanebus import ExtensionMessage, ToolCallBlock, UserMessage
from lanebus.access import AccessBounds, AccessRequest, Decision, authorize_by_rights
from lanebus.bus.messages import Lane
from lanebus.handlers.protocols.ai_sdk.encoder import ApprovalId
from lanebus.handlers.serve import Principal, TokenFiles, TokenFileUnreadable, new_key, sign_token
from lanebus.handlers.serve.access.access import Access, Refusal
from lanebus.handlers.serve.access.credentials import DEFAULT_ACCESS_BOUNDS, Credentials, Identified
from lanebus.handlers.serve.api.endpoint import ApiContext
from lanebus.handlers.serve.api.openapi import endpoints
from tests.support.agent.agents import until
from tests.support.page.samples import waiting_for_approval
from tests.support.serve import Client, UiBounds, api, client_at, error_of
from tests.support.servers.real import eventually

ALICE = Principal(name="alice", token_id="of-alice")
EVENTS = "/api/sessions/s1/events?lanes=all"


class Keys:
    """The files of a server."""

    def __init__(self, folder: Path) -> None:
        self.key, self.revoked, self.secret = folder / "key", folder / "revoked", new_key()
        self.key.write_text(f"# of tests\n\n{self.secret}\n")
        self.revoked.write_text("")
        self.files = TokenFiles(key=self.key, revoked=self.revoked)

    def token(self, principal: Principal = ALICE, seconds: float = 3600) -> str:
        return sign_token(principal, self.secret, seconds=seconds)[0]

    def revoke(self, line: str) -> None:
        with self.revoked.open("a") as stream:
            stream.write(f"{line}\n")


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


async def until_bye(reply: httpx2.Response, opened: anyio.Event) -> None:
    """Read a stream until the server ends it."""
    received = b""
    async for chunk in reply.aiter_raw():
        received += chunk
        if b"event: caughtup" in received:
            opened.set()
    assert received.endswith(b"event: bye\ndata: {}\n\n")


@pytest.mark.parametrize("how", ["of-alice", "name:alice", "key", "unreadable", "expired"])
async def test_a_revocation_or_the_end_of_a_token_ends_open_streams_and_refuses_requests(
    keys: Keys, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert DEFAULT_ACCESS_BOUNDS.refresh_seconds * 2 < 1  # one look at the file, and one at the stream
    caplog.set_level(logging.INFO, "lanebus.audit")
    token = keys.token(seconds=2 if how == "expired" else 3600)
    async with api(token_files=keys.files) as (_, page), client_at(page.base_url, token) as alice:
        opened, other = anyio.Event(), anyio.Event()
        with anyio.fail_after(120):
            async with (
                alice.stream("GET", EVENTS) as stream,
                page.stream("GET", EVENTS) as kept,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(until_bye, kept, other)
                async with anyio.create_task_group() as revoked:
                    revoked.start_soon(until_bye, stream, opened)
                    await opened.wait()
                    if how == "key":
                        keys.key.write_text(new_key())
                    elif how == "unreadable":
                        keys.revoked.unlink()
                    elif how != "expired":
                        keys.revoke(how)
                await other.wait()
                tasks.cancel_scope.cancel()  # the stream of another principal is still open
        reply = await alice.get("/api/access")
        assert error_of(reply) == (401, "token_unknown")
        ended = [vars(record) for record in caplog.records if vars(record).get("event") == "access.ended"]
        assert [(each["principal"], each["session"]) for each in ended] == [("alice", "s1")]


async def is_refused(client: Client) -> bool:
    return (await client.get("/api/access")).status_code == 401


async def test_a_token_that_is_revoked_while_a_body_is_under_way_does_nothing(keys: Keys) -> None:
    token, revoked = keys.token(Principal(name="alice", actions=("*",), token_id="of-alice")), anyio.Event()
    routes = [(each.method, each.path) for each in endpoints() if each.method not in {"GET", "HEAD", "DELETE"}]
    answers = dict[tuple[str, str], int]()

    async def body(begun: anyio.Event) -> AsyncGenerator[bytes]:
        yield b"{"
        begun.set()
        await revoked.wait()
        yield b"}"

    async with api(token_files=keys.files) as (bus, page), client_at(page.base_url, token) as alice:
        await bus.session("s1").publish(UserMessage.text("hi"))
        before = (await page.get("/api/sessions/s1")).json()["position"]
        upload = {"sha256": sha256(b"{}").hexdigest(), "sizeBytes": 2}
        assert (await alice.post("/api/sessions/s1/uploads", json=upload)).status_code == 201

        async def ask(method: str, path: str, begun: anyio.Event) -> None:
            url = path.format(session="s1", agent="agent", sha256=upload["sha256"])
            is_piece = method == "PATCH"
            kind = "application/octet-stream" if is_piece else "application/json"
            reply = await alice.request(
                method,
                url + ("?offset=0" if is_piece else ""),
                content=body(begun),
                headers={"Content-Type": kind, "Content-Length": "2"},
            )
            answers[method, path] = reply.status_code

        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                for method, path in routes:
                    tasks.start_soon(ask, method, path, begun := anyio.Event())
                    await begun.wait()
                keys.revoke("of-alice")
                await until(partial(is_refused, alice))
                revoked.set()
        assert answers == dict.fromkeys(routes, 401)
        assert (await page.get("/api/sessions/s1")).json()["position"] == before
        assert {head.session for head in await bus.sessions()} == {"s1"}


@pytest.mark.parametrize("path", ["/api/sessions/s1/commands", "/chat"])
async def test_an_approval_whose_token_is_revoked_while_it_waits_for_its_turn_is_not_published(
    path: str, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = keys.token(Principal(name="alice", actions=("*",), token_id="of-alice"))
    revoked, waits = anyio.Event(), anyio.Event()
    folded = ApiContext.folded

    async def late(self: ApiContext, owner: str, look: Callable[[], Awaitable[object]]) -> object:
        found = await folded(self, owner, look)
        waits.set()
        await revoked.wait()
        return found

    async with (
        api(token_files=keys.files) as (bus, page),
        client_at(page.base_url, token) as alice,
        anyio.create_task_group() as tasks,
    ):
        turn = await waiting_for_approval(bus.session("s1"), "Clean up", "rm")
        call = ToolCallBlock(id="c0", name="rm", arguments={"path": "rm"})
        about: JsonValue = {"id": str(ApprovalId(turn, 5, call.call_hash, call.id)), "approved": True}
        part: JsonValue = {"type": "dynamic-tool", "state": "approval-responded", "approval": about}
        bodies: dict[str, JsonValue] = {
            "/api/sessions/s1/commands": {"command": "approve", "turnId": str(turn), "toolCallId": call.id},
            "/chat": {"id": "s1", "messages": [{"id": "a", "role": "assistant", "parts": [part]}]},
        }
        before = (await bus.session("s1").head()).position
        monkeypatch.setattr(ApiContext, "folded", late)
        answers = list[int]()

        async def approve() -> None:
            answers.append((await alice.post(path, json=bodies[path])).status_code)

        tasks.start_soon(approve)
        with anyio.fail_after(120):
            await waits.wait()
            keys.revoke("of-alice")
            await until(partial(is_refused, alice))
            revoked.set()
            await eventually(lambda: bool(answers))
        assert answers == [401]
        assert (await bus.session("s1").head()).position == before


@pytest.mark.parametrize("content", ["short", "", None])
async def test_a_key_file_that_is_damaged_while_the_server_runs_refuses_with_one_log_line(
    keys: Keys, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    bounds = AccessBounds(refresh_seconds=0.000_001)
    access = Access(Credentials("start-token", files=keys.files, bounds=bounds), bounds=bounds)
    headers = {"authorization": f"Bearer {keys.token()}"}
    assert isinstance(await access.identify(headers, ""), Identified)
    if content is None:
        keys.key.unlink()
    else:
        keys.key.write_text(content)
    found = [await access.identify(headers, "") for _ in range(3)]
    assert [each.status for each in found if isinstance(each, Refusal)] == [401] * 3
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(logged) == 1
    assert str(keys.key) in logged[0]
    keys.key.write_text(f"short\n{keys.secret}\n")  # the other keys are used
    assert isinstance(await access.identify(headers, ""), Identified)


async def test_the_hook_authorize_decides_every_request_and_ends_streams() -> None:
    asked, is_off = list[AccessRequest](), False

    async def authorize(request: AccessRequest) -> Decision:
        asked.append(request)
        if is_off:
            return Decision(False, "closed for today")
        return await authorize_by_rights(request)

    async with api(authorize=authorize) as (bus, page):
        await bus.session("s1").publish(UserMessage.text("hi"), agent="support")
        assert (await page.get("/api/sessions/s1/entries")).status_code == 200
        assert {(each.action, each.session, each.agent, each.lane) for each in asked} == {
            ("read.entries", "s1", "support", lane) for lane in Lane
        }
        opened = anyio.Event()
        with anyio.fail_after(120):
            async with page.stream("GET", EVENTS) as stream, anyio.create_task_group() as tasks:
                tasks.start_soon(until_bye, stream, opened)
                await opened.wait()
                is_off = True
        reply = await page.post("/api/sessions/s1/commands", json={"command": "abort"})
        assert error_of(reply) == (403, "access_refused")
        assert reply.json()["detail"] == "closed for today"
        assert (asked[-1].action, asked[-1].lane) == ("command.abort", Lane.EXTENSION)
        assert (await bus.session("s1").head()).position == 1


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [vars(record) for record in caplog.records]
    return [str(each["refusal"]) for each in found if each.get("event") == "access.refused"]


PASSWORD = "hunter2-hunter2"
NOT_OURS = [asyncio.CancelledError, SystemExit, KeyboardInterrupt]
"""errors that are no `Exception`, which a hook raises though nobody cancelled the request"""
FAULTS = ["raises", "hangs", "text", "no fields", *(each.__name__ for each in NOT_OURS), "group"]


async def failing(fault: str) -> object:
    match fault:
        case "raises":
            raise RuntimeError(f"database is gone: password={PASSWORD}")
        case "hangs":
            await anyio.sleep_forever()
        case "group":
            raise BaseExceptionGroup(f"password={PASSWORD}", [asyncio.CancelledError()])
        case "no fields":
            return Decision(cast("bool", "no"))
        case _:
            for each in NOT_OURS:
                if each.__name__ == fault:
                    raise each(f"password={PASSWORD}")
    return "yes"


@pytest.mark.parametrize("hook", ["authorize", "identify"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_hook_that_fails_refuses_also_right_tokens_with_one_line(
    fault: str, hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def authorize(request: AccessRequest) -> Decision:
        del request
        return cast("Decision", await failing(fault))

    async def identify(headers: Mapping[str, str], address: str) -> Principal | None:
        del headers, address
        return cast("Principal", await failing(fault))

    bounds, is_authorize = UiBounds(access=AccessBounds(decision_seconds=0.05)), hook == "authorize"
    hooks = (authorize, None) if is_authorize else (None, identify)
    async with api(authorize=hooks[0], identify=hooks[1], bounds=bounds) as (bus, page):
        reply = await page.post("/api/sessions/s1/messages", json={"text": "hi"})
        assert error_of(reply) == ((403, "access_refused") if is_authorize else (401, "hook_failed"))
        assert (await bus.session("s1").head()).position == 0
    is_late = is_authorize and fault == "hangs"
    assert refusals(caplog) == ["no decision in time: try again" if is_late else "hook_failed"]
    assert (f"the hook {hook}" in caplog.text) == (not is_late)
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("fault", [RuntimeError, *NOT_OURS])
async def test_a_hook_that_begins_to_fail_ends_open_streams(fault: type[BaseException]) -> None:
    is_broken = False

    async def authorize(request: AccessRequest) -> Decision:
        if is_broken:
            raise fault("database is gone")
        return await authorize_by_rights(request)

    async with api(authorize=authorize) as (_, page):
        opened = anyio.Event()
        with anyio.fail_after(120):
            async with page.stream("GET", EVENTS) as stream, anyio.create_task_group() as tasks:
                tasks.start_soon(until_bye, stream, opened)
                await opened.wait()
                is_broken = True


async def test_a_request_that_is_cancelled_while_a_hook_decides_ends() -> None:
    asked, is_decided = anyio.Event(), False

    async def authorize(request: AccessRequest) -> Decision:
        del request
        asked.set()
        await anyio.sleep_forever()
        return Decision(True)

    access = Access(Credentials(), authorize=authorize)

    async def decide() -> None:
        nonlocal is_decided
        await access.ask(AccessRequest(principal=ALICE, action="read.head"))
        is_decided = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(decide)
        await asked.wait()
        tasks.cancel_scope.cancel()
    task = asyncio.create_task(decide())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_decided


async def test_the_hook_identify_names_users_by_a_header_of_a_known_proxy_only() -> None:
    async def identify(headers: Mapping[str, str], address: str) -> Principal | None:
        name = headers.get("x-user")
        return Principal(name=name, actions=("*",)) if name and address == proxy else None

    proxy, bob = "127.0.0.1", {"X-User": "bob"}
    async with api(token=None, identify=identify) as (bus, client):
        assert (await client.get("/api/access", headers=bob)).json()["name"] == "bob"
        assert await is_refused(client)
        await client.post("/api/sessions/s1/messages", json={"text": "hi"}, headers=bob)
        (entry,) = [each.message async for each in bus.session("s1").read()]
        assert isinstance(entry, UserMessage)
        assert entry.metadata == {"lanebus.by": "bob"}
        proxy = "10.0.0.1"
        spoofed = {"X-Forwarded-For": proxy, "Forwarded": f"for={proxy}"}
        assert (await client.get("/api/access", headers={**bob, **spoofed})).status_code == 401


async def test_a_token_of_one_agent_begins_only_its_sessions_and_hands_none_over(keys: Keys) -> None:
    token = keys.token(Principal(name="bob", actions=("read", "send", "hand_over"), agents=("sales",)))
    async with api(token_files=keys.files) as (bus, page), client_at(page.base_url, token) as bob:
        for name, agent in (("of-sales", "sales"), ("of-support", "support"), ("of-none", None)):
            await bus.session(name).publish(ExtensionMessage.of("tick"), agent=agent)
        assert [head["id"] for head in (await bob.get("/api/sessions")).json()["sessions"]] == ["of-sales"]
        for name, status in (("of-sales", 200), ("of-support", 403), ("of-none", 403)):
            assert (await bob.get(f"/api/sessions/{name}/entries")).status_code == status
        for given, status in (({}, 403), ({"agent": "support"}, 403), ({"agent": "sales"}, 201)):
            reply = await bob.post("/api/sessions/new/messages", json={"text": "x", **given})
            assert reply.status_code == status
        assert (await bob.post("/api/sessions/of-sales/agent", json={"agent": "support"})).status_code == 403


async def test_a_principal_has_a_limit_of_requests_and_bytes() -> None:
    async def identify(headers: Mapping[str, str], address: str) -> Principal | None:
        del address
        return Principal(name=headers["x-user"], actions=("*",), requests_per_second=0.01, body_bytes=40)

    bounds = UiBounds(access=AccessBounds(burst=2, requests_per_second=1_000_000))
    async with api(identify=identify, bounds=bounds) as (bus, bob):
        path, bob.headers["X-User"] = "/api/sessions/s1/messages", "bob"
        for text, status in (("short", 201), ("x" * 40, 413), ("short", 429)):
            reply = await bob.post(path, json={"text": text})
            assert reply.status_code == status
        assert int(reply.headers["retry-after"]) > 0
        assert (await bob.get("/api/access", headers={"X-User": "ann"})).status_code == 200
        assert (await bob.get("/")).status_code == 200  # a file of the page
        assert (await bus.session("s1").head()).position == 1


async def test_each_decision_is_one_line_of_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lanebus.audit")
    async with api(reader_token="reader") as (_, page):
        await page.get("/api/sessions/s1/status")
        await page.post("/api/sessions/s1/messages", json={"text": "top secret"})
        async with client_at(page.base_url, "reader") as reader, client_at(page.base_url, "guess-1") as other:
            await reader.post("/api/sessions/s1/commands", json={"command": "abort"})
            await other.get("/api/sessions")
        await page.get("/api/sessions", headers={"Host": "evil.example"})
    fields = ("levelname", "event", "principal", "action", "session", "lane", "client", "refusal")
    lines = [
        tuple(str(vars(record).get(field, "")) for field in fields)
        for record in caplog.records
        if record.name == "lanebus.audit"
    ]
    local, refused, no = "127.0.0.1", ("access.refused",), "this token does not allow"
    assert lines == [
        ("DEBUG", "access.read", "page", "read.status", "s1", "extension", local, ""),
        ("INFO", "access.allowed", "page", "send", "s1", "llm", local, ""),
        ("WARNING", *refused, "reader", "command.abort", "s1", "extension", local, f"{no} command.abort"),
        ("WARNING", *refused, "", "", "", "", local, "token_unknown"),
        ("WARNING", *refused, "", "", "", "", local, "host_refused"),
    ]
    assert "secret" not in caplog.text
    assert "guess-1" not in caplog.text


def test_readable_files_and_short_tokens_are_logged_without_their_text(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    keys.key.chmod(0o600)
    Credentials("x" * 16, files=keys.files).log_weaknesses()
    assert caplog.records == []
    keys.key.chmod(0o640)
    Credentials("hunter2", files=keys.files).log_weaknesses()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert f"chmod 600 {keys.key}" in caplog.text
    assert "fewer than 16 characters" in caplog.text
    assert "hunter2" not in caplog.text


async def test_remembered_tokens_and_counted_addresses_are_bounded() -> None:
    bounds = AccessBounds(accepted=2, principals=2, addresses=2, wrong_burst=1, wrong_per_second=0.001)
    access = Access(Credentials("start", "reader", bounds=bounds), bounds=bounds)
    for number in range(9):
        await access.identify({"authorization": f"Bearer {number}"}, f"10.0.0.{number}")
        await access.identify({"authorization": "Bearer start"}, "10.1.1.1")
        await access.identify({"authorization": "Bearer reader"}, "10.1.1.1")
    assert [len(table) for table in access.tables()] == [2, 2, 2]


@pytest.mark.parametrize("content", [None, "", "# only a comment\n"])
def test_a_file_without_a_token_is_an_error_that_names_it(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(TokenFileUnreadable, match="token"):
        Credentials(files=TokenFiles(token=file))
