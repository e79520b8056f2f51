"""The guard and the API, mostly on a real server with a free port."""

import json
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import NoReturn, cast

import anyio
import httpx2
import pytest
from anyio.abc import ByteStream
from starlette.applications import Starlette

from lanebus import START, Bus, Cursor, Delta, ExtensionMessage, Session, UserMessage
from lanebus.agent import AgentLoop
from lanebus.bus import open_server
from lanebus.bus.errors import (
    BusError,
    Closed,
    Conflict,
    InvalidCursor,
    MessageTooLarge,
    OutcomeUnknown,
    SessionClosed,
    Unavailable,
)
from lanebus.bus.wire import Keys
from lanebus.bus.wire.keys import BUCKETS
from lanebus.handlers.providers import Piece
from lanebus.handlers.serve import PortInUse, serve
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.serve.budget import ByteBudget
from lanebus.handlers.serve.errors import AddressRefused
from lanebus.handlers.serve.frames import session_frames
from lanebus.handlers.serve.guard import local_hosts
from lanebus.handlers.serve.replies import status_of
from lanebus.handlers.serve.server import create_app
from lanebus.handlers.serve.transfer import History
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer, said, take_run
from tests.support.log.groups import works
from tests.support.page.serving import TOKEN, client_of, serving, temporary_bus, temporary_dir
from tests.support.paths import ROOT
from tests.support.servers.real import eventually
from tests.support.servers.resp import Resp

HOST = "127.0.0.1:8420"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PROBLEM = {"type", "title", "status", "detail", "error"}
SECURITY = {"content-security-policy", "x-content-type-options", "referrer-policy", "cache-control"}


@asynccontextmanager
async def opened(**headers: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client that calls the application without a server, for responses that end."""
    async with temporary_bus() as bus:
        app = create_app(bus, token=TOKEN, allowed_hosts=local_hosts(8420))
        async with visitor(app, **BEARER, **headers) as client:
            yield client


def visitor(app: Starlette, **headers: str) -> httpx2.AsyncClient:
    """A client that sends these headers in addition to its own."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=headers)


# --- every response -----------------------------------------------------------------------------------------------


async def test_every_response_has_the_security_headers() -> None:
    async with opened() as client:
        replies = [
            await client.get("/"),
            await client.get("/static/styles/base.css"),
            await client.get("/static/none.js"),
            await client.get("/api/sessions"),
            await client.get("/api/sessions/a%20b"),
            await client.get("/api/sessions/s1/events?after=x"),
            await client.delete("/api/sessions"),
            await client.post("/api/sessions/s1/messages", content=b"x"),
            await client.post("/api/sessions/s1/messages", json={"text": ""}),
            await client.get("/", headers={"Host": "evil"}),
            await client.get("/api/sessions", headers={"Authorization": ""}),
        ]
    assert [reply.status_code for reply in replies] == [200, 200, 404, 200, 400, 400, 405, 415, 400, 403, 401]
    for reply in replies:
        if reply.status_code >= 400:
            problem = reply.json()
            assert reply.headers["content-type"] == "application/problem+json"
            assert (set(problem), problem["status"]) == (PROBLEM, reply.status_code)
        assert set(reply.headers) >= SECURITY
    caching = [reply.headers["cache-control"] for reply in replies]
    assert caching == [
        "no-cache",
        "no-cache",
        *["no-store"] * (len(replies) - 2),
    ]  # nothing that a token guards is kept
    for reply in replies:
        assert reply.headers["x-content-type-options"] == "nosniff"
    policy = dict(part.split(" ", 1) for part in replies[0].headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in replies[0].headers["content-security-policy"]
    assert policy["script-src"].startswith("'self' 'sha256-")


async def test_an_unexpected_error_reveals_nothing_and_has_the_security_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: Bus, session_id: str) -> Session:
        raise RuntimeError(f"secret-{session_id}")

    async with temporary_bus() as bus:
        app = create_app(bus, token=TOKEN, allowed_hosts=local_hosts(8420))
        monkeypatch.setattr(Bus, "session", broken)
        async with visitor(app, **BEARER) as client:
            reply = await client.get("/api/sessions/canary")
    assert (reply.status_code, reply.json()["error"]) == (500, "internal")
    assert "canary" not in reply.text
    assert set(reply.headers) >= SECURITY


async def test_files_of_the_page_are_zipped_for_clients_that_take_it() -> None:
    async with opened() as client:
        for accepted, coding in (("gzip, br", "gzip"), ("GZIP;q=0.5", "gzip"), ("gzip; q=0", None), ("br", None)):
            reply = await client.get("/static/app/main.js", headers={"Accept-Encoding": accepted})
            assert (reply.headers.get("content-encoding"), reply.headers["vary"]) == (coding, "Accept-Encoding, Origin")
            assert "render(" in reply.text


@pytest.mark.parametrize("path", ["/", "/static/app/main.js", "/favicon.ico"])
@pytest.mark.parametrize("coding", ["gzip", "identity"])
async def test_a_file_of_the_page_that_a_client_has_is_not_sent_again(path: str, coding: str) -> None:
    async with opened(**{"Accept-Encoding": coding}) as client:
        whole = await client.get(path)
        tag = whole.headers["etag"]
        for named in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
            reply = await client.get(path, headers={"If-None-Match": named})
            assert (reply.status_code, reply.content, reply.headers["etag"]) == (304, b"", tag)
            kept = ("cache-control", "vary", "content-security-policy")
            assert [reply.headers[name] for name in kept] == [whole.headers[name] for name in kept]
        for named in ('"other"', tag[:-2], ""):
            reply = await client.get(path, headers={"If-None-Match": named})
            assert (reply.status_code, reply.content) == (200, whole.content)


async def test_no_path_leads_outside_the_static_files() -> None:
    paths = ["../app.py", "%2e%2e/app.py", "..%2f..%2fapp.py", "app/../../app.py", "", "vendor", "/etc/passwd"]
    async with opened() as client:
        assert [(await client.get(f"http://{HOST}/static/{path}")).status_code for path in paths] == [404] * len(paths)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidCursor("x"), 400),
        (MessageTooLarge(2, 1), 413),
        (Conflict("s", 1, 2), 409),
        (SessionClosed("s"), 409),
        (OutcomeUnknown("s", 10), 504),
        (Unavailable("gone"), 503),
        (Closed("bus"), 503),
        (BusError("what"), 500),
    ],
)
def test_each_branch_of_errors_has_its_http_status(error: BusError, status: int) -> None:
    assert status_of(error) == status


# --- requests -----------------------------------------------------------------------------------------------------

SESSION_ROUTES = ["", "/entries", f"/entries/1/media/{'0' * 64}", "/events", "/status", "/call", "/turns", "/usage"]


async def test_an_invalid_session_id_is_refused_on_every_route() -> None:
    wrong = ["*", "a b", "a..b", "a%00b", "a" * 65, "é", "a:b", "{x}", "s1%0d%0aX", "s1%3Fx"]
    async with opened() as client:
        paths = [f"/api/sessions/{session}" for session in wrong]
        replies = [await client.get(path + route) for path in paths for route in SESSION_ROUTES]
        replies += [await client.post(f"{path}/messages", json={"text": "hi"}) for path in paths]
        replies += [await client.post(f"{path}/commands", json={"command": "abort"}) for path in paths]
        assert [reply.json()["error"] for reply in replies] == ["invalid_session_id"] * len(replies)
        assert {reply.status_code for reply in replies} == {400}
        assert (await client.get("/api/sessions")).json()["count"] == 0


async def test_a_malformed_cursor_is_refused_before_the_stream_starts() -> None:
    cursors = ["x", "-1", "1-", "1-x", "1.5", "1-2-3", "1 2", "٣", "9" * 19, "$", "0x1"]
    path = "/api/sessions/s1/events"
    async with opened() as client:
        replies = [await client.get(path, params={"after": cursor}) for cursor in cursors]
        replies += [await client.get(path, headers=[(b"Last-Event-ID", cursor.encode())]) for cursor in cursors]
    assert {(reply.status_code, reply.json()["error"]) for reply in replies} == {(400, "invalid_cursor")}


NO_MESSAGES = [
    *(b"", b"{", b"[]", b'"hi"', b"{}", b'{"text":1}', b'{"text":""}', b'{"text":" \\n"}', b'{"text":null}', b"\xff"),
    *(b'{"text":"a","text":"b"}', b'{"text":"a","role":"system"}', b'{"text":"\\ud800"}', b'{"text":"a","key":""}'),
    *(b'{"text":"a","key":7}', b'{"text":"a","key":"a\\nb"}', b'{"text":"a","key":"' + b"k" * 201 + b'"}', b"[" * 9999),
]


async def test_a_body_that_is_no_message_is_refused_and_nothing_is_published() -> None:
    async with opened(**{"Content-Type": "application/json"}) as client:
        replies = [await client.post("/api/sessions/s1/messages", content=body) for body in NO_MESSAGES]
        assert {(reply.status_code, reply.json()["error"]) for reply in replies} == {(400, "decode_error")}
        assert (await client.get("/api/sessions")).json()["count"] == 0


async def test_a_body_without_the_json_content_type_is_refused() -> None:
    kinds = ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"]
    async with opened() as client:
        for kind in kinds:
            headers = {"Content-Type": kind}
            reply = await client.post("/api/sessions/s1/messages", content=b'{"text":"hi"}', headers=headers)
            assert reply.status_code == 415


async def test_a_body_at_the_limit_is_accepted_and_one_byte_more_is_refused() -> None:
    def body(size: int) -> bytes:
        return b'{"text":"' + b"x" * (size - 11) + b'"}'

    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        path, kind = "/api/sessions/s1/messages", {"Content-Type": "application/json"}
        taken = await client.post(path, content=body(DEFAULT_UI_BOUNDS.body_bytes), headers=kind)
        refused = await client.post(path, content=body(DEFAULT_UI_BOUNDS.body_bytes + 1), headers=kind)
        assert (taken.status_code, refused.status_code) == (201, 413)
        assert (await bus.session("s1").head()).position == 1


async def test_an_endless_body_is_refused_at_the_limit() -> None:
    async with temporary_bus() as bus, serving(bus) as served:
        head = (
            f"POST /api/sessions/s1/messages HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            await stream.send(head.encode())
            for _ in range(DEFAULT_UI_BOUNDS.body_bytes // 0x10000 + 1):
                await stream.send(chunk)
            with anyio.fail_after(120):
                assert (await stream.receive()).startswith(b"HTTP/1.1 413 ")
            with anyio.fail_after(120), pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
                await _send_for_ever(stream, chunk)
        assert (await bus.session("s1").head()).position == 0


async def _send_for_ever(stream: ByteStream, chunk: bytes) -> NoReturn:
    while True:
        await stream.send(chunk)


async def test_a_message_posted_twice_with_its_key_is_published_once() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        first = await client.post("/api/sessions/s1/messages", json={"text": "What is 17 × 23?", "key": "k1"})
        again = await client.post("/api/sessions/s1/messages", json={"text": "What is 17 × 23?", "key": "k1"})
        other = await client.post("/api/sessions/s1/messages", json={"text": "And 2 × 2?"})
        assert (first.status_code, first.json()) == (201, {"positions": [1], "duplicate": False})
        assert (again.status_code, again.json()) == (200, {"positions": [1], "duplicate": True})
        assert other.json()["positions"] == [2]
        said = [envelope.message async for envelope in bus.session("s1").read()]
        assert [m.text_content() for m in said if isinstance(m, UserMessage)] == ["What is 17 × 23?", "And 2 × 2?"]
        (head,) = (await client.get("/api/sessions")).json()["sessions"]
        assert (head["id"], head["position"], head["isClosed"]) == ("s1", 2, False)


async def test_the_head_of_a_fork_names_its_origin() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await client.post("/api/sessions/s1/messages", json={"text": "What is 17 × 23?"})
        await bus.session("s1").fork(id="s2")
        heads = {head["id"]: head for head in (await client.get("/api/sessions")).json()["sessions"]}
        assert (heads["s1"]["origin"], heads["s2"]["origin"]) == (None, {"session": "s1", "position": 1})
        entries = (await client.get("/api/sessions/s2/entries")).json()["entries"]
        assert [entry["position"] for entry in entries] == [1]


async def test_a_posted_message_wakes_a_worker() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await client.post("/api/sessions/s1/messages", json={"text": "hi"})
        async with aclosing(works(bus.consumer("agents", "w1"))) as given:
            with anyio.fail_after(120):
                work = await anext(given)
        assert (work.session, work.position) == ("s1", 1)


async def test_entries_between_two_cursors_are_returned() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await bus.session("s1").publish(*(ExtensionMessage.of("tick", number) for number in range(1, 1201)))
        some = (await client.get("/api/sessions/s1/entries?after=10&until=12")).json()["entries"]
        assert [(entry["position"], entry["message"]["data"]) for entry in some] == [(11, 11), (12, 12)]
        most = (await client.get("/api/sessions/s1/entries?until=5000")).json()["entries"]
        assert [entry["position"] for entry in most] == list(range(1, 1001))


# --- the stream ---------------------------------------------------------------------------------------------------


NOTICES = frozenset({"caughtup", "fellbehind", "closed", "reopened"})


def place(id: str) -> str:
    """The id of a frame, without the incarnation of the log."""
    return id.partition(".")[0]


class Reader:
    """Reads a subscriber's frames as (event, id, data). Leaves out notices by default."""

    def __init__(self, source: httpx2.EventSource, *, notices: bool = False) -> None:
        self._events, self._left_out = aiter(source), frozenset[str]() if notices else NOTICES

    async def take(self, count: int) -> list[tuple[str, str, dict[str, object]]]:
        found: list[tuple[str, str, dict[str, object]]] = []
        with anyio.fail_after(120):
            while len(found) < count:
                event = await anext(self._events)
                if event.event not in self._left_out:
                    found.append((event.event, event.id, json.loads(event.data)))
        return found


async def test_a_subscriber_gets_both_lanes_and_live_deltas_with_their_cursors() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        session = bus.session("s1")
        await session.publish(
            UserMessage.text("line\r\n\u2028\0 end"), ExtensionMessage.of("progress", {"percent": 40})
        )
        async with client.sse("/api/sessions/s1/events?lanes=all") as source:
            assert source.response.headers["content-type"].startswith("text/event-stream")
            assert source.response.headers["x-accel-buffering"] == "no"
            assert set(source.response.headers) >= SECURITY
            reader = Reader(source, notices=True)
            *history, caught_up = await reader.take(3)
            assert caught_up[0] == "caughtup"  # a client that joins within a message gets one delta with all its text
            await session.preview(
                Delta(kind="text", message_id="m1", delta="Hel"), Delta(kind="text", message_id="m1", delta="lo")
            )
            live = await reader.take(2)
            await session.publish(ExtensionMessage.of("done"))
            after = await reader.take(1)
    assert [(name, place(id)) for name, id, _ in history + live + after] == [
        *(("entry", "1-0"), ("entry", "2-0"), ("delta", "2-1"), ("delta", "2-2"), ("entry", "3-0"))
    ]
    assert set(history[0][2]) == {"position", "delta", "cursor", "lane", "time", "producer", "message"}
    assert [frame["lane"] for _, _, frame in history] == ["llm", "extension"]
    message = history[0][2]["message"]
    assert isinstance(message, dict)
    assert message["content"] == [{"type": "text", "text": "line\r\n\u2028\0 end"}]


async def test_a_client_that_joins_or_resumes_within_a_message_gets_its_text_once() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        session = bus.session("s1")

        def of_m1(text: str) -> Delta:
            return Delta(kind="text", message_id="m1", delta=text)

        async def text_of(source: httpx2.EventSource, start: str, whole: str) -> tuple[str, list[str]]:
            """Read until a client that has `start` has `whole`. Return its text, and the ids of the frames."""
            text, ids, reader = start, list[str](), Reader(source)
            while text != whole:
                ((name, id, frame),) = await reader.take(1)
                delta = cast("dict[str, str | bool]", frame["message"])
                assert name == "delta"
                text = ("" if delta.get("isSnapshot") else text) + str(delta["delta"])
                ids.append(id)
            return text, ids

        await session.publish(UserMessage.text("hi"))
        await session.preview(of_m1("Hel"), of_m1("lo "))
        await session.publish(ExtensionMessage.of("progress"))
        await session.preview(of_m1("you "))
        async with client.sse("/api/sessions/s1/events?lanes=all&after=2") as source:  # as a client that joins now
            _, ids = await text_of(source, "", "Hello you ")
        assert [id.partition(".")[0] for id in ids] == ["2-0", "2-1"]
        await session.preview(of_m1("there"))
        for id, start in zip(ids, ("Hello ", "Hello you "), strict=True):
            async with client.sse("/api/sessions/s1/events?lanes=all", headers={"Last-Event-ID": id}) as source:
                await text_of(source, start, "Hello you there")


async def test_the_last_event_id_overrides_the_cursor_of_the_url() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await bus.session("s1").publish(*(ExtensionMessage.of("tick", number) for number in range(1, 6)))
        async with client.sse("/api/sessions/s1/events?lanes=all&after=1") as source:
            assert [place(id) for _, id, _ in await Reader(source).take(4)] == ["2-0", "3-0", "4-0", "5-0"]
        async with client.sse("/api/sessions/s1/events?lanes=all&after=1", headers={"Last-Event-ID": "3-0"}) as source:
            assert [place(id) for _, id, _ in await Reader(source).take(2)] == ["4-0", "5-0"]


async def test_a_trimmed_cursor_gives_a_gap_frame_and_the_remaining_entries() -> None:
    async with (
        temporary_dir() as folder,
        open_server(folder) as embedded,
        Bus.open(data_dir=folder) as bus,
        serving(bus) as served,
        client_of(served) as client,
    ):
        await bus.session("s1").publish(*(ExtensionMessage.of("tick", number) for number in range(1, 6)))
        with Resp(embedded.socket) as server:
            server("HSET", Keys("lanebus", BUCKETS).head("s1"), "trimmed", "3")
        async with client.sse("/api/sessions/s1/events?lanes=all&after=1") as source:
            assert source.response.status_code == 200
            gap, *rest = await Reader(source).take(3)
            head = await bus.session("s1").head()
        assert gap == ("gap", str(head.cursor_at(3)), {"session": "s1", "after": "1-0", "firstKept": 4})
        assert head.cursor_at(3).incarnation
        assert [(name, place(id)) for name, id, _ in rest] == [("entry", "4-0"), ("entry", "5-0")]


async def test_a_cursor_beyond_the_log_gives_a_rolledback_frame() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await bus.session("s1").publish(ExtensionMessage.of("tick"))
        async with client.sse("/api/sessions/s1/events?lanes=all&after=7") as source:
            (frame,) = await Reader(source).take(1)
        cursor = (await bus.session("s1").head()).cursor
        assert frame == ("rolledback", str(cursor), {"session": "s1", "seen": 7, "found": 1})
        assert cursor.incarnation


async def test_a_client_can_continue_after_the_id_of_a_rolledback_frame() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await bus.session("s1").publish(ExtensionMessage.of("tick", 1), ExtensionMessage.of("tick", 2))
        path = "/api/sessions/s1/events"
        async with client.sse(path, headers={"Last-Event-ID": "2-0.another"}) as source:
            ((name, id, data),) = await Reader(source).take(1)
        assert (name, id, data) == ("rolledback", "0-0", {"session": "s1", "seen": 2, "found": 0})
        async with client.sse(path, headers={"Last-Event-ID": id}) as source:
            assert [place(id) for _, id, _ in await Reader(source).take(2)] == ["1-0", "2-0"]


async def test_a_stream_reports_caught_up_closed_and_reopened() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        session = bus.session("s1")
        await session.publish(UserMessage.text("a"))
        async with client.sse("/api/sessions/s1/events?lanes=all") as source:
            reader = Reader(source, notices=True)
            begin = await reader.take(2)
            await session.close()
            closed = await reader.take(2)
            await session.reopen()
            opened = await reader.take(2)
        assert [name for name, _, _ in begin + closed + opened] == [
            *("entry", "caughtup", "entry", "closed", "reopened", "entry")
        ]
        assert all(frame == {"session": "s1"} for name, _, frame in begin + closed + opened if name in NOTICES)
        ids = [id for _, id, _ in begin + closed + opened]
        assert [place(id) for id in ids] == ["1-0", "1-0", "2-0", "2-0", "2-0", "3-0"]
        assert {Cursor.parse(id).incarnation for id in ids} == {(await session.head()).cursor.incarnation}
        async with client.sse("/api/sessions/s1/events?lanes=all", headers={"Last-Event-ID": ids[2]}) as source:
            again = await Reader(source, notices=True).take(2)
        assert [(name, id) for name, id, _ in again] == [("entry", ids[5]), ("caughtup", ids[5])]


async def test_a_slow_client_gets_a_fellbehind_frame_and_loses_nothing() -> None:
    async with temporary_bus() as bus:
        session = bus.session("s1")
        await session.publish(ExtensionMessage.of("tick"))
        budget = ByteBudget()
        async with (
            budget.share(lambda: None) as share,
            aclosing(session_frames(session, START, share, History(DEFAULT_UI_BOUNDS))) as frames,
        ):
            said = [(await anext(frames)).whole for _ in range(2)]
            # One publish: entries that come one by one may be read one by one, and nothing falls behind.
            await session.publish(*[ExtensionMessage.of("big", "x" * 500_000)] * 4)
            head = (await session.head()).cursor
            with anyio.fail_after(SECONDS):
                while f"id: {head}\n".encode() not in said[-1] or b"event: caughtup" not in said[-1]:
                    said.append((await anext(frames)).whole)
    names = [re.search(rb"event: (\w+)", frame) for frame in said]
    assert [name[1].decode() for name in names if name] == [
        *("entry", "caughtup", "fellbehind", "entry", "entry", "entry", "entry", "caughtup")
    ]


async def test_open_streams_get_a_bye_frame_when_the_server_ends() -> None:
    async with temporary_bus() as bus, AsyncExitStack() as stack:
        async with serving(bus) as served:
            client = await stack.enter_async_context(client_of(served))
            sources = [
                await stack.enter_async_context(client.sse("/api/sessions/s1/events?lanes=all")) for _ in range(5)
            ]
        # The server has ended, but its last frames are still in the sockets.
        assert [(await Reader(source).take(1))[0][0] for source in sources] == ["bye"] * 5
        with pytest.raises(httpx2.ConnectError):
            await client.get("/")


async def test_a_client_that_disconnects_leaves_no_tasks() -> None:
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        await bus.session("s1").publish(ExtensionMessage.of("tick"))
        before = len(anyio.get_running_tasks())
        for _ in range(5):
            async with client.sse("/api/sessions/s1/events?lanes=all") as source:
                await Reader(source).take(1)
        await client.aclose()
        await eventually(lambda: len(anyio.get_running_tasks()) <= before)


async def test_a_client_that_disconnects_during_an_answer_cancels_nothing() -> None:
    stop = Pause()
    loop = AgentLoop(ScriptedModel([Piece("text", "As I "), stop, *answer("was saying.")]))
    async with temporary_bus() as bus, serving(bus) as served, client_of(served) as client:
        session = bus.session("s1")
        await session.publish(UserMessage.text("hello?"))
        async with anyio.create_task_group() as tasks:
            async with client.sse("/api/sessions/s1/events?lanes=all") as source:
                tasks.start_soon(loop, await take_run(session))
                await Reader(source).take(1)
                await stop.reached.wait()
            await client.aclose()
            stop.over.set()
        assert (await said(session))[-4:] == [
            "assistant stop: was saying.",
            "agent.message.ended",
            "agent.turn.ended",
            "agent.ended",
        ]


def _events_request(port: int) -> bytes:
    head = f"GET /api/sessions/s1/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    return head.encode()


async def test_responses_keep_their_bounds() -> None:
    bounds = UiBounds(page_entries=2, sessions=1, body_bytes=30, dropped_bytes=40)
    async with temporary_bus() as bus, serving(bus, bounds=bounds) as served, client_of(served) as client:
        for name in ("s1", "s2"):
            await bus.session(name).publish(*[ExtensionMessage.of("tick")] * 3)
        listed = (await client.get("/api/sessions")).json()
        assert (listed["count"], len(listed["sessions"])) == (2, 1)
        path = "/api/sessions/s1"
        assert len((await client.get(f"{path}/entries")).json()["entries"]) == 2
        assert len((await client.get(f"{path}/entries?after=2")).json()["entries"]) == 1
        assert len((await client.get(f"{path}/entries?until=1")).json()["entries"]) == 1
        assert (await client.post(f"{path}/messages", json={"text": "x" * 10})).status_code == 201
        assert (await client.post(f"{path}/messages", json={"text": "x" * 30})).status_code == 413


async def test_an_idle_stream_sends_heartbeats() -> None:
    async with temporary_bus() as bus, serving(bus, bounds=UiBounds(heartbeat_seconds=0.01)) as served:
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            await stream.send(_events_request(served.port))
            received = b""
            with anyio.fail_after(120):
                while received.count(b": hb\n\n") < 3:
                    received += await stream.receive()
        assert received.count(b"retry: 2000\n") == 1


async def test_a_client_that_accepts_no_data_is_disconnected() -> None:
    async with temporary_bus() as bus, serving(bus, bounds=UiBounds(send_seconds=0.1)) as served:
        session = bus.session("s1")
        for number in range(40):
            await session.publish(ExtensionMessage.of("big", {"number": number, "text": "x" * 500_000}))
        before = len(anyio.get_running_tasks())
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            await stream.send(_events_request(served.port))
            while b"text/event-stream" not in await stream.receive():
                pass
            await eventually(lambda: len(anyio.get_running_tasks()) <= before)
            received = 0
            with anyio.fail_after(120), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    received += len(await stream.receive())
        assert received < 40 * 500_000


# --- starting and ending ------------------------------------------------------------------------------------------


async def test_a_port_in_use_is_an_error_that_names_it() -> None:
    async with temporary_bus() as bus, serving(bus) as served:
        with pytest.raises(PortInUse, match=f"127.0.0.1:{served.port} is in use"):
            await serve(bus, port=served.port)


async def test_an_address_of_another_machine_is_refused_by_name() -> None:
    async with temporary_bus() as bus:
        with pytest.raises(AddressRefused, match=r"192\.0\.2\.1"):
            await serve(bus, host="192.0.2.1", port=0)


CLI = """
import sys, anyio
from pathlib import Path
from lanebus import Bus
from lanebus.handlers.serve.server import serve

async def main():
    async with Bus.open(data_dir=Path(sys.argv[1])) as bus:
        await serve(bus, port=0, token="start-token", on_ready=lambda url: print(url, flush=True))

try:
    anyio.run(main)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.full
async def test_ctrl_c_sends_bye_frames_and_leaves_the_exit_code_to_the_process() -> None:
    async with temporary_dir() as folder:
        command = [sys.executable, "-c", CLI, str(folder)]
        async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
            assert process.stdout is not None
            with anyio.fail_after(120):
                url = (await process.stdout.receive()).decode().partition("/#")[0]
                async with (
                    httpx2.AsyncClient(base_url=url, headers=BEARER, timeout=120) as client,
                    client.sse("/api/sessions/s1/events?lanes=all") as source,
                ):
                    process.send_signal(signal.SIGINT)
                    assert (await Reader(source).take(1))[0][0] == "bye"
                assert await process.wait() == 130


async def test_a_port_is_free_again_after_its_server_ended() -> None:
    async with temporary_bus() as bus:
        async with serving(bus) as served:
            pass
        async with serving(bus, port=served.port) as again, client_of(again) as client:
            assert (await client.get("/api/sessions")).status_code == 200


async def test_an_erased_session_is_an_error_and_not_an_empty_session() -> None:
    async with temporary_bus() as bus:
        app = create_app(bus, token=TOKEN, allowed_hosts=local_hosts(8420))
        await bus.session("s").publish(UserMessage.text("a"))
        await bus.session("s").erase()
        async with visitor(app, **BEARER) as client:
            for path in ("", "/entries", "/turns", "/usage"):
                reply = await client.get(f"/api/sessions/s{path}")
                assert (reply.status_code, reply.json()["error"]) == (409, "session_erased"), path
