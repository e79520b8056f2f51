"""The log of a session in Chromium: only the rows in view are drawn, and every entry can be reached."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    Bus,
    ExtensionMessage,
    Session,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.bus.messages import (
    AgentEnded,
    AgentStarted,
    MessageStarted,
    RequestDefined,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from lanebus.bus.messages import TurnStarted as Started
from lanebus.handlers.projections import Views
from lanebus.handlers.serve.api import turns
from lanebus.handlers.serve.api.turns import timeline_view
from lanebus.messages import ThinkingBlock, TurnId
from tests.support.page.browsing import ON_A_BROWSER, Locator, Page, Seen, SharedBrowser, browsing, expect, visit
from tests.support.page.log import show_all_events, walk
from tests.support.page.serving import Served, serving, temporary_bus

pytestmark = ON_A_BROWSER

ROWS = 10_000
MOST_ELEMENTS = 3_000


@asynccontextmanager
async def opened(
    browser: SharedBrowser, *, width: int = 1400, height: int = 900
) -> AsyncGenerator[tuple[Bus, Page, Seen, str]]:
    """Yield a bus, a page that is logged in, what it must not do, and the address of a session."""
    async with (
        temporary_bus() as bus,
        serving(bus) as served,
        browsing(browser, width=width, height=height) as (page, seen),
    ):
        await page.goto(served.url)
        yield bus, page, seen, f"{served.base}/#/s/s1"


def row(page: Page, position: int) -> Locator:
    return page.locator(f".row[data-position='{position}']")


def _messages(number: int) -> list[UserMessage | ExtensionMessage | AssistantMessage | ToolResultMessage]:
    """Return the ten messages of one turn."""
    turn = TurnId(loop_id="s1.main.1", turn_index=number)
    call = ToolCallBlock(id=f"c{number}", name="search", arguments={"query": f"thing {number}", "limit": 20})
    table = "| a | b |\n|---|---|\n| 1 | **2** |\n\n```python\ndef f(x: int) -> str:\n    return f'{x}'\n```"
    text = table if number % 3 == 0 else f"Let me *look* at `{number}`."
    return [
        UserMessage.text(f"question {number}"),
        Started(turn_id=turn).as_extension(),
        MessageStarted(turn_id=turn, message_id=f"m{number}").as_extension(),
        AssistantMessage(turn_id=turn, content=(ThinkingBlock(text="hm"), TextBlock(text=text), call)),
        ToolStarted(turn_id=turn, tool_call_id=call.id, tool_name=call.name).as_extension(),
        ExtensionMessage.of("progress", {"percent": number}),
        ToolResultMessage.of(call, json.dumps({"hits": [{"path": "a.py"}, {"path": "b.py"}], "number": number})),
        ToolEnded(turn_id=turn, tool_call_id=call.id, tool_name=call.name, is_error=False).as_extension(),
        TurnEnded(turn_id=turn, stop_reason="toolUse", usage=Usage()).as_extension(),
        ExtensionMessage.of("tick", {"number": number}),
    ]


async def _fill(session: Session, entries: int = ROWS) -> None:
    for start in range(0, entries, 1000):
        await session.publish(*(one for turn in range(start // 10, start // 10 + 100) for one in _messages(turn)))


# --- many entries -------------------------------------------------------------------------------------------------


async def _scroll(page: Page) -> None:
    """Scroll up by some seventy screens, a frame at a time.

    Down, they may reach the end and so follow it: rows that are not loaded yet have estimated heights.
    """
    await page.evaluate("""async () => {
      const box = document.querySelector(".scroll");
      for (let step = 0; step < 200; step += 1) {
        box.scrollTop -= step % 2 ? 120 : 600;
        await new Promise((go) => requestAnimationFrame(go));
      }
    }""")


@pytest.mark.full
async def test_ten_thousand_entries_keep_the_document_small_while_the_user_scrolls(
    bus: Bus, served: Served, page: Page
) -> None:
    await page.goto(served.url)
    session = bus.session("s1")
    await _fill(session)
    await page.goto(f"{served.base}/#/s/s1")
    await expect(row(page, ROWS)).to_be_in_viewport()
    await page.goto(f"{served.base}/#/s/s1?at=5001")
    await expect(row(page, 5001)).to_be_in_viewport()
    await _scroll(page)
    assert await page.evaluate("document.querySelectorAll('*').length") <= MOST_ELEMENTS

    await page.locator(".toend").click()
    await expect(row(page, ROWS)).to_be_in_viewport()
    await session.publish(UserMessage.text("the newest"))
    await expect(page.get_by_text("the newest")).to_be_in_viewport()
    await page.locator(".scroll").evaluate("box => { box.scrollTop = 0 }")
    await expect(row(page, 1)).to_be_in_viewport()
    await session.publish(UserMessage.text("while reading"))
    await expect(page.locator(".toend")).to_have_text("1 new ↓")
    await expect(row(page, 1)).to_be_in_viewport()
    await page.locator(".toend").click()
    await expect(page.get_by_text("while reading")).to_be_in_viewport()


async def test_a_walk_through_the_log_meets_every_entry_once_and_in_order_from_its_first_one_that_is_kept(
    bus: Bus, served: Served, page: Page
) -> None:
    await page.goto(served.url)
    await _fill(bus.session("s1"), 1000)
    await page.goto(f"{served.base}/#/s/s1?at=508")
    await expect(row(page, 508)).to_be_in_viewport()
    await expect(row(page, 508).locator(".kind")).to_have_text("tool.ended")
    await expect(page.locator(".turnrow[aria-expanded='true']")).to_have_count(1)

    await page.set_viewport_size({"width": 1400, "height": 2400})
    await show_all_events(page)
    walked = await walk(page)
    assert walked.positions == list(range(1, 1001))

    await bus.session("s1").trim(before=801)
    await visit(page, served, "#/s/s1?at=1")
    await expect(page.get_by_text("Entries up to #800 were trimmed")).to_be_visible()
    assert (await walk(page)).positions == list(range(801, 1001))


async def test_a_link_opens_the_log_at_its_entry_which_stays_in_place_while_others_arrive(
    bus: Bus, served: Served, page: Page
) -> None:
    await page.goto(served.url)
    session = bus.session("s1")
    await _fill(session, 2000)
    await page.goto(f"{served.base}/#/s/s1?at=404")
    target = row(page, 404)
    await expect(target).to_be_in_viewport()
    await expect(target).to_have_class("row llm target")
    await expect(page.locator(".loading")).to_have_count(0)
    before = await target.bounding_box()
    await session.publish(*_messages(500))
    await expect(page.locator(".toend")).to_have_text("10 new ↓")
    after = await target.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) < 2
    await page.reload()
    await expect(target).to_be_in_viewport()
    # The number of each entry is a link to it.
    await row(page, 407).locator(".spine a").click()
    await expect(row(page, 407)).to_have_class("row llm target")
    assert page.url.endswith("#/s/s1?at=407")


async def test_a_log_opens_in_its_middle_while_the_first_view_of_the_session_takes_long(
    bus: Bus, served: Served, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, over = anyio.Event(), anyio.Event()
    view = timeline_view

    async def slow(views: Views, session: Session, limit: int = 200, *, first: int | None = None) -> object:
        asked.set()
        await over.wait()
        return await view(views, session, limit, first=first)

    monkeypatch.setattr(turns, "timeline_view", slow)
    await page.goto(served.url)
    await _fill(bus.session("s1"), 2000)
    await page.goto(f"{served.base}/#/s/s1?at=404")
    await expect(row(page, 404)).to_be_in_viewport()
    with anyio.fail_after(60):
        await asked.wait()
    # A browser sends six requests to a server at a time: the views may take one of them.
    await page.goto(f"{served.base}/#/s/s1?at=1404")
    await expect(row(page, 1404)).to_be_in_viewport()
    await page.goto(f"{served.base}/#/s/s1?at=1004")
    await expect(row(page, 1004)).to_be_in_viewport()
    await expect(page.locator(".loading")).to_have_count(0)
    over.set()
    await expect(page.locator(".turns .turn").first).to_be_visible()


# --- turns --------------------------------------------------------------------------------------------------------


async def test_the_events_of_a_turn_are_one_row_that_unfolds(bus: Bus, served: Served, page: Page) -> None:
    await page.goto(served.url)
    turn = TurnId(loop_id="s1.main.1", turn_index=3)
    await bus.session("s1").publish(
        AgentStarted(loop_id=turn.loop_id, agent="support").as_extension(),
        *_messages(3),
        AgentEnded(loop_id=turn.loop_id, stop_reason="stop", turns=1, usage=Usage()).as_extension(),
    )
    await page.goto(f"{served.base}/#/s/s1")
    turns = page.locator(".turnrow")
    await expect(turns).to_have_count(1)
    await expect(turns).to_contain_text("turn 3 · 1 tool")
    await expect(turns).to_have_attribute("aria-expanded", "false")
    await expect(page.locator(".event .kind")).to_have_text(["progress", "tick"])
    assert (await walk(page)).positions == [1, 2, 5, 7, 8, 11]
    await turns.click()
    await expect(turns).to_have_attribute("aria-expanded", "true")
    assert (await walk(page)).positions == list(range(1, 13))
    await turns.click()
    await show_all_events(page)
    assert (await walk(page)).positions == list(range(1, 13))
    await page.reload()
    await expect(page.get_by_label("All events")).to_be_checked()


async def test_rows_count_a_restarted_call_once_leave_out_what_a_framework_stores_and_show_imported_times(
    bus: Bus, served: Served, page: Page
) -> None:
    await page.goto(served.url)
    turn = TurnId(loop_id="s1.main.1", turn_index=0)
    starts = [ToolStarted(turn_id=turn, tool_call_id="c1", tool_name="rm", attempt=each) for each in (1, 2)]
    await bus.session("s1").publish(
        AgentStarted(loop_id=turn.loop_id, agent="main").as_extension(),
        Started(turn_id=turn).as_extension(),
        *(start.as_extension() for start in starts),
    )
    await page.goto(f"{served.base}/#/s/s1")
    await expect(page.locator(".turnrow")).to_contain_text("turn 0 · 1 tool")

    message = UserMessage.text("long ago").model_copy(update={"timestamp": 1_700_000_000_000})
    await bus.session("s2").publish(message, imported=True)
    await bus.session("s2").publish(message)
    await page.goto(f"{served.base}/#/s/s2")
    await expect(row(page, 1).locator("time")).to_have_attribute("title", re.compile("2023"))
    await expect(row(page, 1).locator(".day")).to_contain_text("2023")
    await expect(row(page, 2).locator(".day")).not_to_contain_text("2023")

    # The definition of a request is folded into the turn that it is for.
    turns = [TurnId(loop_id="s4.main.1", turn_index=index) for index in range(2)]
    defined = [RequestDefined(hash=name, provider="p", model="m", max_tokens=9).as_extension() for name in "ab"]
    await bus.session("s4").publish(
        UserMessage.text("hi"),
        AgentStarted(loop_id=turns[0].loop_id, agent="a").as_extension(),
        defined[0],
        Started(turn_id=turns[0]).as_extension(),
        ExtensionMessage.of("tick", 1),
        defined[1],  # the tools have changed
        Started(turn_id=turns[1]).as_extension(),
    )
    await page.goto(f"{served.base}/#/s/s4")
    await expect(page.locator(".turnrow")).to_have_count(2)
    assert (await walk(page)).positions == [1, 2, 5, 6]
    await page.locator(".turnrow").last.click()
    assert (await walk(page)).positions == [1, 2, 5, 6, 7]
    await page.goto(f"{served.base}/#/s/s4?at=3")
    await expect(page.locator(".row[data-position='3'] .kind")).to_have_text("request.defined")

    await bus.session("s3").publish(
        UserMessage.text("first"),
        ExtensionMessage.of("store.langgraph.checkpoint", {"step": 1}),
        ExtensionMessage.of("store", {"step": 2}),
        ExtensionMessage.of("store.a2a.saved", {"step": 3}),
        UserMessage.text("last"),
    )
    await page.goto(f"{served.base}/#/s/s3")
    await expect(row(page, 5)).to_be_visible()
    assert (await walk(page)).positions == [1, 3, 5]
    await page.goto(f"{served.base}/#/s/s3?at=2")
    await expect(row(page, 2)).to_be_in_viewport()
    assert (await walk(page)).positions == [1, 2, 3, 5]
    await show_all_events(page)
    assert (await walk(page)).positions == [1, 2, 3, 4, 5]


# --- find ---------------------------------------------------------------------------------------------------------


async def test_find_goes_to_matches_in_the_whole_log_and_unfolds_them(bus: Bus, served: Served, page: Page) -> None:
    await page.goto(served.url)
    session = bus.session("s1")
    await session.publish(UserMessage.text("\n".join(f"line {number}" for number in range(90)) + "\nNeedle"))
    await _fill(session, 2000)
    await session.publish(AssistantMessage(content=(ThinkingBlock(text="first\na needle in thoughts"),)))
    await page.goto(f"{served.base}/#/s/s1")
    await expect(row(page, 2002)).to_be_in_viewport()
    await page.locator(".scroll").focus()
    await page.keyboard.press("/")
    box = page.get_by_label("Find in the session")
    await expect(box).to_be_focused()
    await box.fill("needle")
    words = page.locator(".findwords")
    await expect(words).to_have_text("2 found")
    await box.press("Enter")
    await expect(words).to_have_text("2 of 2")
    await expect(row(page, 2002).get_by_text("a needle in thoughts")).to_be_visible()
    await box.press("Enter")
    await expect(words).to_have_text("1 of 2")
    await expect(row(page, 1)).to_be_in_viewport()
    await expect(row(page, 1)).to_contain_text("Needle")
    marked = "CSS.highlights.get('lanebus-find')?.size"

    async def is_marked() -> bool:
        return bool(await page.evaluate(marked) == 1)

    with anyio.fail_after(60):
        while not await is_marked():
            await anyio.lowlevel.checkpoint()
    await box.press("Shift+Enter")
    await expect(row(page, 2002)).to_be_in_viewport()
    await box.fill("nowhere to be found")
    await expect(words).to_have_text("not found")
    await box.press("Escape")
    await expect(box).to_have_value("")
    # The names of a message's own fields are no matches, and those of a tool are.
    call = ToolCallBlock(id="c", name="search", arguments={"type": "special", "options": [{"limit": 20}]})
    await bus.session("s2").publish(AssistantMessage(content=(TextBlock(text="hello"), call)))
    await page.goto(f"{served.base}/#/s/s2")
    await expect(row(page, 1)).to_be_visible()
    for text, found in {
        "argum": "not found",
        "text": "not found",
        "content": "not found",
        "0": "not found",  # the place in a list
        "limit": "1 found",
        "20": "1 found",
        "special": "1 found",
    }.items():
        await box.fill(text)
        await expect(words).to_have_text(found)


SEEN = """(position) => {
  const box = document.querySelector(".scroll").getBoundingClientRect();
  const row = document.querySelector(`.row[data-position="${position}"]`);
  const found = [...(CSS.highlights.get("lanebus-find") ?? [])].filter((range) => row?.contains(range.startContainer));
  return found.some((range) => {
    const { left, top, width, height } = range.getClientRects()[0] ?? { width: 0 };
    if (width === 0 || top < box.top || top + height > box.bottom) return false;
    const at = document.elementFromPoint(left + width / 2, top + height / 2);
    return at !== null && (at.contains(range.startContainer) || range.intersectsNode(at));
  });
}"""


def _needles() -> list[UserMessage | ExtensionMessage | AssistantMessage | ToolResultMessage]:
    """Return messages that hold a text once each, where the page folds, cuts or does not draw it."""

    def said(*blocks: TextBlock | ThinkingBlock | ToolCallBlock) -> AssistantMessage:
        return AssistantMessage(content=blocks)

    lines = "\n".join(f"line {number}" for number in range(90))
    long = "word " * 100
    items: list[JsonValue] = [{"at": number, "name": f"item {number}"} for number in range(80)]
    call = ToolCallBlock(id="c0", name="search", arguments={})
    return [
        UserMessage.text(f"{lines}\nneedle\n{lines}"),
        UserMessage.text(f"{lines}\n{'x' * 150_000} needle"),
        said(ThinkingBlock(text=f"first\n{lines}\nneedle")),
        said(ToolCallBlock(id="c1", name="search", arguments={"deep": [{"options": [*items, {"word": "needle"}]}]})),
        said(ToolCallBlock(id="c2", name="search", arguments={"deep": {f"a needle {number}": 1 for number in [7]}})),
        said(ToolCallBlock(id="c3", name="search", arguments={"query": {"long": f"{long} needle"}})),
        said(ToolCallBlock(id="c4", name="run", arguments={"python": "x = client.nee" + "dle(1)\n" + lines})),
        said(ToolCallBlock(id="c5", name="search_" * 20 + "needle", arguments={})),
        said(ToolCallBlock(id=f"{'c' * 200}needle", name="search", arguments={})),
        ToolResultMessage.of(call, json.dumps({"hits": [*items, {"path": [[["a needle"]]]}]})),
        ToolResultMessage.of(call, f"{lines}\nneedle"),
        ToolResultMessage(
            tool_call_id="c6", tool_name="t", content=(TextBlock(text="ok"),), structured={"a": "needle"}
        ),
        said(TextBlock(text="[a link](https://host.example/path/to/needle)")),
        said(TextBlock(text=f"```python\n{'call(); ' * 60}needle()\n```")),
        said(*(TextBlock(text=f"block {number}") for number in range(60)), TextBlock(text="needle")),
        ExtensionMessage.of("progress", {"text": f"{long} needle"}),
        ExtensionMessage.of("progress", {"steps": [{"inner": {"word": "needle"}}]}),
        ExtensionMessage.of("a-very-long-name." * 12 + "needle", 1),
    ]


@pytest.mark.parametrize("width", [1400, 390])
async def test_every_match_is_marked_where_the_user_sees_it(bus: Bus, served: Served, page: Page, width: int) -> None:
    messages = _needles()
    await page.set_viewport_size({"width": width, "height": 900})
    await page.goto(served.url)
    await bus.session("s1").publish(*messages)
    await page.goto(f"{served.base}/#/s/s1")
    await expect(row(page, len(messages))).to_be_visible()
    box, words = page.get_by_label("Find in the session"), page.locator(".findwords")
    await box.fill("needle")
    await expect(words).to_have_text(f"{len(messages)} found")
    await page.locator(".scroll").evaluate("(box) => box.scrollTo(0, 0)")
    for at in range(1, len(messages) + 1):
        await box.press("Enter")
        while await words.inner_text() != f"{at} of {len(messages)}" and at == 1:
            await box.press("Enter")  # it begins at what is in view
        await expect(words).to_have_text(f"{at} of {len(messages)}")
        await page.wait_for_function(SEEN, arg=at)
    folded = row(page, 3).get_by_text("thinking", exact=True)
    await box.fill("first")
    await expect(words).to_have_text("1 found")
    for _ in range(2):  # a match that was folded again unfolds again
        await box.press("Enter")
        await expect(row(page, 3).locator("details")).to_have_attribute("open", "")
        await folded.click()
        await expect(row(page, 3).locator("details[open]")).to_have_count(0)


async def test_a_scroll_that_is_reported_after_the_log_is_gone_is_ignored(bus: Bus, served: Served, page: Page) -> None:
    await page.goto(served.url)
    await bus.session("s1").publish(*(UserMessage.text(f"question {number}") for number in range(40)))
    await page.goto(f"{served.base}/#/s/s1")
    await expect(row(page, 40)).to_be_visible()
    box = await page.locator(".scroll").element_handle()
    await page.get_by_role("tab", name="Timeline").click()
    await expect(page.locator(".scroll")).to_have_count(0)
    assert box is not None
    await box.evaluate("(box) => box.dispatchEvent(new Event('scroll'))")
