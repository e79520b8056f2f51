"""The page in a real browser, and a line to the server that can be cut."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import ByteStream, SocketAttribute
from playwright.async_api import ConsoleMessage, Dialog, Page, Request, async_playwright

__all__ = ("Seen", "Wire", "browsing", "wire_to")


class Seen:
    """What a page did that it should not have to do."""

    def __init__(self, page: Page) -> None:
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("dialog", self._on_dialog)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._on_request)

    def off_origin(self, base: str) -> list[str]:
        """Requests to anywhere but the server."""
        return [url for url in self.requests if not url.startswith((base + "/", "data:"))]

    async def _on_dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        await dialog.dismiss()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)


@asynccontextmanager
async def browsing(chromium: Path, *, width: int = 1400, height: int = 900) -> AsyncGenerator[tuple[Page, Seen]]:
    """A page of a new browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, headless=True)
        try:
            page = await browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(30_000)
            yield page, Seen(page)
        finally:
            await browser.close()


class Wire:
    """Carries bytes between a browser and a port, until it is cut."""

    def __init__(self, listener: anyio.abc.Listener[ByteStream], port: int) -> None:
        self.port = port
        self.target = 0
        self.asked = bytearray()
        """all that was sent towards the target"""
        self._listener = listener
        self._open: set[anyio.CancelScope] = set()

    def cut(self) -> None:
        """Break every connection there is, in the middle of whatever it carries."""
        for scope in list(self._open):
            scope.cancel()

    async def run(self) -> None:
        """Carry until cancelled."""
        await self._listener.serve(self._carry)

    async def _carry(self, near: ByteStream) -> None:
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                async with (
                    near,
                    await anyio.connect_tcp("127.0.0.1", self.target) as far,
                    anyio.create_task_group() as both,
                ):
                    both.start_soon(_pump, near, far, scope, self.asked)
                    both.start_soon(_pump, far, near, scope)
            finally:
                self._open.discard(scope)


@asynccontextmanager
async def wire_to() -> AsyncGenerator[Wire]:
    """A wire on a free port; set its `target`."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    wire = Wire(listener, listener.extra(SocketAttribute.local_port))  # noqa: S610  # not Django's
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(wire.run)
        try:
            yield wire
        finally:
            tasks.cancel_scope.cancel()


async def _pump(
    source: ByteStream, target: ByteStream, scope: anyio.CancelScope, record: bytearray | None = None
) -> None:
    try:
        async for chunk in source:
            if record is not None:
                record += chunk
            await target.send(chunk)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    scope.cancel()
