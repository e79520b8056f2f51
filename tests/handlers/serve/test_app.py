"""The guard and the API, mostly on a real server with a free port."""

import json
import signal
import sys
from contextlib import AsyncExitStack, aclosing, suppress
from typing import cast

import anyio
import httpx2
import pytest

from lanebus import Bus, Cursor, Delta, ExtensionMessage, Session, UserMessage
from lanebus.agent import AgentLoop
from lanebus.handlers.providers import Piece
from lanebus.handlers.serve import PortInUse, serve
from lanebus.handlers.serve.errors import AddressRefused
from tests.support.agent.agents import Pause, ScriptedModel, answer, said, take_run
from tests.support.log.groups import works
from tests.support.page.serving import TOKEN, client_of, serving, temporary_dir
from tests.support.paths import ROOT
from tests.support.serve import (
    BEARER,
    DEFAULT_UI_BOUNDS,
    HOST,
    Client,
    UiBounds,
    api,
    client_at,
    connected,
    create_app,
    error_of,
    head_of,
    local_hosts,
    read_to_end,
    visitor,
)
from tests.support.servers.real import eventually

PROBLEM = {"type", "title", "status", "detail", "error"}
NO_JSON = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx")
SECURITY = {"content-security-policy", "x-content-type-options", "referrer-policy", "cache-control"}


@pytest.fixture
def page(bus: Bus) -> Client:
    """A client that calls the application without a server, for responses that end."""
    return visitor(create_app(bus, token=TOKEN, allowed_hosts=local_hosts(8420)), **BEARER)


# --- every response -----------------------------------------------------------------------------------------------


async def test_every_response_has_the_security_headers_and_every_refusal_is_a_problem(page: Client) -> None:
    kept = {"/": 200, "/static/styles/base.css": 200}
    got = {
        "/static/none.js": 404,
        "/api/sessions": 200,
        "/api/sessions/a%20b": 400,
        "/api/sessions/s1/events?after=x": 400,
    }
    replies = {await page.get(path): status for path, status in (kept | got).items()}
    messages = "/api/sessions/s1/messages"
    replies |= {
        await page.delete("/api/sessions"): 405,
        **{await page.post(messages, content=b"x", headers={"Content-Type": kind}): 415 for kind in NO_JSON},
        await page.post(messages, json={"text": ""}): 400,
        await page.get("/", headers={"Host": "evil"}): 403,
        await page.get("/api/sessions", headers={"Authorization": ""}): 401,
    }
    for at, (reply, status) in enumerate(replies.items()):
        assert reply.status_code == status
        assert set(reply.headers) >= SECURITY
        assert reply.headers["x-content-type-options"] == "nosniff"
        # Nothing that a token guards is kept.
        assert reply.headers["cache-control"] == ("no-cache" if at < len(kept) else "no-store")
        if status >= 400:
            problem = reply.json()
            assert reply.headers["content-type"] == "application/problem+json"
            assert (set(problem), problem["status"]) == (PROBLEM, status)
    policy_text = next(iter(replies)).headers["content-security-policy"]
    policy = dict(part.split(" ", 1) for part in policy_text.split("; "))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in policy_text
    assert policy["script-src"].startswith("'self' 'sha256-")


async def test_an_unexpected_error_reveals_nothing_and_has_the_security_headers(
    page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Bus, session_id: str) -> Session:
        raise RuntimeError(f"secret-{session_id}")

    monkeypatch.setattr(Bus, "session", broken)
    reply = await page.get("/api/sessions/canary")
    assert error_of(reply) == (500, "internal")
    assert "canary" not in reply.text
    assert set(reply.headers) >= SECURITY


async def test_files_of_the_page_are_zipped_for_clients_that_take_it(page: Client) -> None:
    for accepted, coding in (("gzip, br", "gzip"), ("GZIP;q=0.5", "gzip"), ("gzip; q=0", None), ("br", None)):
        reply = await page.get("/static/app/main.js", headers={"Accept-Encoding": accepted})
        assert (reply.headers.get("content-encoding"), reply.headers["vary"]) == (coding, "Accept-Encoding, Origin")
        assert "render(" in reply.text


@pytest.mark.parametrize("path", ["/", "/static/app/main.js", "/favicon.ico"])
@pytest.mark.parametrize("coding", ["gzip", "identity"])
async def test_a_file_of_the_page_that_a_client_has_is_not_sent_again(page: Client, path: str, coding: str) -> None:
    page.headers["Accept-Encoding"] = coding
    whole = await page.get(path)
    tag = whole.headers["etag"]
    for named in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        reply = await page.get(path, headers={"If-None-Match": named})
        assert (reply.status_code, reply.content, reply.headers["etag"]) == (304, b"", tag)
        kept = ("cache-control", "vary", "content-security-policy")
        assert [reply.headers[name] for name in kept] == [whole.headers[name] for name in kept]
    for named in ('"other"', tag[:-2], ""):
        reply = await page.get(path, headers={"If-None-Match": named})
        assert (reply.status_code, reply.content) == (200, whole.content)


async def test_no_path_leads_outside_the_static_files(page: Client) -> None:
    paths = ["../app.py", "%2e%2e/app.py", "..%2f..%2fapp.py", "app/../../app.py", "", "vendor", "/etc/passwd"]
    assert [(await page.get(f"http://{HOST}/static/{path}")).status_code for path in paths] == [404] * len(paths)


# --- requests -----------------------------------------------------------------------------------------------------

SESSION_ROUTES = ["", "/entries", f"/entries/1/media/{'0' * 64}", "/events", "/status", "/call", "/turns", "/usage"]


async def test_an_invalid_session_id_is_refused_on_every_route(page: Client) -> None:
    wrong = ["*", "a b", "a..b", "a%00b", "a" * 65, "é", "a:b", "{x}", "s1%0d%0aX", "s1%3Fx"]
    paths = [f"/api/sessions/{session}" for session in wrong]
    replies = [await page.get(path + route) for path in paths for route in SESSION_ROUTES]
    replies += [await page.post(f"{path}/messages", json={"text": "hi"}) for path in paths]
    replies += [await page.post(f"{path}/commands", json={"command": "abort"}) for path in paths]
    assert [reply.json()["error"] for reply in replies] == ["invalid_session_id"] * len(replies)
    assert {reply.status_code for reply in replies} == {400}
    assert (await page.get("/api/sessions")).json()["count"] == 0


async def test_a_malformed_cursor_is_refused_before_the_stream_starts(page: Client) -> None:
    cursors = ["x", "-1", "1-", "1-x", "1.5", "1-2-3", "1 2", "٣", "9" * 19, "$", "0x1"]
    path = "/api/sessions/s1/events"
    replies = [await page.get(path, params={"after": cursor}) for cursor in cursors]
    replies += [await page.get(path, headers=[(b"Last-Event-ID", cursor.encode())]) for cursor in cursors]
    assert {error_of(reply) for reply in replies} == {(400, "invalid_cursor")}


NO_MESSAGES = [
    *(b"", b"{", b"[]", b'"hi"', b"{}", b'{"text":1}', b'{"text":""}', b'{"text":" \\n"}', b'{"text":null}', b"\xff"),
    *(b'{"text":"a","text":"b"}', b'{"text":"a","role":"system"}', b'{"text":"\\ud800"}', b'{"text":"a","key":""}'),
    *(b'{"text":"a","key":7}', b'{"text":"a","key":"a\\nb"}', b'{"text":"a","key":"' + b"k" * 201 + b'"}', b"[" * 9999),
]


async def test_a_body_that_is_no_message_is_refused_and_nothing_is_published(page: Client) -> None:
    page.headers["Content-Type"] = "application/json"
    replies = [await page.post("/api/sessions/s1/messages", content=body) for body in NO_MESSAGES]
    assert {error_of(reply) for reply in replies} == {(400, "decode_error")}
    assert (await page.get("/api/sessions")).json()["count"] == 0


async def test_a_body_at_the_limit_is_accepted_and_a_larger_or_endless_one_refused(bus: Bus, client: Client) -> None:
    most, path, kind = DEFAULT_UI_BOUNDS.body_bytes, "/api/sessions/s1/messages", {"Content-Type": "application/json"}
    for size, status in ((most, 201), (most + 1, 413)):
        reply = await client.post(path, content=b'{"text":"' + b"x" * (size - 11) + b'"}', headers=kind)
        assert reply.status_code == status
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    head = head_of(client, f"POST {path}", "Content-Type: application/json", "Transfer-Encoding: chunked")
    async with connected(client, head) as stream:
        for _ in range(most // 0x10000 + 1):
            await stream.send(chunk)
        with anyio.fail_after(120):
            assert (await stream.receive()).startswith(b"HTTP/1.1 413 ")
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                while True:
                    await stream.send(chunk)
    assert (await bus.session("s1").head()).position == 1


async def test_a_posted_message_is_in_the_log_and_the_list_and_wakes_a_worker(bus: Bus, client: Client) -> None:
    for status, is_duplicate in ((201, False), (200, True)):
        reply = await client.post("/api/sessions/s1/messages", json={"text": "What is 17 × 23?", "key": "k1"})
        assert (reply.status_code, reply.json()) == (status, {"positions": [1], "duplicate": is_duplicate})
    (message,) = [envelope.message async for envelope in bus.session("s1").read()]
    assert isinstance(message, UserMessage)
    assert (message.text_content(), (message.metadata or {})["lanebus.by"]) == ("What is 17 × 23?", "page")
    (head,) = (await client.get("/api/sessions")).json()["sessions"]
    assert (head["id"], head["position"], head["isClosed"]) == ("s1", 1, False)
    async with aclosing(works(bus.consumer("agents", "w1"))) as given:
        with anyio.fail_after(120):
            work = await anext(given)
    assert (work.session, work.position) == ("s1", 1)


async def test_an_erased_session_is_an_error_and_not_an_empty_session(bus: Bus, page: Client) -> None:
    await bus.session("s").publish(UserMessage.text("a"))
    await bus.session("s").erase()
    for path in ("", "/entries", "/turns", "/usage"):
        assert error_of(await page.get(f"/api/sessions/s{path}")) == (409, "session_erased"), path


# --- the stream ---------------------------------------------------------------------------------------------------

EVENTS = "/api/sessions/s1/events?lanes=all"
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


async def test_a_subscriber_gets_both_lanes_and_live_deltas_with_their_cursors(bus: Bus, client: Client) -> None:
    session = bus.session("s1")
    await session.publish(UserMessage.text("line\r\n\u2028\0 end"), ExtensionMessage.of("progress", {"percent": 40}))
    async with client.sse(EVENTS) as source:
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


async def test_a_client_that_joins_or_resumes_within_a_message_gets_its_text_once(bus: Bus, client: Client) -> None:
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
    async with client.sse(f"{EVENTS}&after=2") as source:  # as a client that joins now
        _, ids = await text_of(source, "", "Hello you ")
    assert [id.partition(".")[0] for id in ids] == ["2-0", "2-1"]
    await session.preview(of_m1("there"))
    for id, start in zip(ids, ("Hello ", "Hello you "), strict=True):
        async with client.sse(EVENTS, headers={"Last-Event-ID": id}) as source:
            await text_of(source, start, "Hello you there")


async def test_the_last_event_id_overrides_the_cursor_of_the_url(bus: Bus, client: Client) -> None:
    await bus.session("s1").publish(*(ExtensionMessage.of("tick", number) for number in range(1, 6)))
    async with client.sse(f"{EVENTS}&after=1") as source:
        assert [place(id) for _, id, _ in await Reader(source).take(4)] == ["2-0", "3-0", "4-0", "5-0"]
    async with client.sse(f"{EVENTS}&after=1", headers={"Last-Event-ID": "3-0"}) as source:
        assert [place(id) for _, id, _ in await Reader(source).take(2)] == ["4-0", "5-0"]


async def test_a_trimmed_cursor_gives_a_gap_frame_and_the_remaining_entries(bus: Bus, client: Client) -> None:
    session = bus.session("s1")
    await session.publish(*(ExtensionMessage.of("tick", number) for number in range(1, 6)))
    await session.trim(4, force=True)
    async with client.sse(f"{EVENTS}&after=1") as source:
        assert source.response.status_code == 200
        gap, *rest = await Reader(source).take(3)
    cursor = (await session.head()).cursor_at(3)
    assert gap == ("gap", str(cursor), {"session": "s1", "after": "1-0", "firstKept": 4})
    assert cursor.incarnation
    assert [(name, place(id)) for name, id, _ in rest] == [("entry", "4-0"), ("entry", "5-0")]


async def test_a_cursor_beyond_the_log_gives_a_rolledback_frame_to_continue_from(bus: Bus, client: Client) -> None:
    await bus.session("s1").publish(ExtensionMessage.of("tick", 1), ExtensionMessage.of("tick", 2))
    cursor = (await bus.session("s1").head()).cursor
    async with client.sse(f"{EVENTS}&after=7") as source:
        (frame,) = await Reader(source).take(1)
    assert frame == ("rolledback", str(cursor), {"session": "s1", "seen": 7, "found": 2})
    assert cursor.incarnation
    async with client.sse(EVENTS, headers={"Last-Event-ID": "2-0.another"}) as source:
        ((name, id, data),) = await Reader(source).take(1)
    assert (name, id, data) == ("rolledback", "0-0", {"session": "s1", "seen": 2, "found": 0})
    async with client.sse(EVENTS, headers={"Last-Event-ID": id}) as source:
        assert [place(id) for _, id, _ in await Reader(source).take(2)] == ["1-0", "2-0"]


async def test_a_stream_reports_caught_up_closed_and_reopened(bus: Bus, client: Client) -> None:
    session = bus.session("s1")
    await session.publish(UserMessage.text("a"))
    async with client.sse(EVENTS) as source:
        reader = Reader(source, notices=True)
        begin = await reader.take(2)
        await session.close()
        closed = await reader.take(2)
        await session.reopen()
        opened = await reader.take(2)
    names = [name for name, _, _ in begin + closed + opened]
    assert names == ["entry", "caughtup", "entry", "closed", "reopened", "entry"]
    assert all(frame == {"session": "s1"} for name, _, frame in begin + closed + opened if name in NOTICES)
    ids = [id for _, id, _ in begin + closed + opened]
    assert [place(id) for id in ids] == ["1-0", "1-0", "2-0", "2-0", "2-0", "3-0"]
    assert {Cursor.parse(id).incarnation for id in ids} == {(await session.head()).cursor.incarnation}
    async with client.sse(EVENTS, headers={"Last-Event-ID": ids[2]}) as source:
        again = await Reader(source, notices=True).take(2)
    assert [(name, id) for name, id, _ in again] == [("entry", ids[5]), ("caughtup", ids[5])]


async def test_a_client_that_disconnects_leaves_no_tasks(bus: Bus, client: Client) -> None:
    await bus.session("s1").publish(ExtensionMessage.of("tick"))
    before = len(anyio.get_running_tasks())
    for _ in range(5):
        async with client.sse(EVENTS) as source:
            await Reader(source).take(1)
    await client.aclose()
    await eventually(lambda: len(anyio.get_running_tasks()) <= before)


async def test_a_client_that_disconnects_during_an_answer_cancels_nothing(bus: Bus, client: Client) -> None:
    stop = Pause()
    loop = AgentLoop(ScriptedModel([Piece("text", "As I "), stop, *answer("was saying.")]))
    session = bus.session("s1")
    await session.publish(UserMessage.text("hello?"))
    async with anyio.create_task_group() as tasks:
        async with client.sse(EVENTS) as source:
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


async def test_an_idle_stream_sends_heartbeats() -> None:
    async with (
        api(bounds=UiBounds(heartbeat_seconds=0.01)) as (_, client),
        connected(client, head_of(client, "GET /api/sessions/s1/events")) as stream,
    ):
        received = b""
        with anyio.fail_after(120):
            while received.count(b": hb\n\n") < 3:
                received += await stream.receive()
    assert received.count(b"retry: 2000\n") == 1


async def test_a_client_that_accepts_no_data_is_disconnected() -> None:
    async with api(bounds=UiBounds(send_seconds=0.1)) as (bus, client):
        for number in range(40):
            await bus.session("s1").publish(ExtensionMessage.of("big", {"number": number, "text": "x" * 500_000}))
        before = len(anyio.get_running_tasks())
        async with connected(client, head_of(client, "GET /api/sessions/s1/events")) as stream:
            while b"text/event-stream" not in await stream.receive():
                pass
            await eventually(lambda: len(anyio.get_running_tasks()) <= before)
            assert len(await read_to_end(stream)) < 40 * 500_000


# --- starting and ending ------------------------------------------------------------------------------------------


async def test_a_port_in_use_and_an_address_of_another_machine_are_errors_that_name_them(bus: Bus) -> None:
    async with serving(bus) as served:
        with pytest.raises(PortInUse, match=f"127.0.0.1:{served.port} is in use"):
            await serve(bus, port=served.port)
    with pytest.raises(AddressRefused, match=r"192\.0\.2\.1"):
        await serve(bus, host="192.0.2.1", port=0)


async def test_open_streams_get_a_bye_frame_when_the_server_ends_and_its_port_is_free_again(bus: Bus) -> None:
    async with AsyncExitStack() as stack:
        async with serving(bus) as served:
            client = await stack.enter_async_context(client_of(served))
            sources = [await stack.enter_async_context(client.sse(EVENTS)) for _ in range(5)]
        # The server has ended, but its last frames are still in the sockets.
        assert [(await Reader(source).take(1))[0][0] for source in sources] == ["bye"] * 5
        with pytest.raises(httpx2.ConnectError):
            await client.get("/")
    async with serving(bus, port=served.port) as again, client_of(again) as client:
        assert (await client.get("/api/sessions")).status_code == 200


CLI = """
import sys, anyio
from pathlib import Path
from lanebus import Bus
from lanebus.handlers.serve import serve

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
    async with (
        temporary_dir() as folder,
        await anyio.open_process([sys.executable, "-c", CLI, str(folder)], cwd=ROOT, stderr=None) as process,
    ):
        assert process.stdout is not None
        with anyio.fail_after(120):
            url = (await process.stdout.receive()).decode().partition("/#")[0]
            async with client_at(url) as client, client.sse(EVENTS) as source:
                process.send_signal(signal.SIGINT)
                assert (await Reader(source).take(1))[0][0] == "bye"
            assert await process.wait() == 130
