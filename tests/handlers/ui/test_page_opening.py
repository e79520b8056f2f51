"""What the page asks for first, in Chromium."""

from typing import TYPE_CHECKING

import anyio
import pytest

from lanebus import UserMessage
from tests.support.page.browsing import ON_A_BROWSER, SharedBrowser, browsing, expect
from tests.support.page.serving import serving, temporary_bus

if TYPE_CHECKING:
    from playwright.async_api import Route

__all__ = ()

pytestmark = ON_A_BROWSER


@pytest.mark.bundled
async def test_the_entries_in_view_are_requested_before_the_list_and_the_inbox(browser: SharedBrowser) -> None:
    async with temporary_bus() as bus, serving(bus) as served, browsing(browser) as (page, seen):
        await bus.session("s1").publish(*(UserMessage.text(f"question {number}") for number in range(1000)))
        await page.goto(served.url)  # keeps the token in the tab
        await expect(page.locator(".session")).to_be_visible()
        await page.goto("about:blank")  # ends the requests of the list that is shown
        seen.requests.clear()
        await page.goto(f"{served.base}/#/s/s1?at=300")
        await expect(page.locator(".row[data-position='300']")).to_be_visible()
        await expect(page.locator(".session")).to_be_visible()
        asked = [url.partition("/api/")[2].partition("?")[0] for url in seen.requests if "/api/" in url]
        assert asked.index("sessions/s1/entries") < asked.index("sessions")
        assert asked.index("sessions/s1/entries") < asked.index("waiting")
        assert seen.errors == []


async def test_the_head_comes_before_the_rights_and_the_page_in_view_alone(browser: SharedBrowser) -> None:
    held = anyio.Event()

    async def hold(route: "Route") -> None:
        await held.wait()
        await route.continue_()

    async with temporary_bus() as bus, serving(bus) as served, browsing(browser) as (page, seen):
        await bus.session("s1").publish(*(UserMessage.text(f"question {number}") for number in range(1000)))
        await page.goto(served.url)
        await expect(page.locator(".session")).to_be_visible()
        await page.goto("about:blank")  # ends the requests of the list that is shown
        await page.route("**/entries?*", hold)
        seen.requests.clear()
        async with page.expect_request("**/entries?*"):
            await page.goto(f"{served.base}/#/s/s1?at=500")
        await page.evaluate("() => new Promise((go) => requestAnimationFrame(() => setTimeout(go)))")
        asked = [url.partition("/api/")[2] for url in seen.requests if "/api/" in url]
        assert asked.index("sessions/s1") < asked.index("access")
        assert asked.count("sessions/s1") == 1
        assert [each for each in asked if "/entries" in each] == ["sessions/s1/entries?after=400&until=600"]
        held.set()
        await expect(page.locator(".row[data-position='500']")).to_be_visible()


async def test_the_list_is_loaded_also_if_the_entries_cannot_be_read(browser: SharedBrowser) -> None:
    async with temporary_bus() as bus, serving(bus) as served, browsing(browser) as (page, _):
        for name in ("s1", "s2"):
            await bus.session(name).publish(UserMessage.text("hello"))
        await page.route("**/api/sessions/s1", lambda route: route.abort())
        await page.goto(served.url)
        await page.goto(f"{served.base}/#/s/s1")
        await page.reload()
        await expect(page.locator(".session")).to_have_count(2)
