"""Malformed and hostile entries on the page in Chromium, on a real bus and a real server."""

import random

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from lanebus import Bus, ExtensionMessage, UserMessage
from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.json_reader import read_delta
from lanebus.handlers.serve.bounds import UiBounds
from tests.support.page.browsing import ON_A_BROWSER, Page, Seen, SharedBrowser, browsing, expect, visit
from tests.support.page.serving import Served, serving, temporary_bus
from tests.support.page.xss import PAYLOADS

pytestmark = ON_A_BROWSER

KINDS = (
    *("agent.started", "agent.ended", "agent.turn.started", "agent.turn.ended", "agent.message.started"),
    *("agent.message.ended", "agent.tool.started", "agent.tool.updated", "agent.tool.ended", "agent.progress"),
    *("agent.input.rejected", "agent.tool.waiting", "agent.control.answered", "agent.session.linked"),
    *("control.steer", "control.abort", "control.approve", "control.deny", "progress", "anything"),
)
FIELDS = (
    *("toolName", "turnId", "loopId", "turnIndex", "stopReason", "turns", "rejection", "agent", "continuation"),
    *("trigger", "message", "position", "isError", "outcome", "reason", "text", "control", "why", "parent", "child"),
    *("when", "by", "to", "toolCallId", "data", "kind", "toString", "constructor", "__proto__", "length"),
)
NO_DATA: tuple[JsonValue, ...] = (None, 5, True, "x", [], [[]], {}, 1e300, -1, "\u202e")

MALFORMED: tuple[JsonValue, ...] = (5, {"toolName": 5, "reason": 5}, {"toolName": {}, "reason": []}, [1], "x", None)


def drawn_value(random: random.Random, depth: int = 0) -> JsonValue:
    if depth > 2 or random.random() < 0.6:
        return random.choice((*NO_DATA, *PAYLOADS))
    if random.random() < 0.3:
        return [drawn_value(random, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(FIELDS): drawn_value(random, depth + 1) for _ in range(random.randrange(6))}


async def is_alive(page: Page, position: int) -> None:
    """Wait until the page shows the entry at a position."""
    await expect(page.locator(f'[data-position="{position}"]')).to_have_count(1, timeout=60_000)


async def test_a_malformed_event_does_not_hide_the_entries_after_it(bus: Bus, served: Served, page: Page) -> None:
    session = bus.session("s1")
    await visit(page, served, "#/s/s1")
    for kind in ("agent.tool.started", "agent.input.rejected", "agent.progress"):
        for data in MALFORMED:
            await session.publish(ExtensionMessage.of(kind, data))
    await session.publish(ExtensionMessage.of("agent.ended", {"turns": {}, "stopReason": [[]]}))
    receipt = await session.publish(UserMessage.text("still here"))
    await is_alive(page, receipt.position)
    await expect(page.locator(".row.llm", has_text="still here")).to_have_count(1)


async def test_a_row_that_cannot_be_drawn_is_shown_as_json_among_the_others(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    session = bus.session("s1")
    await session.publish(UserMessage.text("one"), UserMessage.text("two"), UserMessage.text("three"))

    # No message of the bus has this form: it stands for what a later version or a foreign client writes.
    frames = "".join(
        f'event: entry\nid: {at}-0\ndata: {{"position":{at},"delta":0,"lane":"llm","time":1,"message":{body}}}\n\n'
        for at, body in (
            *((1, '{"role":"user","content":5}'), (2, "null"), (3, '{"role":"user","content":[null]}')),
            (4, '{"role":"user","content":[{"type":"text","text":"still here"}]}'),
        )
    )
    await page.route("**/events?*", lambda route: route.fulfill(body=frames, content_type="text/event-stream"))
    await visit(page, served, "#/s/s1")
    await expect(page.locator(".row.llm", has_text="still here")).to_have_count(1)
    await expect(page.locator(".row.broken")).to_have_count(3)
    seen.forget()


async def test_a_delta_with_a_huge_block_is_refused_by_the_codec_and_ignored_by_the_page(
    browser: SharedBrowser,
) -> None:
    with pytest.raises(DecodeError, match="block"):
        read_delta(b'{"role":"delta","kind":"text","messageId":"m","delta":"x","block":200000000}')
    async with temporary_bus() as bus, serving(bus) as served, browsing(browser) as (page, _):
        await page.goto(served.url)
        found = await page.evaluate("""async () => {
            const { Previews } = await import("/static/app/previews.js");
            const previews = new Previews();
            for (const block of [200_000_000, -1, 1.5, "length", {}, 4294967295])
                for (const delta of ["x", "y"])
                    previews.add({ messageId: "m1", kind: "text", delta, block });
            previews.add({ kind: "text", delta: "x" });
            previews.add({ messageId: "m2", kind: "text", delta: "x", block: 3 });
            return previews.list().map((one) => [one.id, one.blocks.length]);
        }""")
    assert found == [["m2", 4]]


@pytest.mark.parametrize("count", [500, 10_000])
async def test_a_page_that_gets_random_events_shows_the_next_entry(
    bus: Bus, page: Page, seen: Seen, count: int
) -> None:
    seeded = random.Random(20_261_123)  # noqa: S311  # no secret
    patient = UiBounds(wait_seconds=120)  # a request that waits longer for the folds of others is answered with 503
    async with serving(bus, bounds=patient) as served:
        session = bus.session("s1")
        await session.publish(UserMessage.text("start"))
        await visit(page, served, "#/s/s1")
        await is_alive(page, 1)
        for _ in range(count // 100):
            events = [ExtensionMessage.of(seeded.choice(KINDS), drawn_value(seeded)) for _ in range(100)]
            await session.publish(*events)
            await anyio.lowlevel.checkpoint()
        receipt = await session.publish(UserMessage.text("still here"))
        await is_alive(page, receipt.position)
        await expect(page.locator(".row.llm", has_text="still here")).to_have_count(1)
        assert (seen.dialogs, seen.off_origin(served.base), seen.errors) == ([], [], [])


WIDE_TABLE = "a|" * 550 + "\n" + "-|" * 550 + "\n" + "|\n" * 21 + "|"
COSTLY = {
    "wide table": WIDE_TABLE,
    "many tables": "a|b\n-|-\nc|d\n\n" * 149,
    "quoted table": "".join(f"> {line}\n" for line in WIDE_TABLE.split("\n")),
    "table with other line ends": WIDE_TABLE.replace("\n", "\r"),
    "lines with other ends": "- a\r" * 6_000,
    "marks of emphasis": "*!!!!" * 599 + "!" * 17_000,
    "marks in paragraphs": ("*!!!!" * 590 + "\n\n") * 6,
    "name of an address": "a." * 9_900 + "@",
    "emphasised letters": ("*a* " * 140 + "\n\n") * 30,
    "lists in lists": ("- " * 15 + "a\n") * 590,
    "angles": "<" * 19_000,
    "code": ("```py\n" + "1+" * 90 + "\n```\n") * 100,
    "difference": "@@ -1 +1 @@\n" + "+\n" * 50_000,
}
"""texts of which a drawing, or the library that reads them, would take very long"""

DRAW_BLOCKS = """async (blocks) => {
  const { h, render } = await import("preact");
  const { Blocks } = await import("/static/app/blocks.js");
  await import("marked");
  const place = document.body.appendChild(document.createElement("div"));
  place.id = "drawn";
  render(h(Blocks, { blocks }), place);
}"""


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 55])
async def test_a_text_of_many_parts_becomes_few_elements_also_if_an_entry_has_many_such_texts(
    served: Served, page: Page, count: int
) -> None:
    await page.goto(served.url)
    for name, text in COSTLY.items():
        await page.evaluate("document.getElementById('drawn')?.remove()")
        texts = [text, "**the last**"] if count == 1 else [text] * count
        await page.evaluate(DRAW_BLOCKS, [{"type": "text", "text": each} for each in texts])
        if count == 1:  # a text that costs little is drawn as Markdown beside one that costs much
            await expect(page.locator("#drawn strong", has_text="the last")).to_have_count(1)
        else:
            await expect(page.get_by_role("button", name="Show more (5 blocks)")).to_have_count(1)
        folded = "#drawn button[aria-expanded=false]"
        await page.evaluate(f"document.querySelectorAll('{folded}').forEach((each) => each.click())")
        await expect(page.locator(folded)).to_have_count(0)
        number = await page.locator("#drawn *").count()
        assert (name, number < 12_000) == (name, True), number


async def test_a_message_of_many_blocks_and_arguments_is_drawn_in_steps(served: Served, page: Page) -> None:
    call: JsonValue = {"type": "toolCall", "id": "c1", "name": "t", "arguments": {f"key{at}": at for at in range(300)}}
    texts: list[JsonValue] = [{"type": "text", "text": f"**number {at}**"} for at in range(119)]
    await page.goto(served.url)
    await page.evaluate(DRAW_BLOCKS, [call, *texts])
    await expect(page.locator("#drawn .arguments > div")).to_have_count(51)
    strong = page.locator("#drawn strong")
    await expect(strong).to_have_count(49)
    for name, number in (("Show more (70 blocks)", 99), ("Show more (20 blocks)", 119)):
        await page.get_by_role("button", name=name).click()
        await expect(strong).to_have_count(number)
    await expect(page.get_by_role("button", name="Show more")).to_have_count(0)
