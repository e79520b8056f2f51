"""Who may do what: each principal in each session on each route, command and stream. Only the allowed cells answer."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import jwt
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, Delta, ExtensionMessage, TextBlock, ToolCallBlock, ToolResultMessage
from lanebus.access import AccessBounds
from lanebus.bus.messages import CONTROLS, AgentStarted, Lane, MessageStarted, ToolWaiting, TurnStarted
from lanebus.handlers.protocols.ai_sdk.encoder import ApprovalId
from lanebus.handlers.serve import ACTIONS, Principal, TokenFiles, new_key, sign_token
from lanebus.handlers.serve.api.openapi import endpoints
from lanebus.messages import ImageBlock, MediaRef, TurnId, UserMessage
from tests.support.page.serving import TOKEN
from tests.support.serve import Client, UiBounds, api, client_at

SESSIONS = ("team-a", "team-b", "other")
TEAM = ("team-a", "team-b")

ANONYMOUS, PAGE, READER, WATCHER, WRITER, REVOKED = "anonymous", "page", "reader", "watcher", "writer", "revoked"
HELPER, WRONG, EXPIRED = "helper", "wrong", "expired"
ALL = (ANONYMOUS, PAGE, READER, WATCHER, WRITER, HELPER, REVOKED)
KNOWN = (PAGE, READER, WATCHER, WRITER, HELPER)
UNKNOWN = (ANONYMOUS, WRONG, EXPIRED, REVOKED)

SIGNED = {
    WATCHER: Principal(name=WATCHER, sessions=("team-*",), lanes=frozenset({Lane.EXTENSION})),
    WRITER: Principal(name=WRITER, sessions=("team-a",), actions=("read", "send", "command.abort")),
    HELPER: Principal(name=HELPER, agents=("sales",), actions=("read", "send", "command.abort")),
    REVOKED: Principal(name=REVOKED, actions=("*",), token_id="gone"),
    EXPIRED: Principal(name=EXPIRED, actions=("*",)),
}
AGENTS = {"other": "sales"}
"""the agents of sessions; the others have the default one"""

Cells = Mapping[str, tuple[str, ...]]
"""principal → the sessions in which it may"""

READS_A_LANE: Cells = {PAGE: SESSIONS, READER: SESSIONS, WATCHER: TEAM, WRITER: ("team-a",), HELPER: ("other",)}
READS_BOTH_LANES: Cells = {PAGE: SESSIONS, READER: SESSIONS, WRITER: ("team-a",), HELPER: ("other",)}
SENDS: Cells = {PAGE: SESSIONS, WRITER: ("team-a",), HELPER: ("other",)}
ONLY_PAGE: Cells = {PAGE: SESSIONS}

PATH = "/api/sessions/{session}"
MEDIA = f"{PATH}/entries/{{position:int}}/media/{{sha256}}"
CALL = f"{PATH}/call"
QUERIES = {CALL: "?id=c1", f"{PATH}/events": "?lanes=all"}
AGUI, CHAT, RESUME, LOADED = "/agui/{agent}", "/chat", "/chat/{session}/stream", "/chat/{session}/messages"
MERGED, CHANGES = "/api/events?sessions={session}&lanes=all", "/api/changes"
PUBLIC = {"/api/openapi.json", "/", "/static/{path:path}", "/favicon.ico"}
OF_NO_SESSION = {"/api/access", "/api/sessions", "/api/waiting", "/api/projections"}
READS: dict[str, Cells] = {
    **dict.fromkeys(
        (PATH, *(f"{PATH}/{name}" for name in ("entries", "events", "status", "forks")), MERGED), READS_A_LANE
    ),
    **dict.fromkeys((f"{PATH}/{name}" for name in ("turns", "timeline", "context", "usage")), READS_BOTH_LANES),
    **dict.fromkeys((f"{PATH}/turns/{{turn}}/request", f"{PATH}/projections/{{name}}"), READS_BOTH_LANES),
    **dict.fromkeys((f"{PATH}/dead-letters", MEDIA, CALL, RESUME, LOADED), READS_BOTH_LANES),
}
ABOUT: dict[str, JsonValue] = {"turnId": {"loopId": "l.main.1", "turnIndex": 0}, "toolCallId": "c1"}
COMMANDS: dict[str, dict[str, JsonValue]] = {
    **{name: {} for name in ("abort", "compact", "handoff", "pause", "resume")},
    **{"approve": ABOUT, "deny": ABOUT, "steer": {"text": "left"}},
}
DECISIONS: tuple[dict[str, JsonValue], ...] = ({"do": "approve"}, {"do": "deny"})
WRITES: list[tuple[str, dict[str, JsonValue], Cells]] = [
    (f"{PATH}/messages", {"text": "hi"}, SENDS),
    (f"{PATH}/messages", {"text": "later", "followUp": True}, SENDS),
    (f"{PATH}/messages", {"content": [{"type": "text", "text": "hi"}]}, SENDS),
    (f"{PATH}/agent", {"agent": "billing"}, ONLY_PAGE),
    *(
        (f"{PATH}/commands", {"command": name, **fields}, SENDS if name == "abort" else ONLY_PAGE)
        for name, fields in COMMANDS.items()
    ),
    (CHAT, {"do": "say"}, SENDS),
    (AGUI, {"do": "say"}, SENDS),
    *((path, decision, ONLY_PAGE) for path in (CHAT, AGUI) for decision in DECISIONS),
    (AGUI, {"do": "resume"}, ONLY_PAGE),
    (AGUI, {"do": "look"}, READS_BOTH_LANES),
]

STATES = f"{PATH}/projections/{{name}}/events"
UPKEEP: list[tuple[str, dict[str, JsonValue]]] = [
    (f"{PATH}/forks", {"position": 1}),
    (f"{PATH}/redrive", {}),
    (f"{PATH}/trim", {"before": 1, "dryRun": True}),
    (f"{PATH}/close", {}),
    (f"{PATH}/reopen", {}),
]

UPLOADS = f"{PATH}/uploads"
UPLOAD = f"{UPLOADS}/{{sha256}}"


def llm_canary(session: str) -> str:
    return f"CANARY-LLM-{session}-"


def extension_canary(session: str) -> str:
    return f"CANARY-EXT-{session}-"


def picture(session: str) -> bytes:
    """Return media that are too large for an entry, with the canary of the LLM lane."""
    return b"\x89PNG\r\n\x1a\n" + llm_canary(session).encode() + bytes(60_000)


def address(path: str, session: str) -> str:
    """Return the path of a route for a session, and for its media if the route is of media."""
    if path == MEDIA:
        return f"/api/sessions/{session}/entries/8/media/{hashlib.sha256(picture(session)).hexdigest()}"
    return path.format(session=session, turn="main.1%230", name="turns") + QUERIES.get(path, "")


async def fill(bus: Bus, name: str) -> None:
    """Publish the canaries of both lanes wherever a message has a text."""
    llm, turn = llm_canary(name), TurnId(loop_id=f"{name}.main.1", turn_index=0)
    call = ToolCallBlock(id="c1", name="rm", arguments={"path": llm})
    await bus.session(name).publish(
        UserMessage.text(llm),
        AgentStarted(loop_id=turn.loop_id, agent="a").as_extension(),
        TurnStarted(turn_id=turn).as_extension(),
        AssistantMessage(content=(TextBlock(text=llm), call), turn_id=turn, stop_reason="toolUse", model=llm),
        ToolResultMessage(tool_call_id="c0", tool_name=llm, content=(TextBlock(text=llm),), turn_id=turn),
        ToolWaiting(turn_id=turn, tool_call_id="c1", tool_name="rm").as_extension(),
        ExtensionMessage.of("progress", {"text": extension_canary(name)}),
        UserMessage(content=(ImageBlock(media=MediaRef.from_bytes(picture(name))),)),
        MessageStarted(turn_id=turn, message_id="m1").as_extension(),
        agent=AGENTS.get(name),
    )


@asynccontextmanager
async def opened(
    folder: Path, *, allowed_origins: Iterable[str] = (), base_path: str = ""
) -> AsyncGenerator[tuple[Bus, dict[str, Client]]]:
    """Yield a client for each principal."""
    key = new_key()
    (folder / "key").write_text(key)
    (folder / "revoked").write_text("gone\n")
    files = TokenFiles(key=folder / "key", revoked=folder / "revoked")
    tokens = {PAGE: TOKEN, READER: "reader-token"}
    tokens |= {name: sign_token(principal, key, seconds=3600)[0] for name, principal in SIGNED.items()}
    claims = jwt.decode(tokens[EXPIRED], key, algorithms=["HS256"], audience="lanebus")
    tokens |= {WRONG: "no-such-token", EXPIRED: jwt.encode({**claims, "exp": claims["iat"] - 1}, key)}
    bounds = UiBounds(access=AccessBounds(burst=10_000, wrong_burst=10_000))
    async with AsyncExitStack() as stack:
        served = api(
            token_files=files,
            reader_token="reader-token",
            bounds=bounds,
            allowed_origins=allowed_origins,
            base_path=base_path,
        )
        bus, page = await stack.enter_async_context(served)
        for name in SESSIONS:
            await fill(bus, name)
        clients = {name: client_at(page.base_url, tokens.get(name)) for name in {*ALL, *UNKNOWN}}
        for client in clients.values():
            await stack.enter_async_context(client)
        yield bus, clients


def chat_body(session: str, who: str, do: JsonValue) -> dict[str, JsonValue]:
    """Return what `useChat` posts: a message, or the answer to an approval request."""
    if do == "say":
        part: dict[str, JsonValue] = {"type": "text", "text": "hi"}
        return {"id": session, "messages": [{"id": f"by-{who}", "role": "user", "parts": [part]}]}
    call = ToolCallBlock(id="c1", name="rm", arguments={"path": llm_canary(session)})
    approval = ApprovalId(TurnId(loop_id=f"{session}.main.1", turn_index=0), 6, call.call_hash, call.id)
    answered: JsonValue = {"id": str(approval), "approved": do == "approve"}
    part = {"type": "dynamic-tool", "state": "approval-responded", "approval": answered}
    return {"id": session, "messages": [{"id": "a", "role": "assistant", "parts": [part]}]}


def run_body(session: str, who: str, do: JsonValue) -> dict[str, JsonValue]:
    """Return what a client of AG-UI posts: a message, the answer to an interrupt, or neither."""
    call = ToolCallBlock(id="c1", name="rm", arguments={"path": llm_canary(session)})
    about = "paused/1" if do == "resume" else f"{session}.main.1#0/{call.id}/{call.call_hash}"
    answer: JsonValue = {"interruptId": about, "status": "resolved", "payload": {"approved": do == "approve"}}
    said: JsonValue = {"id": f"run-by-{who}", "role": "user", "content": "hi"}
    return {
        **{"threadId": session, "runId": f"{who}-{do}", "messages": [said] if do == "say" else []},
        **({} if do in {"say", "look"} else {"resume": [answer]}),
    }


async def stream(
    client: Client,
    method: str,
    path: str,
    until: bytes,
    body: JsonValue = None,
    *,
    at: bytes = b"",
    then: Callable[[], Awaitable[None]] | None = None,
) -> tuple[str, bytes]:
    """Return whether a stream is answered, and its bytes until a text that it is sure to have.

    `then` is called once when the text `at` has come.
    """
    received = bytearray()
    async with client.stream(method, path, json=body) as reply:
        if reply.status_code != 200:
            return found(reply), await reply.aread()
        with anyio.fail_after(120):
            async for chunk in reply.aiter_raw():
                received += chunk
                if then is not None and at in received:
                    await then()
                    then = None
                if until in received:
                    break
    return "answered", bytes(received)


def expected(who: str, session: str, allowed: Cells) -> str:
    if who in UNKNOWN:
        return "401"
    return "answered" if session in allowed.get(who, ()) else "403"


def found(reply: httpx2.Response) -> str:
    return "answered" if reply.status_code in {200, 201} else str(reply.status_code)


async def read_changes(bus: Bus, client: Client, visible: Iterable[str]) -> tuple[str, bytes]:
    """Return whether the stream of changes is answered, and its bytes until it names the last visible session."""

    async def mark() -> None:
        for session in reversed(SESSIONS):
            await bus.session(session).publish(ExtensionMessage.of("mark"))

    last = next((each for each in SESSIONS if each in visible), "")
    return await stream(client, "GET", CHANGES, f'"{last}"'.encode(), at=b"event: ready", then=mark)


async def read_stream(bus: Bus, client: Client, path: str, session: str) -> tuple[str, bytes]:
    """Return whether a stream is answered, and its bytes until an event that is published behind a live delta."""

    async def mark() -> None:
        live = Delta(kind="text", message_id="m1", delta=f"{llm_canary(session)}live")
        await bus.session(session).preview(live)
        await bus.session(session).publish(ExtensionMessage.of("mark", {"text": "MARK"}))

    at = path.format(session=session) + QUERIES.get(path, "")
    return await stream(client, "GET", at, b"MARK", at=b"event: caughtup", then=mark)


def test_every_route_and_every_command_has_its_cells() -> None:
    table = endpoints()
    routes = {(each.method, each.path) for each in table}
    assert len(routes) == len(table)
    assert routes == {
        *(("GET", path.partition("?")[0]) for path in PUBLIC | OF_NO_SESSION | {*READS, CHANGES, STATES}),
        *(("POST", path) for path, _, _ in WRITES),
        *(("POST", path) for path, _ in UPKEEP),
        ("POST", UPLOADS),
        *((method, UPLOAD) for method in ("GET", "PATCH", "DELETE")),
    }
    assert {*COMMANDS} == {*CONTROLS}


@pytest.mark.full
@pytest.mark.parametrize("who", ALL)
async def test_only_allowed_cells_answer_and_a_canary_reaches_only_readers_of_its_lane_and_session(
    tmp_path: Path, who: str
) -> None:
    wrong, heard = list[str](), bytearray()
    listed: tuple[set[object], object] | None = None
    async with opened(tmp_path) as (bus, clients):
        client = clients[who]
        for path in OF_NO_SESSION:
            reply = await client.get(path)
            heard += reply.content
            if path == "/api/sessions" and who in KNOWN:
                answer: dict[str, list[dict[str, object]]] = reply.json()
                listed = {head["id"] for head in answer["sessions"]}, answer["count"]
            if found(reply) != ("answered" if who in KNOWN else "401"):
                wrong.append(f"{who} GET {path}: {reply.status_code}")
        state, content = await read_changes(bus, client, READS_A_LANE.get(who, ()))
        heard += content
        named = {session for session in SESSIONS if f'"{session}"'.encode() in content}
        if (state, named) != (("answered", {*READS_A_LANE[who]}) if who in KNOWN else ("401", set())):
            wrong.append(f"{who} GET {CHANGES}: {state} {named}")
        for session in SESSIONS:
            for path, allowed in READS.items():
                if "/events" in path:
                    state, content = await read_stream(bus, client, path, session)
                elif path == RESUME:
                    state, content = await stream(client, "GET", path.format(session=session), b"data-progress")
                else:
                    reply = await client.get(address(path, session))
                    state, content = found(reply), reply.content
                    head = await client.head(address(path, session))
                    assert found(head) == state
                heard += content
                if state != expected(who, session, allowed):
                    wrong.append(f"{who} GET {path} {session}: {state}")
            for path, body, allowed in WRITES:
                before = (await bus.session(session).head()).position
                if path == CHAT:
                    asked = chat_body(session, who, body["do"])
                    state, content = await stream(client, "POST", path, b"data-progress", asked)
                elif path == AGUI:
                    asked, to = run_body(session, who, body["do"]), (await bus.session(session).head()).agent
                    state, content = await stream(client, "POST", f"/agui/{to}", b"MESSAGES_SNAPSHOT", asked)
                else:
                    reply = await client.post(path.format(session=session), json=body)
                    state, content = found(reply), reply.content
                heard += content
                is_written = (await bus.session(session).head()).position > before
                writes = state == "answered" and body.get("do") != "look"
                if state != expected(who, session, allowed) or is_written != writes:
                    wrong.append(f"{who} POST {path} {body} {session}: {state}, written: {is_written}")
    assert wrong == []
    for session in SESSIONS:
        sees = (llm_canary(session).encode() in heard, extension_canary(session).encode() in heard)
        may_see = (session in READS_BOTH_LANES.get(who, ()), session in READS_A_LANE.get(who, ()))
        assert (session, sees) == (session, may_see)
    if who in KNOWN:
        assert listed == ({*READS_A_LANE[who]}, len(READS_A_LANE[who]))


@pytest.mark.full
async def test_only_the_page_and_a_token_with_the_action_may_fork_redrive_trim_close_and_reopen(tmp_path: Path) -> None:
    async with opened(tmp_path) as (bus, clients):
        for who, client in clients.items():
            for session in SESSIONS:
                for path, body in UPKEEP:
                    reply = await client.post(path.format(session=session), json=body)
                    assert (who, path, found(reply)) == (who, path, expected(who, session, ONLY_PAGE))
        heads = [head.session for head in await bus.sessions()]
        forks = sorted(name.rpartition("-")[0] for name in heads if name not in SESSIONS)
        assert forks == ["other", "team-a", "team-b"]


@pytest.mark.full
async def test_only_senders_upload_and_each_sees_only_its_own_uploads(tmp_path: Path) -> None:
    data, kind = b"half an upload", {"Content-Type": "application/octet-stream"}
    digest = hashlib.sha256(data).hexdigest()
    begin: dict[str, JsonValue] = {"sha256": digest, "sizeBytes": len(data)}
    async with opened(tmp_path) as (bus, clients):
        heads = {session: (await bus.session(session).head()).position for session in SESSIONS}
        for session in SESSIONS:
            path = f"/api/sessions/{session}/uploads/{digest}"
            begun = set[str]()
            for who, client in clients.items():
                may = expected(who, session, SENDS)
                missing = {"answered": "404"}.get(may, may)
                for other in await client.get(path), await client.patch(f"{path}?offset=0", content=b"x", headers=kind):
                    assert (who, session, found(other)) == (who, session, missing), begun
                reply = await client.post(f"/api/sessions/{session}/uploads", json=begin)
                assert (who, session, found(reply)) == (who, session, may)
                if may == "answered":
                    assert (reply.status_code, reply.json()["offset"]) == (201, 0)
                    begun.add(who)
                added = await client.patch(f"{path}?offset=0", content=data[:4], headers=kind)
                assert (who, session, found(added)) == (who, session, may)
                assert (who, session, found(await client.get(path))) == (who, session, may)
            for who, client in clients.items():
                may = expected(who, session, SENDS)
                assert (who, session, found(await client.delete(path))) == (who, session, may)
        assert heads == {session: (await bus.session(session).head()).position for session in SESSIONS}


@pytest.mark.full
async def test_what_is_sent_names_its_principal(tmp_path: Path) -> None:
    async with opened(tmp_path) as (bus, clients):
        writer = clients[WRITER]
        for body in ({"text": "hi"}, {"text": "later", "followUp": True}):
            assert (await writer.post("/api/sessions/team-a/messages", json=body)).status_code == 201
        assert (await writer.post("/api/sessions/team-a/commands", json={"command": "abort"})).status_code == 201
        steer = {"command": "steer", "text": "left"}
        assert (await clients[PAGE].post("/api/sessions/team-a/commands", json=steer)).status_code == 201
        session = bus.session("team-a")
        users = [e.message async for e in session.read(after="8-0", lanes={Lane.LLM})]
        assert [isinstance(m, UserMessage) and (m.metadata or {}).get("lanebus.by") for m in users] == [
            *(WRITER, WRITER, PAGE)
        ]
        controls = [e.message async for e in session.read(after="8-0", kinds={"control.*"}, lanes={Lane.EXTENSION})]
        senders = [m.data.get("by") for m in controls if isinstance(m, ExtensionMessage) and isinstance(m.data, dict)]
        assert senders == [WRITER, PAGE]
        for path, body in (
            ("commands", {"command": "abort", "by": "the boss"}),
            ("agent", {"agent": "billing", "by": "the boss"}),
        ):
            reply = await clients[PAGE].post(f"/api/sessions/team-a/{path}", json=body)
            assert (reply.status_code, "leave it out" in reply.json()["detail"]) == (400, True)


READ_ACTIONS = {
    **{
        f"{PATH}/{name}": f"read.{name}"
        for name in ("entries", "events", "status", "turns", "timeline", "context", "usage")
    },
    **{PATH: "read.head", MEDIA: "read.media", CALL: "read.call", f"{PATH}/turns/{{turn}}/request": "read.request"},
    **{f"{PATH}/forks": "read.forks", f"{PATH}/dead-letters": "read.dead_letters"},
    **{"/api/sessions": "read.sessions", CHANGES: "read.sessions", "/api/waiting": "read.waiting"},
    **dict.fromkeys(("/api/projections", f"{PATH}/projections/{{name}}", STATES), "read.projections"),
    **dict.fromkeys((MERGED, RESUME, LOADED), "read.events"),
}
ACTIONS_OF: dict[tuple[str, str], tuple[str, ...]] = {
    ("GET", "/api/access"): (),
    **{("GET", path): (action,) for path, action in READ_ACTIONS.items()},
    **{("POST", f"{PATH}/{name}"): (name,) for name in ("redrive", "trim", "close", "reopen")},
    ("POST", f"{PATH}/forks"): ("fork",),
    ("POST", f"{PATH}/messages"): ("send",),
    ("POST", f"{PATH}/commands"): ("command.pause",),
    ("POST", f"{PATH}/agent"): ("hand_over",),
    ("POST", CHAT): ("send", "read.events"),
    ("POST", AGUI): ("send", "read.events"),
    ("POST", UPLOADS): ("send",),
    **{(method, UPLOAD): ("send",) for method in ("GET", "PATCH", "DELETE")},
}
"""the actions that a route asks for"""

SINGLE = tuple(each for each in ACTIONS if each not in {"*", "read", "command"})
BODIES: dict[str, JsonValue] = {
    f"{PATH}/messages": {"text": "hi"},
    f"{PATH}/commands": {"command": "pause"},
    f"{PATH}/agent": {"agent": "billing"},
    CHAT: chat_body("team-a", "any", "say"),
    AGUI: run_body("team-a", "any", "say"),
    UPLOADS: {"sha256": "0" * 64, "sizeBytes": 1},
    **dict(UPKEEP),
}


def test_every_route_has_its_actions() -> None:
    routes = {(each.method, each.path) for each in endpoints() if each.path not in PUBLIC}
    assert {(method, path.partition("?")[0]) for method, path in ACTIONS_OF} == routes


async def status_of(client: Client, method: str, path: str, actions: Iterable[str] = ()) -> int:
    """Return the status of a request to a route, with exactly these actions."""
    at = path.replace("{path:path}", "app.js").replace("{agent}", "agent").replace("{sha256}", "0" * 64)
    at = (MEDIA if path == MEDIA else at).replace("{position:int}", "8").replace("{sha256}", "0" * 64)
    at = at.format(session="team-a", turn="main.1%230", name="turns") + QUERIES.get(path, "")
    at += "?offset=0" if method == "PATCH" else "?model=m" if path.endswith("/context") else ""
    body: dict[str, object] = {"json": BODIES.get(path)} if method == "POST" else {}
    if method == "PATCH":
        body = {"content": b"x"}
    headers = {"X-Actions": ",".join(actions), "Content-Type": "application/octet-stream" if method == "PATCH" else ""}
    sent = {name: value for name, value in headers.items() if value}
    async with client.stream(method, at, headers=sent, **body) as reply:  # type: ignore[arg-type]
        return reply.status_code


@pytest.mark.full
async def test_an_unknown_token_reaches_no_route(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, clients):
        for who in UNKNOWN:
            for method, path in ACTIONS_OF:
                assert (who, method, path, await status_of(clients[who], method, path)) == (who, method, path, 401)


@pytest.mark.full
async def test_each_route_needs_its_actions_and_no_other() -> None:
    async def identify(headers: Mapping[str, str], address: str) -> Principal | None:
        del address
        return Principal(name="any", actions=tuple(filter(None, headers.get("x-actions", "").split(","))))

    bounds = UiBounds(access=AccessBounds(burst=10_000))
    async with api(token=None, identify=identify, bounds=bounds) as (bus, client):
        await fill(bus, "team-a")
        for (method, path), needed in ACTIONS_OF.items():
            for missing in needed:
                others = [each for each in SINGLE if each != missing]
                found = await status_of(client, method, path, others)
                assert (method, path, missing, found) == (method, path, missing, 403)
            found = await status_of(client, method, path, needed)
            assert found not in {401, 403, 405, 422, 500}, (method, path, found)


ALLOWED, FOREIGN = "https://app.example.com", "https://evil.example"


async def status(client: Client, method: str, path: str, origin: str, body: JsonValue = None) -> str:
    """Return the outcome of a request as a browser sends it from a page of another site, and check what it may read."""
    headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
    async with client.stream(method, path, json=body, headers=headers) as reply:
        shared = reply.headers.get("access-control-allow-origin")
        assert (path, shared) == (path, origin if origin == ALLOWED else None)
        assert "origin" in reply.headers["vary"].lower()
        assert "access-control-allow-credentials" not in reply.headers
        if reply.status_code == 403 and not shared:
            assert '"origin_refused"' in (await reply.aread()).decode()
            return "origin refused"
        return found(reply)


@pytest.mark.full
@pytest.mark.parametrize("base_path", ["", "/lanebus"])
async def test_an_allowed_origin_gets_the_cells_of_its_token_and_another_gets_none(
    tmp_path: Path, base_path: str
) -> None:
    session = "team-a"
    async with opened(tmp_path, allowed_origins=[ALLOWED], base_path=base_path) as (bus, clients):
        for who, client in clients.items():
            for path in (*OF_NO_SESSION, CHANGES):
                wanted = "answered" if who in KNOWN else "401"
                assert (who, path, await status(client, "GET", path, ALLOWED)) == (who, path, wanted)
                assert await status(client, "GET", path, FOREIGN) == "origin refused"
            for path, cells in {**READS, STATES: READS_BOTH_LANES}.items():
                at, wanted = address(path, session), expected(who, session, cells)
                got = await status(client, "GET", at, ALLOWED)
                assert (who, at, got) == (who, at, "204" if path == RESUME and got == "204" else wanted)
                assert await status(client, "GET", at, FOREIGN) == "origin refused"
            for path, body, cells in (*WRITES, *((path, body, ONLY_PAGE) for path, body in UPKEEP)):
                to = AGUI.format(agent=(await bus.session(session).head()).agent) if path == AGUI else path
                asked = run_body if path == AGUI else chat_body
                sent = asked(session, who, body["do"]) if "do" in body else body
                at, before = to.format(session=session), (await bus.session(session).head()).position
                assert await status(client, "POST", at, FOREIGN, sent) == "origin refused"
                assert (await bus.session(session).head()).position == before
                got = await status(client, "POST", at, ALLOWED, sent)
                assert (who, at, body, got) == (who, at, body, expected(who, session, cells))


@pytest.mark.full
async def test_each_route_answers_the_preflight_of_an_allowed_origin_with_its_methods_and_no_other(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, allowed_origins=[ALLOWED]) as (_, clients):
        client = clients[ANONYMOUS]  # a browser sends no token with a preflight
        methods = dict[str, set[str]]()
        for each in endpoints():
            methods.setdefault(each.path, {"GET", "HEAD"}).add(each.method)
        for path, allowed in methods.items():
            names = {"session": "s1", "name": "n", "turn": "t", "agent": "a", "sha256": "0" * 64, "path": "x"}
            at = path.replace(":int", "").replace(":path", "").format(position=1, **names)
            asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
            reply = await client.options(at, headers={"Origin": ALLOWED, "Sec-Fetch-Site": "cross-site", **asked})
            assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (204, ALLOWED)
            assert {*reply.headers["access-control-allow-methods"].split(", ")} == allowed
            sent = {name.lower() for name in reply.headers["access-control-allow-headers"].split(", ")}
            assert {"authorization", "content-type", "last-event-id", "ai-sdk-version"} <= sent
            assert "access-control-allow-credentials" not in reply.headers
            for origin in (FOREIGN, "null", f"{ALLOWED}.evil.example", "http://app.example.com"):
                reply = await client.options(at, headers={"Origin": origin, **asked})
                assert reply.status_code == 403
                assert not [name for name in reply.headers if name.startswith("access-control")]
