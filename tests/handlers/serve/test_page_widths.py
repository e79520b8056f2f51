"""What has room at which width of the window, in Chromium."""

from typing import TYPE_CHECKING

from lanebus import Bus, ExtensionMessage, UserMessage
from tests.support.page.browsing import ON_A_BROWSER, expect, visit, visit_session
from tests.support.page.recorded import record_loops
from tests.support.page.samples import waiting_for_approval
from tests.support.page.serving import Served

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page


pytestmark = ON_A_BROWSER


async def box_of(found: "Locator") -> dict[str, float]:
    await expect(found).to_be_visible()
    box = await found.bounding_box()
    assert box is not None
    return {"x": box["x"], "right": box["x"] + box["width"], "height": box["height"]}


async def test_both_lanes_are_beside_each_other_in_the_window_of_a_laptop(
    bus: Bus, served: Served, page: "Page"
) -> None:
    await bus.session("s1").publish(UserMessage.text("hello"), ExtensionMessage.of("tick", {"number": 1}))
    await visit(page, served, "#/s/s1")
    for width in (1000, 1100, 1180, 1220, 1221, 1280, 1366, 1400, 1401, 1920):
        await page.set_viewport_size({"width": width, "height": 900})
        await expect(page.get_by_role("heading", name="Turns")).to_be_visible(visible=width > 1220)
        said, event = await box_of(page.locator(".message")), await box_of(page.locator(".event"))
        assert (width, said["right"] < event["x"]) == (width, True)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True


async def test_nothing_is_wider_than_the_window_and_box_and_buttons_are_in_view(
    bus: Bus, served: Served, page: "Page"
) -> None:
    wide = ExtensionMessage.of("k" * 300, {"y": "z" * 3000})
    await bus.session("s1").publish(UserMessage.text("x" * 3000), wide, ExtensionMessage.of("tick"))
    await waiting_for_approval(bus.session("s2"), "hi", "x" * 60, "y" * 60)
    for width, height in ((1400, 900), (900, 700), (420, 800)):
        await page.set_viewport_size({"width": width, "height": height})
        for session, shown in (("s1", ".row[data-position='3']"), ("s2", ".ask")):
            await visit_session(page, served, session)
            await expect(page.locator(shown).first).to_be_attached()
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True
            assert await page.locator(".scroll").evaluate("box => box.scrollWidth <= box.clientWidth") is True
            await expect(page.get_by_label("Message to the agent")).to_be_in_viewport()
        await expect(page.locator(".ask")).to_have_count(2)
        await expect(page.get_by_role("button", name="Abort")).to_be_in_viewport()


TARGETS = """() => [...document.querySelectorAll(".lanebar :is(button, label, input[type='search'])")]
  .map((one) => one.getBoundingClientRect()).map(({ width, height }) => Math.min(width, height))"""


COVERED = """() => [...document.querySelectorAll(".lanebar :is(button, label, input[type='search'])")].filter((one) => {
  const { x, y, width, height } = one.getBoundingClientRect();
  return !one.contains(document.elementFromPoint(x + width / 2, y + height / 2));
}).map((one) => one.textContent)"""


async def test_a_phone_shows_the_cost_in_the_timeline_and_toolbars_that_hide_nothing(
    bus: Bus, served: Served, page: "Page"
) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await record_loops(bus.session("s1"), loops=2, turns=3)
    await visit(page, served, "#/s/s1/timeline")
    cost = page.locator(".tl-row.k-turn .tl-cost").first
    await expect(cost).to_have_text("$0.0100")
    assert (await box_of(cost))["right"] <= 390
    assert await cost.evaluate("(cell) => cell.scrollWidth <= cell.clientWidth") is True
    bar = page.locator(".tl-head")
    assert (await box_of(bar))["height"] <= 48
    await page.get_by_role("button", name="Charts").click()  # it scrolls to what is out of view
    await expect(page.locator(".tl-chart").first).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True
    await page.get_by_role("tab", name="Log").click()
    for width, height in ((390, 44), (320, 76)):  # the smallest gives the box that finds a second line
        await page.set_viewport_size({"width": width, "height": 844})
        assert (await box_of(page.locator(".lanebar")))["height"] <= height
        assert min(await page.evaluate(TARGETS)) >= 24
        await expect(page.get_by_label("Find in the session")).to_be_in_viewport(ratio=1)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True
    await expect(page.get_by_role("button", name="Both lanes", exact=True)).to_be_visible()
    for name in ("Plain text", "All events"):  # their words are for screen readers here
        await page.get_by_label(name, exact=True).check()
    await page.get_by_label("Find in the session").fill("answer")
    await expect(page.get_by_role("button", name="Next match")).to_be_in_viewport(ratio=1)
    assert (await box_of(page.locator(".lanebar")))["height"] <= 76
    assert await page.evaluate(COVERED) == []


async def test_a_phone_has_room_to_write_while_a_call_waits(bus: Bus, served: Served, page: "Page") -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await waiting_for_approval(bus.session("s1"), "Clean up", "rm")
    await visit(page, served, "#/s/s1")
    await expect(page.get_by_role("button", name="Skip and send…")).to_be_in_viewport(ratio=1)
    box = await box_of(page.get_by_label("Message to the agent"))
    assert box["right"] - box["x"] > 200
