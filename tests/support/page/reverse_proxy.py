"""HTTP servers beside lanebus's own: a reverse proxy, and files of another origin."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio
import httpx2
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lanebus.handlers.serve.http_server import listen, serve_app

_OWN = {b"host", b"connection", b"transfer-encoding"}


class ReverseProxy:
    """An ASGI application that passes requests below a path on to another server, as nginx does, and says for whom."""

    def __init__(self, prefix: str, *, is_stripped: bool) -> None:
        """
        Args:
            prefix: the path; other paths get a 404 of the proxy.
            is_stripped: whether the proxy removes the path.
        """
        self._prefix, self._is_stripped = prefix, is_stripped
        self.target = ""
        """address of the server"""
        self.outside: list[str] = []
        """paths that were requested outside of the prefix"""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        path = str(scope["raw_path"].decode())
        if not f"{path}/".startswith(f"{self._prefix}/"):
            self.outside.append(path)
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"not of lanebus"})
            return
        body, message = b"", await receive()
        while message["type"] == "http.request" and message.get("more_body"):
            body, message = body + message["body"], await receive()
        body += message.get("body", b"")
        async with anyio.create_task_group() as tasks:

            async def wait_gone() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(wait_gone)
            await self._pass(scope, path, body, send)
            tasks.cancel_scope.cancel()

    async def _pass(self, scope: Scope, path: str, body: bytes, send: Send) -> None:
        asked = [(name, value) for name, value in scope["headers"] if name not in _OWN]
        known = dict(scope["headers"])
        before = [known[b"x-forwarded-for"]] if b"x-forwarded-for" in known else []
        asked = [each for each in asked if not each[0].startswith(b"x-forwarded-")]
        asked += [
            (b"x-forwarded-for", b", ".join([*before, scope["client"][0].encode()])),
            (b"x-forwarded-proto", b"http"),
            (b"x-forwarded-host", known[b"host"]),
        ]
        rest = (path.removeprefix(self._prefix) or "/") if self._is_stripped else path
        query = scope["query_string"].decode()
        url = f"{self.target}{rest}" + (f"?{query}" if query else "")
        async with (
            httpx2.AsyncClient(timeout=120) as client,
            client.stream(scope["method"], url, headers=asked, content=body) as reply,
        ):
            headers = [(name, value) for name, value in reply.headers.raw if name.lower() not in _OWN]
            await send({"type": "http.response.start", "status": reply.status_code, "headers": headers})
            async for chunk in reply.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def files_app(files: Mapping[str, tuple[bytes, str]]) -> ASGIApp:
    """Return an application that serves files: path → content and content type.

    Its pages ask for `Cross-Origin-Resource-Policy` where browsers apply it.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        content, kind = files.get(scope["path"], (b"", ""))
        start: Message = {"type": "http.response.start", "status": 200 if kind else 404}
        headers = [(b"content-type", kind.encode()), (b"cross-origin-embedder-policy", b"require-corp")]
        await send({**start, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return app


@asynccontextmanager
async def running(app: ASGIApp) -> AsyncGenerator[int]:
    """Run an application on a free port of 127.0.0.1, and yield the port."""
    ready = anyio.Event()
    with listen("127.0.0.1", 0) as listener:

        async def run() -> None:
            await serve_app(app, listener, closing=anyio.Event(), grace=1, on_started=ready.set)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await ready.wait()
            try:
                yield int(listener.getsockname()[1])
            finally:
                tasks.cancel_scope.cancel()
