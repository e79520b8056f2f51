"""The page in a real browser, and a connection to the server that a test can cut.

pytestmark = ON_A_BROWSER
async def test_x(bus: Bus, served: Served, page: Page): ...         on a bus of its own; the page has no errors
async def test_y(browser: SharedBrowser):
    async with browsing(browser, width=390) as (page, seen): ...      a page of another kind

Starting a browser takes two seconds of CPU, and a page with a new profile takes one. So the tests of one process share
both. A page is reused only after a test that passed, and is empty: no cookies, routes or listeners. A page's storage
belongs to its server's port, and each test has another port.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import anyio
import pytest
import pytest_asyncio
from anyio.abc import ByteStream, SocketAttribute

from lanebus import Bus
from tests.support.held import held
from tests.support.page.serving import Served, serving, temporary_bus
from tests.support.suite.needs import find

if TYPE_CHECKING:
    from playwright import async_api
    from playwright.async_api import Browser, ConsoleMessage, Dialog, Error, Request
    from playwright.async_api._generated import LocatorAssertions  # the package does not export it

    FileChooser: TypeAlias = async_api.FileChooser
    FilePayload: TypeAlias = async_api.FilePayload
    Locator: TypeAlias = async_api.Locator
    Page: TypeAlias = async_api.Page
    Route: TypeAlias = async_api.Route
else:  # types for tests, which do not load the package before they need it
    FileChooser = FilePayload = Locator = Page = Route = object

QUICK_ON_A_BROWSER = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
"""markers for tests that use `browser`: it lives in an event loop that these tests share"""

ON_A_BROWSER = [*QUICK_ON_A_BROWSER, pytest.mark.full]
"""the same, for tests that the quick set leaves out"""

_MILLISECONDS = 120_000
"""milliseconds to wait for an event that must happen; generous, for a machine under load"""

_HURRIED = """{
  const wait = setTimeout;
  window.setTimeout = (call, delay, ...more) => wait(call, delay >= 1000 ? delay / 20 : delay, ...more);
}"""


class Seen:
    """Errors and requests of a page that must not occur."""

    def __init__(self, page: Page) -> None:
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._page = page
        page.on("dialog", self._on_dialog)
        page.on("console", self._on_console)
        page.on("pageerror", self._on_error)
        page.on("request", self._on_request)

    def stop(self) -> None:
        """Stop collecting."""
        self._page.remove_listener("dialog", self._on_dialog)
        self._page.remove_listener("console", self._on_console)
        self._page.remove_listener("pageerror", self._on_error)
        self._page.remove_listener("request", self._on_request)

    def forget(self) -> None:
        """Allow the dialogs and errors that occurred."""
        self.dialogs.clear()
        self.errors.clear()

    def off_origin(self, base: str) -> list[str]:
        """Return the requests to any other server."""
        return [url for url in self.requests if not url.startswith((base + "/", "data:"))]

    async def _on_dialog(self, dialog: "Dialog") -> None:
        self.dialogs.append(dialog.message)
        await dialog.dismiss()

    def _on_error(self, error: "Error") -> None:
        self.errors.append(str(error))

    def _on_console(self, message: "ConsoleMessage") -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def _on_request(self, request: "Request") -> None:
        self.requests.append(request.url)


@dataclass
class SharedBrowser:
    """A running Chromium."""

    started: "Browser"
    idle: Page | None = None
    """a page that no test uses at the moment"""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncGenerator[SharedBrowser]:
    """The system's Chromium, started for the first test that uses it and ended after the last."""
    from playwright.async_api import async_playwright  # loaded only by tests that need it

    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=find("chromium"), headless=True)
        try:
            yield SharedBrowser(started)
        finally:
            await started.close()


@asynccontextmanager
async def browsing(
    browser: SharedBrowser, *, width: int = 1400, height: int = 900, is_hurried: bool = False
) -> AsyncGenerator[tuple[Page, Seen]]:
    """Yield an empty page.

    Args:
        browser: the shared browser.
        width: of the window, in pixels.
        height: of the window, in pixels.
        is_hurried: shortens the page's delays of a second or more, such as before a reconnect, to a twentieth.
    """
    page = None if is_hurried else browser.idle
    if page is None:
        # Without animations: drawing a pulsing light takes CPU all the time.
        context = await browser.started.new_context(reduced_motion="reduce")
        if is_hurried:
            await context.add_init_script(_HURRIED)
        page = await context.new_page()
        page.set_default_timeout(_MILLISECONDS)
    else:
        browser.idle = None
    try:
        await page.set_viewport_size({"width": width, "height": height})
        seen = Seen(page)
        yield page, seen
        seen.stop()
        await page.unroute_all()
        await page.goto("about:blank")
        await page.context.clear_cookies()
        if not is_hurried and browser.idle is None:
            browser.idle = page
    finally:
        if browser.idle is not page:
            await page.context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def bus() -> AsyncGenerator[Bus]:
    """A bus on an embedded server of its own, for a test in a browser."""
    async with held(temporary_bus()) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def served(bus: Bus) -> AsyncGenerator[Served]:
    """The server of the page on that bus."""
    async with held(serving(bus)) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def _browsed(browser: SharedBrowser, request: pytest.FixtureRequest) -> AsyncGenerator[tuple[Page, Seen]]:
    failed = request.session.testsfailed
    async with browsing(browser) as (page, seen):
        yield page, seen
        has_passed = request.session.testsfailed == failed
    if not has_passed and browser.idle is page:
        browser.idle = None
        await page.context.close()
    if has_passed:  # a test may end its server before its page, whose requests then reach nothing or the next server
        errors = [each for each in seen.errors if not each.startswith("Failed to load resource:")]
        assert (seen.dialogs, errors) == ([], [])


@pytest.fixture
def page(_browsed: tuple[Page, Seen]) -> Page:
    """An empty page. Until the test ends it must have no dialogs, and no errors but of requests; `seen.forget()` allows
    those so far."""
    return _browsed[0]


@pytest.fixture
def seen(_browsed: tuple[Page, Seen]) -> Seen:
    """What that page must not do."""
    return _browsed[1]


async def hold(page: Page, *urls: str) -> asyncio.Event:
    """Hold the requests of URLs from now on, until the event is set."""
    is_free = asyncio.Event()

    async def wait(route: Route) -> None:
        await is_free.wait()
        await route.continue_()

    for url in urls:
        await page.route(url, wait)
    return is_free


async def visit(page: Page, served: Served, place: str) -> None:
    """Open a place of the page with the token."""
    await page.goto(served.url)
    await page.goto(f"{served.base}/{place}")


async def visit_session(page: Page, served: Served, session: str) -> None:
    """Open a session, or a view of one, with the token. Wait until the page follows it."""
    await visit(page, served, f"#/s/{session}")
    await expect(page.locator(".connection")).to_have_attribute("data-state", "live")


def expect(locator: Locator) -> "LocatorAssertions":
    """Wait until an expectation about the page holds."""
    from playwright.async_api import expect as claim  # loaded only by tests that need it

    claim.set_options(timeout=_MILLISECONDS)
    return claim(locator)


class Wire:
    """Passes bytes between a browser and a port, until it is cut."""

    def __init__(self, listener: anyio.abc.Listener[ByteStream], port: int) -> None:
        self.port = port
        self.target = 0
        self.asked = bytearray()
        """all bytes that were sent to the target"""
        self.passed: int | None = None
        """number of bytes that are sent to the target before the rest is held until the wire is cut; None means all"""
        self.is_held = False
        self._listener = listener
        self._open: set[anyio.CancelScope] = set()

    def cut(self) -> None:
        """Break every connection, also in the middle of a transfer."""
        for scope in list(self._open):
            scope.cancel()

    async def run(self) -> None:
        """Pass bytes until cancelled."""
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
                    both.start_soon(_pump, near, _Asked(self, far), scope)
                    both.start_soon(_pump, far, near, scope)
            finally:
                self._open.discard(scope)


@asynccontextmanager
async def wire_to() -> AsyncGenerator[Wire]:
    """Yield a wire on a free port. Set its `target`."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    wire = Wire(listener, listener.extra(SocketAttribute.local_port))  # noqa: S610  # not Django's
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(wire.run)
        try:
            yield wire
        finally:
            tasks.cancel_scope.cancel()


class _Asked:
    """Records what is sent to the target, and holds what the wire does not pass."""

    def __init__(self, wire: Wire, target: ByteStream) -> None:
        self._wire, self._target = wire, target

    async def send(self, chunk: bytes) -> None:
        wire = self._wire
        room = len(chunk) if wire.passed is None else max(wire.passed - len(wire.asked), 0)
        wire.asked += chunk[:room]
        await self._target.send(chunk[:room])
        if room < len(chunk):
            wire.is_held = True
            await anyio.sleep_forever()


async def _pump(source: ByteStream, target: ByteStream | _Asked, scope: anyio.CancelScope) -> None:
    try:
        async for chunk in source:
            await target.send(chunk)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    scope.cancel()
