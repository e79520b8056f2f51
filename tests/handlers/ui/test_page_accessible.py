"""The page has no finding of axe-core, in any place, in both colour schemes and at three widths."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lanebus import UserMessage
from tests.support.node.running import referees
from tests.support.page.browsing import ON_A_BROWSER, SharedBrowser, browsing, expect
from tests.support.page.samples import answered, waiting_for_approval
from tests.support.page.serving import serving, temporary_bus

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ("referees",)

pytestmark = [*ON_A_BROWSER, pytest.mark.needs("referees")]

RUN = """async () => (await axe.run()).violations.flatMap((found) =>
  found.nodes.map((node) => `${found.id}: ${node.target.join(" ")}: ${node.failureSummary}`))"""


async def findings(page: "Page", axe: str) -> list[str]:
    await page.evaluate(axe)
    found: list[str] = await page.evaluate(RUN)
    return found


@pytest.mark.drawn("width", "scheme")
@pytest.mark.parametrize("scheme", ["Light colours", "Dark colours"])
@pytest.mark.parametrize("width", [1440, 768, 390])
async def test_axe_finds_nothing_in_any_place(browser: SharedBrowser, referees: Path, width: int, scheme: str) -> None:
    axe = (referees / "node_modules/axe-core/axe.min.js").read_text()
    async with temporary_bus() as bus, serving(bus) as served, browsing(browser, width=width) as (page, _):
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


async def test_axe_would_find_a_button_without_a_name(browser: SharedBrowser, referees: Path) -> None:
    axe = (referees / "node_modules/axe-core/axe.min.js").read_text()
    async with temporary_bus() as bus, serving(bus) as served, browsing(browser) as (page, _):
        await page.goto(served.url)
        await expect(page.locator(".sessions")).to_be_visible()
        await page.evaluate("document.querySelector('main').append(document.createElement('button'))")
        assert [told.partition(":")[0] for told in await findings(page, axe)] == ["button-name"]


async def test_the_page_names_its_modules_at_once_and_loads_each_once(browser: SharedBrowser) -> None:
    async with temporary_bus() as bus, serving(bus) as served, browsing(browser) as (page, seen):
        await page.goto(served.url)
        await expect(page.locator(".sessions")).to_be_visible()
        loaded = [url.partition("/static/app/")[2] for url in seen.requests if "/static/app/" in url]
        named: list[str] = await page.locator("link[rel=modulepreload][href*='/app/']").evaluate_all(
            "found => found.map((one) => one.getAttribute('href').split('/app/')[1])"
        )
        assert sorted(loaded) == sorted({"main.js", *named})
        assert "session_page.js" in named
        assert seen.errors == []


async def test_the_page_transfers_at_most_150_kilobytes(browser: SharedBrowser) -> None:
    async with temporary_bus() as bus, serving(bus) as served, browsing(browser) as (page, _):
        await page.goto(served.url)
        await expect(page.locator(".sessions")).to_be_visible()
        sizes: dict[str, int] = await page.evaluate(
            "Object.fromEntries(performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
            ".filter((one) => !one.name.includes('/api/')).map((one) => [one.name, one.transferSize]))"
        )
        assert any(name.endswith("/app/main.js") for name in sizes)
        assert 0 < sum(sizes.values()) <= 150_000
