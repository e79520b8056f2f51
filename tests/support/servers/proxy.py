"""A way to a server that loses answers, cuts and falls silent: the faults of a network on one machine."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

__all__ = ("Proxy", "proxy")


class Proxy:
    """Passes bytes between a socket of its own and the server's, until told otherwise."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.lose = 0
        """how many answers to a script are still to be lost; the link is cut with each"""
        self.lost = 0
        self.turned_away = 0
        """how many connections found no server"""
        self.on_lost: Callable[[], object] = lambda: None
        """called before a link is cut for its lost answer"""
        self._links: set[_Link] = set()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def silence(self) -> None:
        """Every present link goes dead without a sign, as behind a broken network; new ones work."""
        for link in self._links:
            link.is_silent = True

    def cut(self) -> None:
        """End every present link."""
        for link in list(self._links):
            link.close()

    async def serve(self, server: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_unix_connection(str(server))
        except OSError:
            self.turned_away += 1
            writer.close()
            return
        link = _Link(writer, requests)
        self._links.add(link)
        try:
            with suppress(OSError):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._requests, link, reader, requests)
                    tasks.start_soon(self._answers, link, answers, writer)
        except* OSError:
            pass
        finally:
            self._links.discard(link)
            link.close()

    async def _requests(self, link: "_Link", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            if link.is_silent:
                continue
            link.ran_script = link.ran_script or b"EVALSHA" in chunk
            writer.write(chunk)
            await writer.drain()
        link.close()

    async def _answers(self, link: "_Link", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            if link.is_silent:
                continue
            if link.ran_script and self.lose > 0:
                self.lose -= 1
                self.lost += 1
                self.on_lost()
                break
            link.ran_script = False
            writer.write(chunk)
            await writer.drain()
        link.close()


class _Link:
    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers
        self.ran_script = False
        self.is_silent = False

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def proxy(server: Path) -> AsyncGenerator[Proxy, None]:
    """A proxy in front of a server's socket."""
    way = Proxy(server.with_name("proxy"))
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(way.serve(server, reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_unix_server(accept, str(way.socket))
    try:
        yield way
    finally:
        listener.close()
        way.cut()
        for task in tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*tasks, return_exceptions=True)
