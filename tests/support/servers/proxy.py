"""A proxy in front of a server that loses answers, cuts, delays and swallows: network faults on one machine.

way.lose = 1            lose the next answer to a script, and cut its connection
way.silence()           existing connections accept everything and return nothing; new ones work
way.hole(answers=True)  existing connections accept no more bytes in one direction, or in both
way.delay()             existing connections hold requests back; `await way.deliver()` sends them on, also those of
                        connections that were given up meanwhile
way.cut()               close the existing connections
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

ACCEPT_STEPS = 5
"""a connection that the kernel accepted reaches `accept` within this many steps of the event loop"""


class Proxy:
    """Passes bytes between its own socket and the server's, until the test injects a fault."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.lose = 0
        """number of answers to a script that are still to be lost; each loss cuts its connection"""
        self.lose_at: bytes | None = None
        """the next connection that sends these bytes is cut instead"""
        self.lost = 0
        self.turned_away = 0
        """number of connections that found no server"""
        self.on_lost: Callable[[], object] = lambda: None
        """called before a connection is cut for its lost answer"""
        self.on_delayed: Callable[[], object] = lambda: None
        """called when a request with a script is held back"""
        self.is_dark = False
        """True makes new connections silent, too"""
        self.silent_at: bytes | None = None
        """the next connection that sends these bytes becomes silent with them"""
        self.step = 0.0
        """seconds before each 64 KiB of an answer are passed on"""
        self.accepted = 0
        """number of connections ever accepted"""
        self._links: set[_Link] = set()
        self._transports: list[asyncio.WriteTransport] = []
        self._delayed: list[_Link] = []

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def delayed_bytes(self) -> int:
        """The number of bytes of requests that are held back."""
        return sum(len(link.delayed or b"") for link in self._delayed)

    def silence(self) -> None:
        """Make every existing connection dead without a sign, as a broken network does. New ones work."""
        for link in self._links:
            link.is_silent = True

    def hole(self, *, requests: bool = False, answers: bool = False) -> None:
        """Let every existing connection accept no more bytes in a direction, so that writers find the window full."""
        for link in self._links:
            if requests:
                link.requests_open.clear()
            if answers:
                link.answers_open.clear()

    def fill(self) -> None:
        """Pass on what the holes held back, and end them."""
        for link in self._links:
            link.requests_open.set()
            link.answers_open.set()

    def delay(self) -> None:
        """Let every existing connection hold requests back from now on. New ones work."""
        for link in self._links:
            if link.delayed is None:
                link.delayed = bytearray()
                self._delayed.append(link)

    async def deliver(self) -> None:
        """Send on the requests that were held back. On return, those of closed connections have been carried out."""
        delayed, self._delayed = self._delayed, []
        for link in delayed:
            late, link.delayed = bytes(link.delayed or b""), None
            with suppress(OSError):
                link.requests.write(late)
                await link.requests.drain()
                if link.is_left:
                    link.requests.write_eof()
                    await link.gone.wait()
        for link in delayed:
            if link.is_left:
                link.close()

    def cut(self) -> None:
        """Close every existing connection."""
        for link in list(self._links):
            link.close()

    def abort(self) -> None:
        """Close all connections for good. One that was closed keeps its socket while the other end accepts no bytes."""
        for transport in self._transports:
            transport.abort()

    async def serve(self, server: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_unix_connection(str(server))
        except OSError:
            self.turned_away += 1
            writer.close()
            return
        link = _Link(writer, requests)
        self._transports += (writer.transport, requests.transport)
        link.is_silent = self.is_dark
        self.accepted += 1
        self._links.add(link)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._requests, link, reader)
                tasks.start_soon(self._answers, link, answers)
        finally:
            self._links.discard(link)
            link.close()

    async def _requests(self, link: "_Link", reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while True:
                await link.requests_open.wait()
                if not (chunk := await reader.read(1 << 16)):
                    break
                await link.requests_open.wait()
                if self.silent_at is not None and self.silent_at in chunk:
                    self.silent_at, link.is_silent = None, True
                if self.lose_at is not None and self.lose_at in chunk:
                    self.lose_at = None
                    self.lost += 1
                    self.on_lost()
                    break
                if link.is_silent:
                    continue
                is_script = b"EVALSHA" in chunk
                if link.delayed is not None:
                    link.delayed += chunk
                    if is_script:
                        self.on_delayed()
                    continue
                link.ran_script = link.ran_script or is_script
                link.requests.write(chunk)
                await link.requests.drain()
        link.is_left = True
        if link.delayed is None:  # otherwise it is kept for a late delivery
            link.close()

    async def _answers(self, link: "_Link", reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while True:
                await link.answers_open.wait()
                if not (chunk := await reader.read(1 << 16)):
                    break
                await link.answers_open.wait()
                if link.is_silent or link.is_left:
                    continue
                if link.ran_script and self.lose > 0:
                    self.lose -= 1
                    self.lost += 1
                    self.on_lost()
                    break
                link.ran_script = False
                if self.step:
                    await anyio.sleep(self.step)
                link.answers.write(chunk)
                await link.answers.drain()
        link.gone.set()
        link.close()


class _Link:
    def __init__(self, answers: asyncio.StreamWriter, requests: asyncio.StreamWriter) -> None:
        self.answers, self.requests = answers, requests
        self.requests_open, self.answers_open = asyncio.Event(), asyncio.Event()
        self.requests_open.set()
        self.answers_open.set()
        self.gone = asyncio.Event()
        """set once the server has carried out all requests and closed the connection"""
        self.ran_script = False
        self.is_silent = False
        self.is_left = False
        """True once the client has closed the connection"""
        self.delayed: bytearray | None = None
        """requests that are held back; None if requests pass"""

    def close(self) -> None:
        self.requests_open.set()
        self.answers_open.set()
        self.answers.close()
        self.requests.close()


@asynccontextmanager
async def proxy(server: Path) -> AsyncGenerator[Proxy, None]:
    """Yield a proxy in front of a server's socket."""
    way = Proxy(server.with_name("proxy"))
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def end(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            writer.close()  # also if the task was cancelled before its first step

        task = asyncio.create_task(way.serve(server, reader, writer))
        tasks.add(task)
        task.add_done_callback(end)

    listener = await asyncio.start_unix_server(accept, str(way.socket))
    try:
        yield way
    finally:
        # A server closed while a connection is on its way to `accept` leaves that connection open (CPython 3.11).
        loop = asyncio.get_running_loop()
        for socket in listener.sockets:
            loop.remove_reader(socket.fileno())
        with anyio.CancelScope(shield=True):
            for _ in range(ACCEPT_STEPS):
                await asyncio.sleep(0)
            listener.close()
            way.cut()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            way.abort()
            for _ in range(ACCEPT_STEPS):
                await asyncio.sleep(0)
