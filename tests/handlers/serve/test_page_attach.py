"""Files in the page's box for messages, in Chromium: attached by button, paste and drop, uploaded, removed and sent."""

import base64
import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from lanebus import Bus
from lanebus.bus.messages import Lane
from lanebus.handlers.serve.bounds import UiBounds
from lanebus.handlers.serve.uploads.folder import UploadBounds
from lanebus.messages import DocumentBlock, ImageBlock, TextBlock, UserMessage
from tests.support.page.browsing import ON_A_BROWSER, SharedBrowser, browsing, expect, visit
from tests.support.page.serving import serving
from tests.support.servers.real import eventually

if TYPE_CHECKING:
    from playwright.async_api import FileChooser, FilePayload, Page, Route


pytestmark = ON_A_BROWSER

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)

GIVE = """({kind, name, type, text}) => {
  const given = new DataTransfer();
  given.items.add(new File([text], name, { type }));
  const target = document.querySelector(".composer textarea");
  const about = { bubbles: true, cancelable: true };
  target.dispatchEvent(kind === "paste"
    ? new ClipboardEvent("paste", { ...about, clipboardData: given })
    : new DragEvent(kind, { ...about, dataTransfer: given }));
}"""


def payload(name: str, mime_type: str, data: bytes) -> "FilePayload":
    return {"name": name, "mimeType": mime_type, "buffer": data}


def leave(_: "FileChooser") -> None:
    """Leave a file chooser to the test."""


@asynccontextmanager
async def opened(
    browser: SharedBrowser, bus: Bus, bounds: UiBounds | None = None, uploads: Path | None = None
) -> "AsyncGenerator[Page]":
    """Open the page at session s1.

    Playwright begins to catch file choosers when the first listener is added, and does not wait until Chromium does.
    In a slow browser the chooser opens before that, and its event never comes. So a listener is added first.
    """
    async with (
        serving(bus, bounds=bounds or UiBounds(), uploads=uploads) as served,
        browsing(browser) as (page, _),
    ):
        page.on("filechooser", leave)
        await visit(page, served, "#/s/s1")
        await expect(page.get_by_role("button", name="Attach files")).to_be_enabled()
        yield page
        page.remove_listener("filechooser", leave)


async def messages(bus: Bus) -> list[UserMessage]:
    found = [each.message async for each in bus.session("s1").read(lanes={Lane.LLM})]
    return [each for each in found if isinstance(each, UserMessage)]


async def test_files_are_attached_by_button_paste_and_drop_and_sent_with_a_text(
    browser: SharedBrowser, bus: Bus
) -> None:
    async with opened(browser, bus) as page:
        async with page.expect_file_chooser() as chosen:
            await page.get_by_role("button", name="Attach files").click()
        await (await chosen.value).set_files([payload("a.png", "image/png", PICTURE)])
        await page.evaluate(GIVE, {"kind": "paste", "name": "b.csv", "type": "text/csv", "text": "x,y"})
        await page.evaluate(GIVE, {"kind": "drop", "name": "c.txt", "type": "text/plain", "text": "hello"})
        listed = page.get_by_role("list", name="Attached files").get_by_role("listitem")
        await expect(listed).to_have_count(3)
        await expect(page.locator(".composer .unseen")).to_have_text("3 of 3 files are uploaded")
        await page.get_by_label("Message to the agent").fill("look")
        await page.get_by_role("button", name="Send").click()
        await expect(listed).to_have_count(0)
        picture = page.locator(".row img.picture")
        await expect(picture).to_be_visible()
        (sent,) = await messages(bus)
        text, image, table, note = sent.content
        assert text == TextBlock(text="look")
        assert isinstance(image, ImageBlock)
        assert isinstance(table, DocumentBlock)
        assert isinstance(note, DocumentBlock)
        assert (image.media.sha256, image.media.mime_type) == (hashlib.sha256(PICTURE).hexdigest(), "image/png")
        assert [(each.media.filename, each.media.mime_type) for each in (table, note)] == [
            ("b.csv", "text/csv"),
            ("c.txt", "text/plain"),
        ]


async def test_a_removed_file_is_not_sent_and_its_upload_is_deleted(
    browser: SharedBrowser, bus: Bus, tmp_path: Path
) -> None:
    async with opened(browser, bus, uploads=tmp_path / "u") as page:
        chooser = page.get_by_label("Files to attach")
        await chooser.set_input_files([payload("a.txt", "text/plain", b"one"), payload("b.txt", "text/plain", b"two")])
        await expect(page.locator(".composer .unseen")).to_have_text("2 of 2 files are uploaded")
        await page.get_by_role("button", name="Remove a.txt").click()
        await eventually(lambda: len([*(tmp_path / "u").rglob("*.json")]) == 1)
        send = page.get_by_role("button", name="Send")
        await expect(send).to_be_enabled()  # without a text too
        await send.click()
        await expect(page.locator(".row .media")).to_contain_text("b.txt")
        (sent,) = await messages(bus)
        assert [getattr(each, "type", "") for each in sent.content] == ["document"]


async def test_the_progress_is_shown_and_a_lost_piece_is_sent_again(browser: SharedBrowser, bus: Bus) -> None:
    bounds = UiBounds(uploads=UploadBounds(piece_bytes=20_000))
    async with opened(browser, bus, bounds) as page:
        is_free, lost = anyio.Event(), list[str]()

        async def hold(route: "Route") -> None:
            if "offset=20000" in route.request.url and not lost:
                lost.append(route.request.url)
                await is_free.wait()
                await route.abort()
            else:
                await route.continue_()

        await page.route("**/uploads/**", hold)
        data = b"\x89PNG\r\n\x1a\n" + bytes(50_000)
        await page.get_by_label("Files to attach").set_input_files([payload("a.png", "image/png", data)])
        progress = page.get_by_role("progressbar", name="Upload of a.png")
        await expect(progress).to_have_js_property("value", 20_000)
        await expect(page.get_by_role("button", name="Send")).to_be_disabled()
        is_free.set()
        await expect(page.locator(".composer .unseen")).to_have_text("1 of 1 files are uploaded")
        await expect(progress).to_have_count(0)
        assert len(lost) == 1


async def test_a_refused_file_says_why_and_can_be_uploaded_again(browser: SharedBrowser, bus: Bus) -> None:
    bounds = UiBounds(uploads=UploadBounds(file_bytes=10, files=1))
    async with opened(browser, bus, bounds) as page:
        chooser = page.get_by_label("Files to attach")
        await chooser.set_input_files([payload("large\u202e.txt", "text/plain", bytes(11))])
        listed = page.get_by_role("list", name="Attached files")
        await expect(listed).to_contain_text("over the limit of 10 bytes")
        await expect(listed).to_contain_text("large⟨U+202E⟩.txt")
        await page.get_by_role("button", name="Remove large").click()
        await chooser.set_input_files([payload("a.txt", "text/plain", b"a")])
        await expect(page.locator(".composer .unseen")).to_have_text("1 of 1 files are uploaded")
        await chooser.set_input_files([payload("b.txt", "text/plain", b"b")])
        await expect(listed).to_contain_text("your uploads would exceed 1 files")
        await page.get_by_role("button", name="Remove a.txt").click()
        await page.get_by_role("button", name="Upload again").click()
        await expect(page.locator(".composer .unseen")).to_have_text("1 of 1 files are uploaded")


@pytest.mark.needs("referees")
async def test_files_work_by_keyboard_and_axe_finds_nothing(browser: SharedBrowser, bus: Bus, referees: Path) -> None:
    axe = (referees / "node_modules/axe-core/axe.min.js").read_text()
    async with opened(browser, bus, UiBounds(uploads=UploadBounds(file_bytes=10))) as page:
        box = page.get_by_label("Message to the agent")
        await expect(box).to_be_visible()
        await page.keyboard.press("m")
        await expect(box).to_be_focused()
        await box.press("Escape")
        await expect(box).not_to_be_focused()
        async with page.expect_file_chooser() as chosen:
            await page.keyboard.press("u")
        await (await chosen.value).set_files(
            [payload("a.txt", "text/plain", b"a"), payload("large.txt", "text/plain", bytes(11))]
        )
        await expect(page.locator(".composer .unseen")).to_have_text("1 of 2 files are uploaded, 1 failed")
        await page.evaluate(axe)
        found: list[str] = await page.evaluate(
            "async () => (await axe.run()).violations.flatMap((one) => one.nodes.map((node) => one.id + node.target))"
        )
        assert found == []
        await page.get_by_role("button", name="Remove large.txt").press("Enter")
        await box.press("Enter")
        await expect(page.locator(".row .media")).to_contain_text("a.txt")
