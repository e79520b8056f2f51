"""The views of time of the page in Chromium: timeline, scrub bar, context and compare. They say only what is known."""

import re

from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    Bus,
    SystemMessage,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from tests.support.page.browsing import ON_A_BROWSER, Locator, Page, Seen, expect, visit_session
from tests.support.page.recorded import record_loops
from tests.support.page.serving import Served
from tests.support.page.xss import PAYLOADS

pytestmark = ON_A_BROWSER


def rows(page: Page) -> Locator:
    return page.locator(".tl-rows > .tl-row")


def row(page: Page, name: str) -> Locator:
    return rows(page).filter(has_text=name).first


# --- the timeline -------------------------------------------------------------------------------------------------


async def test_the_timeline_shows_loops_turns_calls_tools_waits_and_sub_agents_in_order(
    bus: Bus, served: Served, page: Page
) -> None:
    await record_loops(bus.session("s1"), turns=2, approved=0, child="s1-child")
    await visit_session(page, served, "s1/timeline")
    await expect(page.get_by_role("treegrid")).to_be_visible()
    await expect(rows(page)).to_have_count(8)
    names = [re.sub(r"\s+", " ", text) for text in await rows(page).locator(".tl-name").all_inner_texts()]
    kinds = [
        re.sub(r".*\bk-(\w+).*", r"\1", name or "")
        for name in [await each.get_attribute("class") for each in await rows(page).all()]
    ]
    assert kinds == ["loop", "turn", "model", "tool", "wait", "session", "turn", "model"]
    assert "planner" in names[0]
    assert "by maria" in names[4]
    assert "s1-child" in names[5]
    assert await rows(page).nth(4).get_attribute("aria-level") == "4"
    await expect(page.locator(".tl-facts").first).to_contain_text("$0.0200")


async def test_rows_link_to_entries_and_are_moved_through_folded_and_opened_by_the_keyboard(
    bus: Bus, served: Served, page: Page
) -> None:
    await record_loops(bus.session("s1"), loops=2, turns=3)
    await visit_session(page, served, "s1/timeline")
    entry = row(page, "search").locator(".tl-entry")
    position = int((await entry.inner_text()).removeprefix("#"))
    await entry.click()
    await expect(page.locator(f".row[data-position='{position}']")).to_be_visible()
    assert page.url.endswith(f"#/s/s1?at={position}")
    await page.get_by_role("tab", name="Timeline").click()
    chosen = page.locator(".tl-row[aria-selected='true']")
    await expect(chosen).to_contain_text("search")
    await expect(page.get_by_role("complementary", name="The selected row")).to_contain_text("completed")

    await record_loops(bus.session("s2"), turns=3)
    await visit_session(page, served, "s2/timeline")
    grid = page.get_by_role("treegrid")
    await expect(rows(page)).to_have_count(9)
    await grid.focus()
    await grid.press("Home")
    await grid.press("ArrowDown")
    chosen = page.locator(".tl-row[aria-selected='true']")
    await expect(chosen).to_contain_text("turn 0")
    assert await grid.get_attribute("aria-activedescendant") == await chosen.get_attribute("id")
    await grid.press("ArrowLeft")
    await expect(chosen).to_have_attribute("aria-expanded", "false")
    await expect(rows(page)).to_have_count(7)
    await grid.press("ArrowRight")
    await expect(rows(page)).to_have_count(9)
    await expect(page.get_by_role("button", name="Auto")).to_have_attribute("aria-pressed", "true")
    await grid.press("+")
    await expect(page.get_by_role("button", name="Auto")).to_have_attribute("aria-pressed", "false")
    await grid.press("Enter")
    await expect(page.get_by_role("tab", name="Log")).to_have_attribute("aria-selected", "true")


async def test_a_thousand_turns_take_few_nodes_and_few_requests(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    last = await record_loops(bus.session("s1"), loops=100, turns=10)
    assert last >= 8_000
    await visit_session(page, served, "s1/timeline")
    await expect(row(page, "turn 9")).to_be_visible()
    await page.get_by_role("button", name="Load earlier").click()
    await expect(page.get_by_role("button", name=re.compile("^Load"))).to_have_count(0)  # "Loading…" until then
    await page.get_by_role("button", name=re.compile("old turns$")).click()
    grid = page.get_by_role("treegrid")
    await expect(grid).to_have_attribute("aria-rowcount", re.compile(r"^\d{4,}$"))  # the turns are unfolded
    await grid.press("Home")
    await expect(page.locator(".tl-row[aria-rowindex='2']")).to_be_visible()
    assert int(await grid.get_attribute("aria-rowcount") or 0) > 1_000
    assert await page.evaluate("document.querySelectorAll('*').length") <= 3_000
    assert len([url for url in seen.requests if "/timeline" in url and "/static/" not in url]) <= 8


UNFOLD_AND_HOME = """async (grid) => {
  const before = grid.getAttribute("aria-rowcount");
  const unfolded = new Promise((done) => {
    const seen = new MutationObserver(() => {
      if (grid.getAttribute("aria-rowcount") === before) return;
      seen.disconnect();
      grid.dispatchEvent(new KeyboardEvent("keydown", { key: "Home", bubbles: true, cancelable: true }));
      done();
    });
    seen.observe(grid, { attributes: true });
  });
  [...document.querySelectorAll(".tl-tools button")].find((one) => one.textContent === "Unfold turns").click();
  await unfolded;
}"""


async def test_home_shows_the_first_row_and_the_row_at_the_top_stays_there_when_rows_unfold(
    bus: Bus, served: Served, page: Page
) -> None:
    await record_loops(bus.session("s1"), loops=10, turns=10)
    await visit_session(page, served, "s1/timeline")
    await expect(row(page, "turn 9")).to_be_visible()
    grid = page.get_by_role("treegrid")
    rows_above = int(await grid.get_attribute("aria-rowcount") or 0)
    last = page.locator(".tl-row", has_text="model-1").last
    before = await last.evaluate("(row) => row.getBoundingClientRect().top")
    await page.get_by_role("button", name="Unfold turns").click()
    await expect(grid).not_to_have_attribute("aria-rowcount", str(rows_above))
    await expect(last).to_be_in_viewport()
    assert abs(await last.evaluate("(row) => row.getBoundingClientRect().top") - before) < 2

    await record_loops(bus.session("s2"), loops=10, turns=10)
    await visit_session(page, served, "s2/timeline")
    await expect(row(page, "turn 9")).to_be_visible()
    grid = page.get_by_role("treegrid")
    await grid.evaluate(UNFOLD_AND_HOME)
    first = page.locator(".tl-row[aria-rowindex='2']")
    await expect(first).to_be_in_viewport()
    await expect(first).to_have_attribute("aria-selected", "true")
    await grid.evaluate("(grid) => { grid.scrollTop = grid.scrollHeight }")
    await expect(first).to_have_count(0)
    await grid.press("Home")
    await expect(first).to_be_in_viewport()


async def test_the_charts_are_loaded_when_they_are_opened_and_say_their_values_in_words(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    await record_loops(bus.session("s1"), turns=4)
    await visit_session(page, served, "s1/timeline")
    await expect(row(page, "turn 3")).to_be_visible()
    assert not [url for url in seen.requests if "uplot.esm" in url.lower()]
    await page.get_by_role("button", name="Charts").click()
    await expect(page.locator(".tl-chart canvas")).to_have_count(3)
    await expect(page.get_by_role("img", name="Cost: $0.0400 up to turn 3")).to_be_visible()
    await expect(page.get_by_role("img", name="Cache hits: 90 % of the input of turn 3")).to_be_visible()
    assert seen.off_origin(served.base) == []


async def test_names_of_tools_models_and_agents_stay_text_in_every_view_of_time(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    session = bus.session("s1")
    evil = [each for each in PAYLOADS if "\0" not in each]
    for payload in (evil[0], evil[4], evil[7], evil[13]):
        await record_loops(session, turns=2, tool=payload, model=payload, agent=payload + "\u202egnp.exe", approved=0)
    for view in ("timeline?at=5", "context?at=12&past=1", "compare?a=5&b=30"):
        await visit_session(page, served, f"s1/{view}")
        await expect(page.locator(".tl-row, .cx-item, .cp-usage").first).to_be_visible()
        assert await page.locator("main :is(script, iframe, object, embed, base, form:not(.composer))").count() == 0
        assert await page.locator("main img").count() == 0
    await visit_session(page, served, "s1/timeline")
    await expect(rows(page).filter(has_text="⟨U+202E⟩").first).to_be_visible()
    assert seen.off_origin(served.base) == []


# --- time travel --------------------------------------------------------------------------------------------------


async def test_the_scrub_bar_takes_every_panel_to_a_position_and_live_returns(
    bus: Bus, served: Served, page: Page
) -> None:
    last = await record_loops(bus.session("s1"), loops=2, turns=2)
    await visit_session(page, served, "s1")
    await expect(page.locator(".turns .turn")).to_have_count(4)
    await expect(page.locator(".sums dd").first).to_have_text("$0.0400")
    bar = page.get_by_role("slider", name="Position")
    await expect(bar).to_have_value(str(last))
    await bar.fill("5")  # the answer of the first turn
    await expect(page.locator(".tm-then")).to_contain_text("At #5")
    await expect(page.locator(".tm-then")).to_contain_text("turn 0")
    await expect(page.locator(".turns .turn")).to_have_count(1)
    await expect(page.locator(".turn .status")).to_have_text("running")
    await expect(page.locator(".sums dd").first).to_have_text("$0.0100")
    await expect(page.get_by_label("Message to the agent")).to_be_hidden()
    assert "at=5" in page.url
    await page.get_by_role("tab", name="Timeline").click()
    await expect(page.locator(".tl-row.later").first).to_be_attached()
    await expect(bar).to_have_value("5")
    loop = page.locator(".tl-row.k-loop").first
    await expect(loop.locator(".tl-cost")).to_have_text("$0.0100")  # without the second turn
    await expect(page.locator(".tl-row:not(.later) .tl-bar.open")).to_have_count(2)  # the loop and its first turn
    await loop.click()
    await expect(page.get_by_role("complementary", name="The selected row")).to_contain_text("still ran at #5")
    await bar.press("ArrowRight")
    await expect(bar).to_have_value("6")
    await bar.press("PageUp")
    await expect(page.locator(".tm-then")).to_contain_text("turn 1")
    await page.get_by_role("button", name="Live", exact=True).click()
    await expect(page.locator(".tl-row.later, .tl-bar.open")).to_have_count(0)
    await expect(loop.locator(".tl-cost")).to_have_text("$0.0200")
    await expect(bar).to_have_value(str(last))
    await page.get_by_role("tab", name="Log").click()
    await expect(page.locator(".sums dd").first).to_have_text("$0.0400")
    await expect(page.get_by_label("Message to the agent")).to_be_visible()


MOVE_AND_COMPARE = """async (bar) => {
  bar.value = "5";
  bar.dispatchEvent(new Event("input", { bubbles: true }));
  const link = await new Promise((done) => {
    const find = () => document.querySelector(".tm-then a[href*='/compare']");
    const look = () => (find() ? done(find()) : requestAnimationFrame(look));
    look();
  });
  link.click();
  await new Promise((done) => setTimeout(done, 300)); // runs later than any timer that the bar has set by now
}"""


async def test_links_to_the_past_stay_open_after_a_reload_when_entries_arrive_and_when_the_bar_has_just_moved(
    bus: Bus, served: Served, page: Page
) -> None:
    last = await record_loops(bus.session("s1"), turns=2)
    await visit_session(page, served, "s1")
    bar = page.get_by_role("slider", name="Position")
    await expect(bar).to_have_value(str(last))
    await bar.evaluate(MOVE_AND_COMPARE)
    assert page.url.endswith(f"#/s/s1/compare?a=5&b={last}")
    await expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    await expect(bar).to_have_value(str(last))

    session = bus.session("s1")
    last = await record_loops(session, turns=2)
    await visit_session(page, served, "s1/timeline?at=6&past=1")
    bar = page.get_by_role("slider", name="Position")
    await expect(bar).to_have_value("6")
    await page.reload()
    await expect(bar).to_have_value("6")
    await session.publish(UserMessage.text("More"))
    await expect(bar).to_have_attribute("max", str(last + 1))
    await expect(bar).to_have_value("6")


# --- what the model saw -------------------------------------------------------------------------------------------


async def test_the_context_of_a_position_shows_what_is_new_and_a_recorded_request_is_copied_until_the_bar_moves(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    session = bus.session("s1")
    await session.publish(SystemMessage.text("Be brief."))
    await record_loops(session, turns=3)
    await visit_session(page, served, "s1/context?at=12&past=1")  # the second turn calls the model
    items = page.get_by_role("list", name="Messages").locator(".cx-item")
    await expect(items).to_have_count(2)
    await expect(items.first).to_contain_text("Look at 0.")
    await expect(items.first).to_contain_text("search")
    await expect(items.last).to_contain_text('"found": 3')
    await expect(page.locator(".cx-facts")).to_contain_text("+2")
    await expect(page.locator(".cx-facts")).to_contain_text("$0.0100")
    await page.get_by_role("button", name="2 unchanged items").click()
    await expect(items).to_have_count(4)
    await expect(items.first).to_contain_text("Be brief.")
    for provider in ("openai-chat", "openai-responses", "gemini", "anthropic"):
        await page.get_by_label("Provider").select_option(provider)
        await expect(page.locator(".cx-facts")).to_contain_text(f"{provider} · model-1")
        await expect(page.locator(".cx-item.added", has_text="search").first).to_be_visible()
    await page.get_by_role("button", name="JSON", exact=True).click()
    await expect(page.locator(".json")).to_contain_text("max_tokens")

    last = await record_loops(bus.session("s2"), turns=3)
    await visit_session(page, served, "s2/timeline")
    await row(page, "turn 1").click()
    await page.get_by_role("link", name="What the model saw").click()
    await expect(page.get_by_label("Recorded request")).to_be_checked()
    await expect(page.locator(".cx-facts")).to_contain_text("The request of turn 1")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Copy JSON").click()
    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert '"messages"' in await page.evaluate("navigator.clipboard.readText()")
    await page.context.clear_permissions()
    bar = page.get_by_role("slider", name="Position")
    await expect(bar).not_to_have_value(str(last))  # the position of the request
    await bar.press("ArrowLeft")
    await expect(page.get_by_label("Recorded request")).not_to_be_checked()
    await expect(page.locator(".cx-facts")).to_contain_text(f"after entry #{await bar.input_value()}")
    seen.forget()


# --- compare ------------------------------------------------------------------------------------------------------


async def test_two_positions_are_compared_by_entries_usage_and_context(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    last = await record_loops(bus.session("s1"), loops=2, turns=2)
    await visit_session(page, served, f"s1/compare?a=5&b={last}")
    await expect(page.locator(".cp-split")).to_contain_text("#5")
    cost = page.locator(".cp-usage tr", has_text="Cost").locator("td")
    await expect(cost).to_have_text(["$0.0100", "$0.0400", "+$0.0300"])
    await expect(page.locator(".cp-entries li")).to_have_count(last - 5)
    await expect(page.locator(".cp-rows .added").first).to_be_visible()
    await expect(page.locator(".cp-rows .removed")).to_have_count(0)
    await page.get_by_label("Left: position").fill(str(last))
    await page.get_by_label("Left: position").press("Enter")
    await expect(page.locator(".cp-entries li")).to_have_count(0)
    assert f"a={last}" in page.url

    call = ToolCallBlock(id="c0", name="write", arguments={"text": "a\ufeffb\u2028c\n\td\u00a0e"})
    await bus.session("s2").publish(UserMessage.text("hi"), AssistantMessage(content=(call,), stop_reason="toolUse"))
    await visit_session(page, served, "s2/compare?a=1&b=2")
    line = page.locator(".cp-entries li span")
    await expect(line).to_have_text("write text: a⟨U+FEFF⟩b⟨U+2028⟩c d e")
    assert all("400" in error for error in seen.errors)  # no context: the session names no model
    seen.forget()
    # An edit is a difference, also in a context.
    arguments: dict[str, JsonValue] = {"path": "a.py", "old_str": "one\ntwo", "new_str": "one\nthree", "deep": {"a": 1}}
    edit = ToolCallBlock(id="c1", name="edit", arguments=arguments)
    await bus.session("s3").publish(
        UserMessage.text("Change it"), AssistantMessage(content=(edit,), provider="anthropic", model="model-1")
    )
    for place in ("s3/compare?a=1&b=2", "s3/context?at=2"):
        await visit_session(page, served, place)
        shown = page.locator(".cx-call", has_text="edit")
        await expect(shown.locator(".d-add")).to_contain_text("three")
        await expect(shown.locator(".d-del")).to_contain_text("two")
        await expect(shown.locator("dt", has_text="path")).to_be_visible()
        await expect(shown).not_to_contain_text('old_str":')


async def test_a_fork_is_made_at_a_position_and_compared_with_its_origin(bus: Bus, served: Served, page: Page) -> None:
    last = await record_loops(bus.session("s1"), turns=3)
    await visit_session(page, served, "s1/timeline?at=10&past=1")
    await page.get_by_role("button", name="Fork here").click()
    await expect(page.locator(".sessionhead")).to_contain_text("fork of")
    fork = page.url.rpartition("/s/")[2].partition("?")[0]
    assert (await bus.session(fork).head()).position == 10
    await bus.session(fork).publish(UserMessage.text("Another way"))
    await visit_session(page, served, "s1/compare")
    await page.get_by_label("Session on the right").focus()
    await page.get_by_label("Session on the right").select_option(fork)
    await expect(page.locator(".cp-split")).to_contain_text("#10, where the fork begins")
    sides = page.locator(".cp-entries")
    await expect(sides.first.locator("li")).to_have_count(last - 10)
    await expect(sides.last.locator("li")).to_have_count(1)
    await expect(sides.last).to_contain_text("Another way")
    await expect(page.locator(".cp-rows")).to_contain_text("Another way")
    await expect(page.locator(".cp-usage caption")).to_have_text("Usage since #10")


async def test_an_imported_turn_tells_no_time_of_the_model(bus: Bus, served: Served, page: Page) -> None:
    asked, said = (1_000_000 + seconds * 1_000 for seconds in (0, 19))
    await bus.session("s1").publish(
        UserMessage.text("hi").model_copy(update={"timestamp": asked}),
        AssistantMessage.text("hello").model_copy(update={"timestamp": said, "model": "model-1"}),
        imported=True,
    )
    await visit_session(page, served, "s1/timeline")
    await expect(rows(page)).to_have_count(2)
    await expect(page.locator(".tl-facts").first).to_contain_text("– model")
    await expect(page.locator(".tl-row.k-model .tl-took")).to_have_text("–")


# --- an earlier position ------------------------------------------------------------------------------------------


async def test_rows_and_panels_say_only_what_was_known_at_an_earlier_position(
    bus: Bus, served: Served, page: Page
) -> None:
    await record_loops(bus.session("s1"), turns=2, approved=0)
    await visit_session(page, served, "s1?at=6&past=1")  # the model has answered
    first, second = page.locator(".turnrow").first, page.locator(".turnrow").last
    await expect(first.locator(".facts")).to_have_text("runs")
    await expect(first.locator(".tool")).to_have_count(0)
    await expect(second.locator(".facts")).to_contain_text("$0.0100")  # a later row is marked, and shown whole
    await expect(page.locator(".row.later", has=second)).to_have_count(1)
    for position, facts in ((7, "waits for you"), (12, "runs"), (13, "$0.0100")):
        await page.get_by_role("slider", name="Position").fill(str(position))
        await expect(first.locator(".facts")).to_contain_text(facts)
    await expect(first.locator(".tool")).to_have_text("search")
    await expect(first).not_to_contain_text("runs")

    await visit_session(page, served, "s1?at=7&past=1")
    await expect(page.locator(".tm-then")).to_contain_text("the agent waited for a person")
    await expect(page.locator(".turn .status")).to_have_text(["waits for you"])
    await page.get_by_role("slider", name="Position").fill("8")  # the approval
    await expect(page.locator(".tm-then")).to_contain_text("the agent ran tools")
    await expect(page.locator(".turn .status")).to_have_text(["running"])


# --- a fork -------------------------------------------------------------------------------------------------------


async def test_a_fork_within_a_turn_runs_nothing_and_has_the_title_of_its_origin(
    bus: Bus, served: Served, page: Page
) -> None:
    origin = bus.session("s1")
    await record_loops(origin, turns=2)
    await origin.fork(9, id="s2")
    await visit_session(page, served, "s2")
    listed = page.locator("a.session[href='#/s/s2']")
    await expect(listed.locator(".title")).to_have_text("Question 0")
    await expect(listed.locator(".badge")).to_have_count(0)
    await expect(page.locator(".sessionhead h2")).to_have_text("Question 0")
    await expect(page.locator(".turnrow .facts")).to_have_text("cut by the fork")
    await expect(page.locator(".turns")).to_contain_text("Those of the fork. Turns up to #9 count in s1.")
    await bus.session("s2").publish(UserMessage.text("Another way"))
    await expect(listed.locator(".title")).to_have_text("Another way")  # tells it from its origin


# --- what the model saw -------------------------------------------------------------------------------------------


async def test_the_context_of_a_position_and_the_bar_agree_and_what_was_made_up_is_marked(
    bus: Bus, served: Served, page: Page
) -> None:
    last = await record_loops(bus.session("s1"), turns=2)
    await visit_session(page, served, "s1/context?at=7")  # the call has begun, and has no result
    bar, live = page.get_by_role("slider", name="Position"), page.get_by_role("button", name="Live", exact=True)
    await expect(bar).to_have_value("7")
    await expect(live).to_have_attribute("aria-pressed", "false")
    await expect(page.locator(".cx-facts")).to_contain_text("after entry #7")
    for provider in ("anthropic", "openai-chat", "openai-responses", "gemini"):
        await page.get_by_label("Provider").select_option(provider)
        await expect(page.locator(".cx-facts")).to_contain_text(f"{provider} · model-1")
        await expect(page.locator(".cx-result", has_text="No result provided")).to_contain_text("made up")
        await expect(page.locator(".cx-made")).to_have_count(1)
    await live.click()
    await expect(bar).to_have_value(str(last))
    await expect(page.locator(".cx-facts")).to_contain_text(f"after entry #{last}")
    await expect(page.locator(".cx-made")).to_have_count(0)
    call = ToolCallBlock(id="c9", name="search", arguments={})
    said = ToolResultMessage.of(call, "No result provided")
    await bus.session("s1").publish(AssistantMessage(content=(call,)), said.model_copy(update={"is_error": True}))
    await expect(page.locator(".cx-facts")).to_contain_text(f"after entry #{last + 2}")
    for provider in ("anthropic", "openai-chat", "openai-responses", "gemini"):  # the log has this result
        await page.get_by_label("Provider").select_option(provider)
        await expect(page.locator(".cx-facts")).to_contain_text(f"{provider} · model-1")
        await expect(page.locator(".cx-result", has_text="No result provided")).to_have_count(1)
    await expect(page.locator(".cx-made")).to_have_count(0)


# --- compare ------------------------------------------------------------------------------------------------------
