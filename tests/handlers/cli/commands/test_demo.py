"""`lanebus demo` as users see it: the process that `make demo` starts, and its page in Chromium."""

import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.streams.text import TextReceiveStream

from tests.support.page.browsing import ON_A_BROWSER, expect
from tests.support.page.log import show_all_events
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = ON_A_BROWSER

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/#token=\S+")


@asynccontextmanager
async def demo(data_dir: Path) -> AsyncGenerator[str]:
    """Run the demo on a free port. Yield its address, and end it by Ctrl-C."""
    command = [sys.executable, "-m", "lanebus.handlers.cli", "demo", "--port", "0", "--data-dir", str(data_dir)]
    process = await anyio.open_process(command, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, stderr=None)
    try:
        assert process.stdout is not None
        printed, found = "", None
        with anyio.fail_after(120):
            async for text in TextReceiveStream(process.stdout):
                printed += text
                if found := ADDRESS.search(printed):
                    break
        assert found is not None, printed
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        with anyio.CancelScope(shield=True), anyio.fail_after(120):
            assert await process.wait() == 130


async def test_the_demo_answers_with_a_tool_and_no_reload_or_ctrl_c_loses_it(page: "Page", short_dir: Path) -> None:
    async with demo(short_dir) as address:
        await page.goto(address)
        await page.get_by_role("button", name="New session").click()
        box = page.get_by_label("Message to the agent")
        await box.press_sequentially("What is 17 × 23?")
        await box.press("Enter")
        await expect(page.locator(".turn .status").nth(1)).to_have_text("completed", timeout=120_000)
        await expect(page.locator(".row.llm .left").filter(has_text="calculate").first).to_be_visible()
        await expect(page.locator(".row.llm .left").last).to_contain_text("17 × 23 is 391")
        await show_all_events(page)
        await expect(page.locator(".row.extension .kind").last).to_have_text("ended")
        rows = await page.locator(".row[data-position] .spine span").all_text_contents()
        assert rows == [str(number) for number in range(1, len(rows) + 1)]
        before = await page.locator(".rows").text_content()
        await page.reload()
        await expect(page.locator(f".row[data-position='{len(rows)}']")).to_be_attached()
        assert await page.locator(".rows").text_content() == before
        await page.goto("about:blank")  # before the server ends
    async with demo(short_dir) as address:
        await page.goto(address)
        await expect(page.locator(".row.llm .left").first).to_contain_text("What is 17 × 23?")
        await page.goto("about:blank")
