"""Scrub, compare, fork and redrive in Chromium where there is little room: on a phone, and at a zoom of 200 %."""

from typing import TYPE_CHECKING, Literal

import anyio
import pytest

from lanebus import Bus, UserMessage
from tests.support.page.browsing import ON_A_BROWSER, expect, visit
from tests.support.page.recorded import record_loops
from tests.support.page.serving import Served

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page


pytestmark = ON_A_BROWSER


async def reached(page: "Page", wanted: "Locator") -> None:
    """Fail unless an element can be pressed where it is, and nothing is wider than the window."""
    await wanted.scroll_into_view_if_needed()
    await expect(wanted).to_be_in_viewport(ratio=0.99)  # a zoomed page may cut off half a pixel
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("window", [(390, 844, 3), (720, 450, 2)], ids=["phone", "zoom of 200 %"])
async def test_a_session_is_scrubbed_compared_forked_and_redriven_in_a_small_window(
    bus: Bus, served: Served, page: "Page", window: tuple[int, int, int], scheme: Literal["light", "dark"]
) -> None:
    width, height, scale = window
    await page.set_viewport_size({"width": width, "height": height})
    session = bus.session("s1")
    last = await record_loops(session, loops=2, turns=2) + 1
    await session.publish(UserMessage.text("Again?"), wake=True)
    async with bus.consumer("agents", "w1", agents=["agent"]) as consumer:
        (work,) = await consumer.fetch(1)
        await consumer.dead_letter(work, reason="it broke")
    tools = await page.context.new_cdp_session(page)
    metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
    await tools.send("Emulation.setDeviceMetricsOverride", metrics)  # pyright: ignore[reportUnknownMemberType]  # open
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    await visit(page, served, "#/s/s1")
    bar = page.get_by_role("slider", name="Position")
    await expect(bar).to_have_value(str(last))
    await reached(page, bar)
    await bar.fill("5")
    await expect(page.locator(".tm-then")).to_contain_text("turn 0")
    compare = page.get_by_role("link", name="Compare with now")
    await reached(page, compare)
    await compare.click()
    await expect(page.locator(".cp-usage tr", has_text="Cost").locator("td").last).to_have_text("+$0.0300")
    await reached(page, page.locator(".cp-usage"))
    await page.goto(f"{served.base}/#/s/s1/timeline?at=10&past=1")
    fork = page.get_by_role("button", name="Fork here")
    await reached(page, fork)
    await fork.click()
    await expect(page.locator(".sessionhead")).to_contain_text("fork of")
    await page.goto(f"{served.base}/#/s/s1")
    menu = page.get_by_role("button", name="Operate this session")
    await reached(page, menu)
    await menu.click()
    await page.get_by_role("button", name="Redrive dead letters").click()
    dialog = page.get_by_role("dialog")
    redrive = dialog.get_by_role("button", name="Redrive", exact=True)
    await expect(redrive).to_be_enabled()
    await reached(page, redrive)
    await redrive.click()
    await expect(page.get_by_text("1 dead letter redriven")).to_be_visible()
    async with bus.consumer("agents", "w2", agents=["agent"]) as consumer:
        with anyio.fail_after(60):
            assert [each.session for each in await consumer.fetch(1)] == ["s1"]
    await page.emulate_media(color_scheme=None, reduced_motion="reduce")
    await tools.send("Emulation.clearDeviceMetricsOverride")  # pyright: ignore[reportUnknownMemberType]  # open
    await tools.detach()
