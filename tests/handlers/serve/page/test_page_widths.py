"""The page in Chromium at all widths, in both colour schemes: what has room, and no finding of axe-core."""

from pathlib import Path
from typing import Literal

import anyio
import pytest

from lanebus import (
    AssistantMessage,
    Bus,
    ExtensionMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from lanebus.messages import ThinkingBlock
from tests.support.page.browsing import ON_A_BROWSER, Locator, Page, Seen, expect, visit, visit_session
from tests.support.page.recorded import record_loops
from tests.support.page.samples import answered, waiting_for_approval
from tests.support.page.serving import Served, serving

pytestmark = ON_A_BROWSER


async def box_of(found: Locator) -> dict[str, float]:
    await expect(found).to_be_visible()
    box = await found.bounding_box()
    assert box is not None
    return {"x": box["x"], "right": box["x"] + box["width"], "height": box["height"]}


async def test_both_lanes_are_beside_each_other_in_the_window_of_a_laptop(bus: Bus, served: Served, page: Page) -> None:
    await bus.session("s1").publish(UserMessage.text("hello"), ExtensionMessage.of("tick", {"number": 1}))
    await visit(page, served, "#/s/s1")
    for width in (1000, 1100, 1180, 1220, 1221, 1280, 1366, 1400, 1401, 1920):
        await page.set_viewport_size({"width": width, "height": 900})
        await expect(page.get_by_role("heading", name="Turns")).to_be_visible(visible=width > 1220)
        said, event = await box_of(page.locator(".message")), await box_of(page.locator(".event"))
        assert (width, said["right"] < event["x"]) == (width, True)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True


async def test_nothing_is_wider_than_the_window_and_box_and_buttons_are_in_view(
    bus: Bus, served: Served, page: Page
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


async def test_a_phone_shows_costs_and_toolbars_that_hide_nothing_and_has_room_to_write_while_a_call_waits(
    bus: Bus, served: Served, page: Page
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
    await waiting_for_approval(bus.session("s2"), "Clean up", "rm")
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto(f"{served.base}/#/s/s2")
    await expect(page.get_by_role("button", name="Skip and send…")).to_be_in_viewport(ratio=1)
    box = await box_of(page.get_by_label("Message to the agent"))
    assert box["right"] - box["x"] > 200


async def reached(page: Page, wanted: Locator) -> None:
    """Fail unless an element can be pressed where it is, and nothing is wider than the window."""
    await wanted.scroll_into_view_if_needed()
    await expect(wanted).to_be_in_viewport(ratio=0.99)  # a zoomed page may cut off half a pixel
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("window", [(390, 844, 3), (720, 450, 2)], ids=["phone", "zoom of 200 %"])
async def test_a_session_is_scrubbed_compared_forked_and_redriven_in_a_small_window(
    bus: Bus, served: Served, page: Page, window: tuple[int, int, int], scheme: Literal["light", "dark"]
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


RUN = """async () => (await axe.run()).violations.flatMap((found) =>
  found.nodes.map((node) => `${found.id}: ${node.target.join(" ")}: ${node.failureSummary}`))"""


async def findings(page: Page, axe: str) -> list[str]:
    await page.evaluate(axe)
    found: list[str] = await page.evaluate(RUN)
    return found


@pytest.mark.parametrize("scheme", ["Light colours", "Dark colours"])
@pytest.mark.parametrize("width", [1440, 768, 390])
async def test_axe_finds_nothing_in_any_place(
    bus: Bus, served: Served, page: Page, referees: Path, *, width: int, scheme: str, seen: Seen
) -> None:
    axe = (referees / "node_modules/axe-core/axe.min.js").read_text()
    await page.set_viewport_size({"width": width, "height": 900})
    await answered(bus.session("s1", agent="support"), "What is 17 × 23?", "It is 391.")
    await bus.session("s2").publish(UserMessage.text("hello"))
    await bus.session("s2").close(reason="done")
    await waiting_for_approval(bus.session("s3"), "Clean up", "rm")
    await page.goto(served.url)
    theme = page.get_by_role("button", name="colours. Change")
    while scheme not in (await theme.get_attribute("aria-label") or ""):
        await theme.click()
    places = {
        "#/s/s1": ".row[data-position='2']",
        "#/s/s2": ".sessionhead .closed",
        "#/s/s3": ".ask .whole",
        "#/inbox": ".waitingcall .whole",
        "#/sessions": ".session",
    }
    found: dict[str, list[str]] = {}
    for place, shown in places.items():
        await page.goto(f"{served.base}/{place}")
        await expect(page.locator(shown).first).to_be_visible()
        found[place] = await findings(page, axe)
    await page.goto(f"{served.base}/#/s/s1")
    await expect(page.locator(places["#/s/s1"]).first).to_be_visible()
    for tab in await page.get_by_role("tab").all():
        await tab.click()
        await expect(page.locator("#view")).not_to_contain_text("Loading")
        found[await tab.inner_text()] = await findings(page, axe)
    await page.get_by_role("button", name="Keyboard shortcuts").click()
    found["help"] = await findings(page, axe)
    await page.keyboard.press("Escape")
    await page.goto(f"{served.base}/#/s/s1")
    await page.get_by_role("button", name="Operate this session").click()
    found["menu"] = await findings(page, axe)
    await page.get_by_role("button", name="Hand over to an agent").click()
    found["dialog"] = await findings(page, axe)
    await page.keyboard.press("Escape")
    if width < 1180:
        await page.get_by_role("button", name="Turns and cost").click()
        found["turns"] = await findings(page, axe)
    assert {place: told for place, told in found.items() if told} == {}
    seen.forget()


UNFOLD = """() => new Promise((done) => {
  const folded = "details:not([open]) > summary, [aria-expanded=false], .rawswitch[aria-pressed=false]";
  document.querySelectorAll(`.rows :is(${folded})`).forEach((one) => one.click());
  requestAnimationFrame(() => requestAnimationFrame(done));
})"""
TABLE = "| name | value |\n|---|---|\n| a | 1 |\n"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
async def test_axe_finds_nothing_where_calls_wait_in_what_is_unfolded_and_in_the_views_of_time(
    bus: Bus, page: Page, referees: Path, *, width: int, scheme: Literal["light", "dark"], seen: Seen
) -> None:
    axe = (referees / "node_modules/axe-core/axe.min.js").read_text()
    found: dict[str, list[str]] = {}
    async with serving(bus, reader_token="reader") as served:
        await page.set_viewport_size({"width": width, "height": 900})
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await page.goto(f"{served.base}/#token=wrong")
        await expect(page.locator(".login .trouble")).to_be_visible()
        found["login"] = await findings(page, axe)
        await visit(page, served, "#/inbox")
        await expect(page.get_by_text("Nothing waits for you")).to_be_visible()
        found["empty inbox"] = await findings(page, axe)
        for name in ("s1", "s2"):  # calls of one name
            await waiting_for_approval(bus.session(name), "Clean up", "rm", "rm")
        last = await record_loops(bus.session("s3"), loops=2, approved=0, failed=1)
        lines = "\n".join(f"line {number}" for number in range(60))
        call = ToolCallBlock(id="c1", name="edit", arguments={"old_str": "a", "new_str": "b", "more": [{"deep": [1]}]})
        await bus.session("s3").publish(
            AssistantMessage(content=(ThinkingBlock(text=lines), TextBlock(text=lines), call), stop_reason="error"),
            ToolResultMessage.of(call, '{"hits": [{"path": "a.py", "text": "a long enough text"}]}', is_error=True),
            ExtensionMessage.of("progress", {"percent": 40}),
            UserMessage.text(f"{TABLE}\n{TABLE}\n```python\nx = 1\n```\n\n> [a link](https://host.example/needle)"),
        )
        await expect(page.locator(".waitingcall .whole")).to_have_count(4)
        found["inbox"] = await findings(page, axe)
        await page.goto(f"{served.base}/#/s/s1")
        await expect(page.locator(".ask .whole")).to_have_count(2)
        found["two calls wait"] = await findings(page, axe)
        await page.get_by_label("Message to the agent").fill("hello")
        await page.get_by_role("button", name="Skip and send").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        found["question"] = await findings(page, axe)
        await page.keyboard.press("Escape")
        await page.goto(f"{served.base}/#/s/s3")
        await expect(page.locator(".row .md table")).to_have_count(2)
        box = page.get_by_label("Find in the session")
        await box.fill("needle")
        await expect(page.locator(".findwords")).to_have_text("1 found")
        await box.press("Enter")
        await expect(page.locator(".foundin")).to_be_visible()
        found["a match"] = await findings(page, axe)
        for position in (3, last + 1, last + 3):
            await page.goto(f"{served.base}/#/s/s3?at={position}")
            await expect(page.locator(f".row[data-position='{position}']")).to_be_visible()
            for _ in range(3):
                await page.evaluate(UNFOLD)
            found[f"unfolded at {position}"] = await findings(page, axe)
        last = await record_loops(bus.session("s4"), loops=2, approved=0, failed=1, child="s4-child")
        for view, shown in {
            "timeline?at=9&past=1": ".tl-row[aria-selected='true']",
            "context?at=16&past=1": ".cx-item",
            f"compare?a=9&b={last}": ".cp-rows .cx-item",
            "log?at=20&past=1": ".row.later",
        }.items():
            await visit_session(page, served, f"s4/{view}")
            await expect(page.locator(shown).first).to_be_visible()
            if view.startswith("timeline"):
                await page.get_by_role("button", name="Charts").click()
                await expect(page.locator(".tl-chart canvas").first).to_be_visible()
            found[view] = await findings(page, axe)
        await page.goto(f"{served.base}/#/s/s3")
        for operation in ("Delete old entries", "Close", "Fork the session"):
            await page.get_by_role("button", name="Operate this session").click()
            await page.get_by_role("button", name=operation).click()
            await expect(page.get_by_role("dialog")).to_be_visible()
            found[operation] = await findings(page, axe)
            await page.keyboard.press("Escape")
        await page.goto(f"{served.base}/#token=reader")
        await page.goto(f"{served.base}/#/s/s1")
        await expect(page.locator(".onlooker")).to_be_visible()
        found["a reader"] = await findings(page, axe)
        await page.emulate_media(color_scheme=None, reduced_motion="reduce")
        assert {place: told for place, told in found.items() if told} == {}
    seen.forget()


async def test_axe_would_find_a_button_without_a_name(served: Served, page: Page, referees: Path) -> None:
    axe = (referees / "node_modules/axe-core/axe.min.js").read_text()
    await page.goto(served.url)
    await expect(page.locator(".sessions")).to_be_visible()
    await page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert [told.partition(":")[0] for told in await findings(page, axe)] == ["button-name"]


async def test_the_page_names_its_modules_at_once_loads_each_once_and_transfers_at_most_165_kilobytes(
    served: Served, page: Page, seen: Seen
) -> None:
    await page.goto(served.url)
    await expect(page.locator(".sessions")).to_be_visible()
    loaded = [url.partition("/static/app/")[2] for url in seen.requests if "/static/app/" in url]
    named: list[str] = await page.locator("link[rel=modulepreload][href*='/app/']").evaluate_all(
        "found => found.map((one) => one.getAttribute('href').split('/app/')[1])"
    )
    assert sorted(loaded) == sorted({"main.js", *named})
    assert "session_page.js" in named
    sizes: dict[str, int] = await page.evaluate(
        "Object.fromEntries(performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
        ".filter((one) => !one.name.includes('/api/')).map((one) => [one.name, one.transferSize]))"
    )
    assert any(name.endswith("/app/main.js") for name in sizes)
    assert 0 < sum(sizes.values()) <= 165_000  # the bundle of a wheel has 70 kB
