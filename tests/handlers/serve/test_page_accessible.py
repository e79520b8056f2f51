"""The page has no finding of axe-core, in any place, in both colour schemes and at three widths."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

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
from tests.support.page.browsing import ON_A_BROWSER, Seen, expect, visit
from tests.support.page.recorded import record_loops
from tests.support.page.samples import answered, waiting_for_approval
from tests.support.page.serving import Served, serving

if TYPE_CHECKING:
    from playwright.async_api import Page


pytestmark = [*ON_A_BROWSER, pytest.mark.needs("referees")]

RUN = """async () => (await axe.run()).violations.flatMap((found) =>
  found.nodes.map((node) => `${found.id}: ${node.target.join(" ")}: ${node.failureSummary}`))"""


async def findings(page: "Page", axe: str) -> list[str]:
    await page.evaluate(axe)
    found: list[str] = await page.evaluate(RUN)
    return found


@pytest.mark.parametrize("scheme", ["Light colours", "Dark colours"])
@pytest.mark.parametrize("width", [1440, 768, 390])
async def test_axe_finds_nothing_in_any_place(
    bus: Bus, served: Served, page: "Page", referees: Path, *, width: int, scheme: str, seen: Seen
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
async def test_axe_finds_nothing_where_calls_wait_and_in_what_is_unfolded(
    bus: Bus, page: "Page", referees: Path, *, width: int, scheme: Literal["light", "dark"], seen: Seen
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


async def test_axe_would_find_a_button_without_a_name(served: Served, page: "Page", referees: Path) -> None:
    axe = (referees / "node_modules/axe-core/axe.min.js").read_text()
    await page.goto(served.url)
    await expect(page.locator(".sessions")).to_be_visible()
    await page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert [told.partition(":")[0] for told in await findings(page, axe)] == ["button-name"]


async def test_the_page_names_its_modules_at_once_loads_each_once_and_transfers_at_most_165_kilobytes(
    served: Served, page: "Page", seen: Seen
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
