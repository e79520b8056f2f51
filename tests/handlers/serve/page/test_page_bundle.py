"""The modules of the page, and its bundle in a wheel: how browsers keep it, and open it in few requests."""

import json
import re
import sys
import unicodedata
from pathlib import Path

import pytest

from lanebus import AssistantMessage, Bus, TextBlock
from lanebus.bus.messages import Delta
from lanebus.bus.wire import DecodeFailure
from lanebus.handlers.projections import UNSAFE, Views
from lanebus.handlers.serve.api.turns import timeline_view
from tests.support.node.running import run_node
from tests.support.page.browsing import Page, Seen, SharedBrowser, expect
from tests.support.page.bundled import make_bundle
from tests.support.page.recorded import record_loops
from tests.support.page.serving import Served, client_of, serving, temporary_bus
from tests.support.paths import ROOT

FILES = """() => performance.getEntriesByType("resource").filter((one) => one.name.includes("/static/"))
  .map((one) => [one.name, one.transferSize])"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def kept_and_sent(page: Page) -> tuple[set[str], set[str]]:
    """Return the names of the page's files that came from the browser's cache, and of those that were sent."""
    found: list[tuple[str, int]] = await page.evaluate(FILES)
    names = {name.rpartition("/")[2]: size for name, size in found}
    return {name for name, size in names.items() if not size}, {name for name, size in names.items() if size}


# --- its files ----------------------------------------------------------------------------------------------------


def test_the_same_sources_give_the_same_bundle(bundled_page: Path, tmp_path: Path) -> None:
    assert contents(make_bundle(tmp_path / "again")) == contents(bundled_page)


def test_the_bundle_names_none_of_the_sources_and_no_file_that_it_lacks(bundled_page: Path) -> None:
    found = contents(bundled_page)
    document = found["index.html"].decode()
    named = re.findall(r'"/static/([^"]+)"', document)
    assert set(named) <= found.keys()
    assert 3 <= len(named) <= 4
    assert all(re.search(r"-[0-9A-Z]{8}\.(?:js|css)$", name) for name in found.keys() - {"index.html", "favicon.svg"})
    imported = {name for text in found.values() for name in re.findall(rb'"\./([^"]+-[0-9A-Z]{8}\.js)"', text)}
    assert {f"app/{name.decode()}" for name in imported} <= found.keys()
    assert b"<svg" in found["favicon.svg"]


def test_the_rules_of_every_vendored_language_are_loaded_with_the_first_code() -> None:
    app = ROOT / "handlers/serve/static/app"
    vendored = {path.name for path in (app.parent / "vendor/@speed-highlight/core/languages").iterdir()}
    assert set(re.findall(r'/languages/(\w+\.js)"', (app / "languages.js").read_text())) == vendored


@pytest.mark.usefixtures("bundled_page")
async def test_files_named_by_their_content_are_kept_for_a_year_and_the_document_is_asked_for_again() -> None:
    async with temporary_bus() as bus, serving(bus, base_path="/lanebus") as served, client_of(served) as client:
        document = await client.get("/")
        assert document.headers["cache-control"] == "no-cache"
        policy = document.headers["content-security-policy"].split("; ")
        assert "script-src 'self'" in policy  # an import map would need a hash
        named = re.findall(r'"/lanebus(/static/app/[^"]+)"', document.text)
        assert len(named) >= 2
        for path, status, kept in (
            *((path, 200, "max-age=31536000, immutable") for path in named),
            ("/static/favicon.svg", 200, "no-cache"),
            ("/static/app/main-ABCDEFGH.js", 404, "no-store"),
        ):
            reply = await client.get(path)
            assert (path, reply.status_code, reply.headers["cache-control"]) == (path, status, kept)


# --- in a browser -------------------------------------------------------------------------------------------------


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.usefixtures("bundled_page")
@pytest.mark.parametrize("base_path", ["", "/tools/lanebus"])
async def test_the_bundle_opens_in_few_requests_and_again_from_the_cache(
    bus: Bus, page: Page, seen: Seen, base_path: str
) -> None:
    async with serving(bus, base_path=base_path) as served:
        await page.goto(served.url)
        await expect(page.locator(".sessions")).to_be_visible()
        assert await page.locator("h1 img").evaluate("(icon) => icon.naturalWidth") > 0
        over_http = [url for url in seen.requests if not url.startswith("data:")]
        assert len(over_http) <= 8, over_http
        kept, sent = await kept_and_sent(page)
        assert not kept
        assert {name.partition("-")[0] for name in sent} >= {"main", "page"}
        await page.reload()
        await expect(page.locator(".sessions")).to_be_visible()
        again, asked = await kept_and_sent(page)
        assert again == sent
        assert not asked
        assert seen.off_origin(served.base) == []


@pytest.mark.full
@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("scripts", ["slow", "forbidden"])
async def test_the_page_says_something_before_its_scripts_run(
    browser: SharedBrowser, served: Served, scripts: str
) -> None:
    context = await browser.started.new_context(java_script_enabled=scripts == "slow")
    try:
        page = await context.new_page()
        await page.route("**/*.js", lambda route: None)  # never answered
        await page.goto(served.url, wait_until="commit")
        if scripts == "slow":
            await expect(page.locator("#app")).to_have_text("Connecting…")
        else:
            await expect(page.locator("noscript")).to_be_visible()
            await expect(page.locator("#app > .loading")).to_be_hidden()
    finally:
        await context.close()


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.usefixtures("bundled_page")
async def test_the_bundle_loads_markdown_languages_and_views_when_they_are_needed(bus: Bus, page: Page) -> None:
    async with serving(bus, base_path="/lanebus") as served:
        await page.goto(served.url)  # no session yet: the page would open it
        await expect(page.locator(".sessions")).to_be_visible()
        late = ("languages", "marked.esm", "views", "uPlot.esm")
        assert not {name.partition("-")[0] for name in (await kept_and_sent(page))[1]} & {*late}
        await record_loops(bus.session("s1"), turns=3)
        code = AssistantMessage(content=(TextBlock(text='**Look**:\n\n```python\nprint("x")\n```'),))
        await bus.session("s1").publish(code)
        await page.goto(f"{served.base}/#/s/s1")
        await expect(page.locator(".md strong")).to_have_text("Look")
        await expect(page.locator(".md .s-str")).to_have_text('"x"')
        await page.get_by_role("tab", name="Context").click()
        await expect(page.locator("#view")).not_to_contain_text("Loading")
        await page.get_by_role("tab", name="Timeline").click()
        await page.get_by_role("button", name="Charts").click()
        await expect(page.locator(".tl-chart .uplot canvas")).to_have_count(3)
        assert {name.partition("-")[0] for name in (await kept_and_sent(page))[1]} >= {*late}


APP = ROOT / "handlers/serve/static/app"


async def test_a_timeline_at_a_past_position_has_the_rows_of_a_log_that_ends_there(
    referees: Path, tmp_path: Path
) -> None:
    async with temporary_bus() as bus:
        whole, session, views = bus.session("whole"), bus.session("s1"), Views()
        await record_loops(whole, loops=2, turns=3, approved=0, failed=1, child="s1-child")
        timelines = list[object]()
        async for envelope in whole.read():
            assert not isinstance(envelope.message, DecodeFailure | Delta)
            await session.publish(envelope.message)
            timelines.append(await timeline_view(views, session))
    found = tmp_path / "timelines.json"
    found.write_text(json.dumps(timelines))
    said = json.loads(await run_node(referees, Path(__file__).parent / "timeline_at.mjs", str(APP), str(found)))
    assert said["differ"] == []
    assert said["rows"] > 15
    assert said["open"] > 40


async def test_the_layout_of_the_log_learns_the_height_of_a_position_from_what_is_loaded(referees: Path) -> None:
    found = json.loads(await run_node(referees, Path(__file__).parent / "layout.mjs", str(APP)))
    whole = 10_000 * 24
    assert found["whole"] == whole
    assert found["arriving"] == whole  # the newest page was drawn before all of it had arrived
    assert found["other"] == pytest.approx(whole, rel=0.02)  # less what is not loaded of the newest page
    assert (found["start"], found["middle"], found["at"]) == (0, whole / 2, 5001)
    assert whole - 240 <= found["end"] <= whole
    assert found["long"] > 10_000 * 24  # a page within one turn says nothing of the others
    assert found["mixed"] == pytest.approx(found["mean"])


async def test_the_page_and_the_terminal_escape_the_same_characters(referees: Path) -> None:
    found = json.loads(await run_node(referees, Path(__file__).parent / "unseen.mjs", str(APP)))
    page = {number for first, last in found for number in range(first, last + 1)}
    terminal = {number for number in range(sys.maxunicode + 1) if UNSAFE.match(chr(number))}
    # A character that one of the two does not know yet may be a letter of a newer Unicode.
    unknown = {number for number in terminal ^ page if unicodedata.category(chr(number)) == "Cn"}
    assert [f"U+{number:04X}" for number in sorted((terminal ^ page) - unknown)] == []
    assert {0x2800, 0x16FE4, 0x1D159, 0x13430, 0xE000, 0xFE0F, 0x202E} <= terminal & page
