"""The pictures of the README and the documentation, of a session that shows what the page is for.

LANEBUS_PICTURE=docs pytest tests/handlers/serve/page/test_page_pictures.py
"""

import os
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from lanebus import Bus
from tests.support.page.browsing import ON_A_BROWSER, Page, expect, visit
from tests.support.page.serving import Served
from tests.support.page.showcase import SHOWN, showcase

pytestmark = ON_A_BROWSER

FOLDER = os.environ.get("LANEBUS_PICTURE")
"""folder that gets the pictures; None makes none"""

COLOURS = 160


async def picture(page: Page, name: str) -> None:
    """Save what the page shows, as a small file."""
    if FOLDER is None:
        return
    await page.evaluate("document.fonts.ready")
    whole = Image.open(BytesIO(await page.screenshot())).convert("RGB")
    whole.quantize(COLOURS, dither=Image.Dither.NONE).save(Path(FOLDER) / name, optimize=True)


@pytest.mark.full
async def test_a_session_shows_its_tools_its_approval_its_cost_and_what_the_model_saw(
    bus: Bus, served: Served, page: Page
) -> None:
    async with showcase(bus, pace=0 if FOLDER is None else 1):
        await page.set_viewport_size({"width": 1440, "height": 900})
        await visit(page, served, f"#/s/{SHOWN}?at=19")
        await expect(page.locator(".turn .status").nth(3)).to_have_text("completed")
        await expect(page.locator(".row[data-position='19']")).to_be_in_viewport()
        turn = page.locator(".turnrow", has_text="turn 1")
        await turn.click()
        await expect(page.get_by_text("maria").first).to_be_visible()
        await picture(page, "page.png")
        await page.goto(f"{served.base}/#/s/{SHOWN}/timeline")
        await expect(page.locator(".tl-row", has_text="waits for approval")).to_be_visible()
        await page.get_by_role("button", name="Charts").click()
        await expect(page.locator(".tl-chart canvas")).to_have_count(3)
        await page.get_by_role("treegrid").evaluate("(grid) => { grid.scrollTop = 0 }")
        await expect(page.locator(".tl-row[aria-rowindex='2']")).to_be_in_viewport()
        await picture(page, "timeline.png")
        await page.emulate_media(color_scheme="dark")
        await page.goto(f"{served.base}/#/s/{SHOWN}/context?at=17&past=1")
        await expect(page.locator(".cx-item").first).to_be_visible()
        await picture(page, "context.png")
        await page.emulate_media(color_scheme="light")
