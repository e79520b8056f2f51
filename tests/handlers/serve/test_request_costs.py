"""What a request costs the server: in proportion to its size, at every route and every place of a request.

The server handles all clients in one thread, so a request with a quadratic cost keeps all of them waiting. The tests
are made of the table of routes: a new route without a row fails.
"""

import gc
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import process_time
from typing import cast
from urllib.parse import quote

import anyio
import pytest
from pydantic import JsonValue
from starlette.types import ASGIApp, Message, Scope

from lanebus import AssistantMessage, Bus, TextBlock, ToolCallBlock, UserMessage
from lanebus.access import AccessBounds
from lanebus.handlers.serve import HostedApp
from lanebus.handlers.serve.api.openapi import endpoints
from lanebus.messages import TurnId
from tests.support.page.samples import begun
from tests.support.page.serving import TOKEN, temporary_bus
from tests.support.serve import UiBounds, create_app

HOST, ORIGIN, DIGEST = "bus.example.com", "https://app.example.com", "a" * 64
APPROVAL, INTERRUPT = f"s1.main.1#0@5/{DIGEST}/c1", f"s1.main.1#0/c1/{DIGEST}"
DIGITS = "9" * 5_000
BODY_BYTES = UiBounds().body_bytes - 10_000
"""the size up to which a body grows; the rest of it is the example"""

SESSION = "/api/sessions/{session}"
TURN: JsonValue = {"loopId": "s1.main.1", "turnIndex": 0}
ABOUT: dict[str, JsonValue] = {"key": "k", "turnId": "main.1#0", "toolCallId": "c1"}
INLINE: JsonValue = {"kind": "data", "data": "aGk=", "mimeType": "text/plain", "filename": "a.txt"}
UPLOADED: JsonValue = {"kind": "sha256", "sha256": DIGEST}
FILES: JsonValue = [{"type": "document", "media": INLINE}, {"type": "document", "media": UPLOADED}]
SAID: JsonValue = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
PICTURE: JsonValue = {"type": "file", "url": "https://a.b/c", "mediaType": "image/png", "filename": "a.png"}
SHOWN: JsonValue = {"id": "m2", "role": "user", "parts": [PICTURE]}
PART: JsonValue = {"state": "approval-responded", "approval": {"id": APPROVAL, "approved": False, "reason": "no"}}
ANSWERED: JsonValue = {"id": "a", "role": "assistant", "parts": [PART]}
RUN: dict[str, JsonValue] = {"threadId": "s1", "runId": "r", "messages": []}
CLIP: JsonValue = {"type": "image", "source": {"type": "url", "value": "https://a.b/c", "mimeType": "image/png"}}
TOOL_CALL: JsonValue = {"name": "read_entries", "arguments": {"session": "s1", "after": "1-0", "limit": 1}}

ROWS: Mapping[str, tuple[JsonValue, ...]] = {
    **dict.fromkeys(
        (
            *("GET /", "GET /static/{path:path}", "GET /favicon.ico", "GET /api/openapi.json", "GET /api/access"),
            *("GET /api/sessions", "GET /api/waiting", "GET /api/projections", "GET /api/events", "GET /api/changes"),
            *(f"GET {SESSION}", f"GET {SESSION}/entries", f"GET {SESSION}/events", f"GET {SESSION}/status"),
            *(f"GET {SESSION}/call", f"GET {SESSION}/usage", f"GET {SESSION}/turns", f"GET {SESSION}/timeline"),
            *(f"GET {SESSION}/turns/{{turn}}/request", f"GET {SESSION}/context", f"GET {SESSION}/dead-letters"),
            *(f"GET {SESSION}/projections/{{name}}", f"GET {SESSION}/projections/{{name}}/events"),
            *(f"GET {SESSION}/entries/{{position:int}}/media/{{sha256}}", f"GET {SESSION}/forks"),
            *(f"GET {SESSION}/uploads/{{sha256}}", f"PATCH {SESSION}/uploads/{{sha256}}"),
            *(f"DELETE {SESSION}/uploads/{{sha256}}", "GET /chat/{session}/stream", "GET /chat/{session}/messages"),
        ),
        (),
    ),
    f"POST {SESSION}/messages": (
        {"text": "hi", "key": "k1", "agent": "agent", "expected": "1-0"},
        {"content": [{"type": "text", "text": "hi"}], "followUp": True},
        {"content": FILES},
    ),
    f"POST {SESSION}/commands": (
        {"command": "approve", **ABOUT, "callHash": DIGEST},
        {"command": "deny", **ABOUT, "turnId": TURN, "reason": "no"},
        {"command": "steer", "text": "left", "when": "now"},
        {"command": "abort", "loopId": "s1.main.1", "reason": "no"},
        {"command": "handoff", "to": "ann"},
    ),
    f"POST {SESSION}/agent": ({"agent": "other", "reason": "r", "key": "k2", "expected": "1-0"},),
    f"POST {SESSION}/forks": ({"position": 1, "id": "fork", "agent": "agent"}, {"position": 1, "key": "k3"}),
    f"POST {SESSION}/redrive": ({},),
    f"POST {SESSION}/trim": ({"before": 1, "dryRun": True},),
    f"POST {SESSION}/close": ({"reason": "", "key": "k4"},),
    f"POST {SESSION}/reopen": ({"reason": "r", "key": "k5"},),
    f"POST {SESSION}/uploads": ({"sha256": DIGEST, "sizeBytes": 1, "mimeType": "text/plain", "filename": "a.txt"},),
    "POST /chat": (
        {"id": "s1", "messages": [SAID], "trigger": "submit-message", "messageId": "x", "agent": "agent"},
        {"id": "s1", "messages": [SHOWN]},
        {"id": "s1", "messages": [ANSWERED]},
    ),
    "POST /agui/{agent}": (
        {
            **RUN,
            "messages": [{"id": "m", "role": "user", "content": "hi"}],
            "protocolVersion": "1.0",
            "state": {"a": 1},
        },
        {**RUN, "messages": [{"id": "n", "role": "user", "content": [{"type": "text", "text": "hi"}, CLIP]}]},
        {**RUN, "resume": [{"interruptId": INTERRUPT, "status": "resolved", "payload": {"approved": False}}]},
    ),
    "POST /mcp": (
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": TOOL_CALL},
        {"jsonrpc": "2.0", "id": "x", "method": "resources/read", "params": {"uri": "lanebus://sessions/s1"}},
    ),
}
"""method and path → examples of the body"""

EXAMPLES = {
    **{"session": "s1", "agent": "agent", "sha256": DIGEST, "turn": "main.1#0", "name": "lanebus.usage"},
    **{"position:int": "1", "path:path": "app/main.js"},
}
QUERY = {
    **{"after": "1-0", "until": "5", "before": "5", "limit": "2", "since": "2026-01-31T12:00:00Z", "kinds": "user"},
    **{"beforeTime": "1", "lanes": "all", "live": "true", "sessions": "s1", "search": "hi", "agent": "agent"},
    **{"state": "idle", "sort": "title", "cursor": "WyJ0aXRsZSIsZmFsc2UsIngiLCJzMSJd", "id": "c1", "offset": "0"},
    **{"first": "0", "provider": "anthropic", "model": "m", "position": "5"},
}
HEADERS = {
    **{"accept": "text/event-stream, application/json", "accept-encoding": "gzip;q=0, br", "baggage": "a=b"},
    **{"authorization": f"Bearer {TOKEN}", "content-length": "0", "content-type": "application/json"},
    **{"cookie": "a=b; c=d", "forwarded": "for=10.0.0.1;host=a", "host": HOST, "origin": ORIGIN},
    **{"mcp-protocol-version": "2025-06-18", "mcp-session-id": "a", "range": "bytes=0-1", "sec-fetch-site": "none"},
    **{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"},
    **{"upload-metadata": "filename YQ==", "x-forwarded-for": "10.0.0.1", "x-forwarded-host": HOST},
    "x-forwarded-proto": "https",
}
FILLERS = ("", "9", "#1/", '/@.-:,;= \\"[{')
"""what a text is filled with; "" stands for the example itself"""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request before it is made: all as clients write it, but decoded."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    more: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    is_stream: bool = False


Grown = tuple[str, Callable[[int], Request]]
"""a place of a request, and what returns the request with so many bytes there"""


Ask = Callable[[Request], Awaitable[int]]
"""sends a request to the application, without a network, and returns its status"""


async def status_of(app: ASGIApp, request: Request) -> int:
    """Return the status of the answer; 500 if the application raises. A stream is left when it begins."""
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in request.headers.items()]
    scope: Scope = {
        **{"type": "http", "method": request.method, "scheme": "http", "path": request.path},
        **{"query_string": request.query.encode(), "headers": [*headers, *request.more], "client": ("10.0.0.4", 1)},
    }
    found, bodies = list[int](), [request.body]
    with anyio.CancelScope() as begun:

        async def receive() -> Message:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            await anyio.sleep_forever()
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                found.append(cast("int", message["status"]))
                if request.is_stream:
                    begun.cancel()
                    await anyio.lowlevel.checkpoint()

        try:
            await app(scope, receive, send)
        except Exception:  # noqa: BLE001  # whatever the application raises after it has answered with 500
            return 500
    return found[0]


async def cost(ask: Ask, request: Request, rounds: int = 1) -> float:
    """Return the seconds of processor time that a request takes, of several rounds the least."""
    least = float("inf")
    gc.disable()  # what it collects is mostly of other tests
    try:
        for _ in range(rounds):
            began = process_time()
            status = await ask(request)
            least = min(least, process_time() - began)
            assert status < 500
    finally:
        gc.enable()
    return least


def plain(method: str, path: str) -> Request:
    """Return the example of a request to a route."""
    for name, example in EXAMPLES.items():
        path = path.replace(f"{{{name}}}", example)
    kinds = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    headers = {"host": HOST, "authorization": f"Bearer {TOKEN}", **kinds}
    return Request(method=method, path=path, headers=headers)


def leaves(value: JsonValue, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], JsonValue]]:
    """Yield each text, number and list of a JSON value with its path."""
    match value:
        case dict():
            for name, item in value.items():
                yield from leaves(item, (*path, name))
        case list():
            yield path, value
            for index, item in enumerate(value):
                yield from leaves(item, (*path, index))
        case bool() | None | float():
            pass
        case _:
            yield path, value


def replaced(value: JsonValue, path: tuple[str | int, ...], new: JsonValue) -> JsonValue:
    """Return a JSON value with another value at a path."""
    match path, value:
        case (), _:
            return new
        case (str(name), *rest), dict():
            return {**value, name: replaced(value[name], tuple(rest), new)}
        case (int(index), *rest), list():
            return [*value[:index], replaced(value[index], tuple(rest), new), *value[index + 1 :]]
        case _:
            raise AssertionError(path)


def filled(example: str, filler: str, size: int) -> str:
    unit = filler or example or "a"
    return (unit * (size // len(unit) + 1))[:size]


def bodies(examples: tuple[JsonValue, ...]) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """Yield each place of the bodies that can grow."""

    def text_at(body: JsonValue, path: tuple[str | int, ...], text: str, filler: str) -> Callable[[int], bytes]:
        return lambda size: json.dumps(replaced(body, path, filled(text, filler, size))).encode()

    def list_at(body: JsonValue, path: tuple[str | int, ...], items: list[JsonValue]) -> Callable[[int], bytes]:
        each = len(json.dumps(items)) or 1
        return lambda size: json.dumps(replaced(body, path, items * (size // each + 1))).encode()

    for body in examples:
        for path, value in leaves(body):
            place = ".".join(map(str, path))
            if isinstance(value, str):
                for filler in FILLERS[1:]:
                    yield f"{place} of {filler!r}", text_at(body, path, value, filler)
            elif isinstance(value, list):
                yield f"the list {place}", list_at(body, path, value or [1])
                yield f"the list {place} of numbers", list_at(body, path, [1])
    if examples:
        # The names of a fault: a long one, around a long list.
        yield (
            "names",
            lambda size: f'{{"{"k" * (size // 2)}":[{",".join("0" * (size // 4))}],"z":{{"a":1,"a":1}}}}'.encode(),
        )
        yield "nested lists", lambda size: b"[" * size
        yield "fields", lambda size: json.dumps({f"{at:050}": 1 for at in range(size // 57)}).encode()


def in_header(base: Request, name: str, filler: str) -> Callable[[int], Request]:
    def made(size: int) -> Request:
        return replace(base, headers={**base.headers, name: filled(HEADERS.get(name, "1-0"), filler, size)})

    return made


def grown(route: str) -> Iterator[Grown]:
    """Yield each place of a request to a route that can grow."""
    is_stream, names, headers = routes()[route]
    method, path = route.split(" ")
    base = replace(plain(method, path), is_stream=is_stream)

    def in_path(part: str, filler: str) -> Callable[[int], Request]:
        def made(size: int) -> Request:
            text = filled(EXAMPLES[part.strip("{}")], filler, size)
            return replace(base, path=plain(method, path.replace(part, text)).path)

        return made

    def in_query(name: str, filler: str) -> Callable[[int], Request]:
        return lambda size: replace(base, query=f"{name}={filled(QUERY[name], filler, size).replace('#', '%23')}")

    def in_body(make: Callable[[int], bytes]) -> Callable[[int], Request]:
        return lambda size: replace(base, body=make(size))

    for filler in FILLERS:
        for part in path.split("/"):
            if part.startswith("{"):
                yield f"{part} of {filler!r}", in_path(part, filler)
        for name in names:
            yield f"?{name} of {filler!r}", in_query(name, filler)
        for name in headers:
            yield f"header {name} of {filler!r}", in_header(base, name, filler)
    for place, make in bodies(ROWS[route]):
        yield f"body: {place}", in_body(make)


def everywhere(base: Request) -> Iterator[Grown]:
    """Yield the places of every request: its headers and its path."""
    yield "many headers", lambda size: replace(base, more=((b"a", b""),) * (size // 2))
    yield "many names", lambda size: replace(base, more=tuple((b"a%d" % at, b"") for at in range(size // 6)))
    yield "many parameters", lambda size: replace(base, query="&".join("a=1" for _ in range(size // 4)))
    yield "long path", lambda size: replace(base, path="/" * size)
    for name in HEADERS:
        for filler in FILLERS:
            yield f"header {name} of {filler!r}", in_header(base, name, filler)


@asynccontextmanager
async def asked() -> AsyncGenerator[Ask]:
    """Yield the application of a bus with one session, in which a call waits for a person."""
    from lanebus.handlers.serve import McpHosted  # an extra, and slow to import

    hosted: HostedApp = McpHosted(allow_publish=True)
    bounds = UiBounds(access=AccessBounds(requests_per_second=1e9, burst=10**9, wrong_burst=10**9, streams=10**6))
    async with temporary_bus() as bus:
        await fill(bus)
        app = create_app(
            bus,
            token=TOKEN,
            allowed_hosts=[HOST],
            allowed_origins=[ORIGIN],
            bounds=bounds,
            hosted=[hosted],
            trusted_proxies=["10.0.0.0/24"],
        )
        async with hosted.run(app):
            yield partial(status_of, app)


async def fill(bus: Bus) -> None:
    turn, call = TurnId(loop_id="s1.main.1", turn_index=0), ToolCallBlock(id="c1", name="rm", arguments={})
    started, begins, waits = begun("s1", "c1", agent="agent")
    said = AssistantMessage(content=(TextBlock(text="hi"), call), turn_id=turn, stop_reason="toolUse", model="m")
    await bus.session("s1").publish(UserMessage.text("hi"), started, begins, said, waits)


def routes() -> dict[str, tuple[bool, tuple[str, ...], tuple[str, ...]]]:
    """Return each route, with whether it streams, its query parameters and its headers."""
    found = {
        f"{each.method} {each.path}": (
            "text/event-stream" in each.media_types,
            tuple(parameter.name for parameter in each.parameters),
            tuple(name.lower() for name in each.headers),
        )
        for each in endpoints()
    }
    return {**found, "POST /mcp": (False, (), ("mcp-protocol-version", "accept"))}


def test_every_route_has_a_row() -> None:
    assert ROWS.keys() == routes().keys()
    assert {name for _, names, _ in routes().values() for name in names} <= QUERY.keys()


async def growth(ask: Ask, make: Callable[[int], Request], *, most: int, least: float = 0.05) -> float:
    """Return how much the cost grows when the size doubles, from the size that costs `least` seconds.

    Return 0 if no request up to the largest one costs so much.
    """
    size = most // 64
    while (seconds := await cost(ask, make(size))) < least:
        size *= 4 if seconds < least / 16 else 2
        if size > most:
            return 0.0
    size = min(size, most // 2)
    one, two = make(size), make(2 * size)
    small = large = float("inf")
    for rounds in (2, 5, 5, 5):  # other processes disturb some rounds
        small, large = min(small, await cost(ask, one, rounds)), min(large, await cost(ask, two, rounds))
        if large <= 2.5 * small or small > 10 * least:
            break
    return large / small


async def too_dear(ask: Ask, places: Iterable[Grown], most: int) -> dict[str, float]:
    """Return the places of a request where twice the size costs more than 2.5 times as much."""
    return {place: grows for place, make in places if (grows := await growth(ask, make, most=most)) > 2.5}


@pytest.mark.full
@pytest.mark.parametrize("route", [route for route, examples in ROWS.items() if examples])
async def test_a_body_of_twice_the_size_costs_about_twice_as_much_at_every_place(
    route: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with asked() as ask:
        assert not await too_dear(ask, grown(route), BODY_BYTES)
    assert not faults(caplog)


@pytest.mark.full
async def test_a_path_a_query_and_headers_of_twice_the_size_cost_about_twice_as_much_at_every_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    most, known = 4 * UiBounds().http.head_bytes, plain("GET", "/api/access")
    async with asked() as ask:
        for base in (known, replace(known, headers={"host": HOST})):  # with a token, and without one
            assert not await too_dear(ask, everywhere(base), most)
        for route, examples in ROWS.items():
            assert examples or not await too_dear(ask, grown(route), most), route
    assert not faults(caplog)


def faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def with_digits(text: str) -> Iterator[str]:
    """Yield a long number, and a text in which a long number stands for each of its numbers."""
    yield DIGITS
    for found in re.finditer("[0-9]+", text):
        yield text[: found.start()] + DIGITS + text[found.end() :]


def with_long_numbers(method: str, path: str, names: tuple[str, ...], headers: tuple[str, ...]) -> Iterator[Request]:
    """Yield a request with a long number at each place."""
    base, examples = plain(method, path), ROWS[f"{method} {path}"]
    for part in path.split("/"):
        for text in with_digits(EXAMPLES.get(part.strip("{}"), "")) if part.startswith("{") else ():
            yield replace(base, path=plain(method, path.replace(part, text)).path)
            asking = {"host": HOST, "origin": ORIGIN, "access-control-request-method": method}
            yield Request(method="OPTIONS", path=plain(method, path.replace(part, text)).path, headers=asking)
    for name in names:
        for text in with_digits(QUERY[name]):
            yield replace(base, query=f"{name}={quote(text)}")
    for name in {"content-length", "range", *headers}:
        for text in with_digits(HEADERS.get(name, "1-0")):
            yield replace(base, headers={**base.headers, name: text})
    for body in examples:
        for at, value in leaves(body):
            if isinstance(value, list):
                continue
            for text in with_digits(str(value)):
                yield replace(base, body=json.dumps(replaced(body, at, text)).encode())
                yield replace(base, body=json.dumps(replaced(body, at, "@")).replace('"@"', text).encode())
            yield replace(base, body=json.dumps(replaced(body, at, "@")).replace('"@"', "9" * 4_000).encode())


@pytest.mark.full
async def test_a_number_of_thousands_of_digits_is_the_clients_fault_at_every_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = list[tuple[str, int, str]]()
    async with asked() as ask:
        for route, (is_stream, names, headers) in routes().items():
            method, path = route.split(" ")
            for request in with_long_numbers(method, path, names, headers):
                status = await ask(replace(request, is_stream=is_stream))
                if status >= 500:
                    shown = f"{request.path} {request.query} {request.headers} {request.body.decode()}"
                    found.append((route, status, shown.replace(DIGITS, "DIGITS")))
    assert not found
    assert not faults(caplog)
