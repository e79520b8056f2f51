"""The page in Chromium says only what is known: at an earlier position, of a fork, and of a call that waits."""

from typing import TYPE_CHECKING

from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, ExtensionMessage, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.bus.messages import AgentStarted, RequestDefined, TurnStarted
from lanebus.messages import TurnId
from tests.support.page.browsing import ON_A_BROWSER, expect, visit_session
from tests.support.page.log import walk
from tests.support.page.recorded import record_loops
from tests.support.page.samples import waiting_for_approval
from tests.support.page.serving import Served

if TYPE_CHECKING:
    from playwright.async_api import Page


pytestmark = ON_A_BROWSER


# --- an earlier position ------------------------------------------------------------------------------------------


async def test_rows_and_panels_say_only_what_was_known_at_an_earlier_position(
    bus: Bus, served: Served, page: "Page"
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


# --- a call that waits --------------------------------------------------------------------------------------------


async def test_a_call_that_waits_is_never_called_running(bus: Bus, served: Served, page: "Page") -> None:
    await waiting_for_approval(bus.session("s1"), "Clean up", "rm")
    await visit_session(page, served, "s1")
    await expect(page.locator(".turn .status")).to_have_text(["waits for you"])
    await expect(page.locator(".turnrow .facts")).to_have_text("waits for you")
    await page.get_by_role("tab", name="Timeline").click()
    await expect(page.locator(".tl-row.k-turn .tl-status")).to_have_text("waits for you")
    await expect(page.locator(".tl-row.k-tool .tl-status")).to_have_text("waits for you")
    await page.locator(".tl-row.k-tool").click()
    details = page.get_by_role("complementary", name="The selected row")
    await expect(details).to_contain_text("waits for you")
    await expect(page.locator("#view")).not_to_contain_text("running")


# --- a fork -------------------------------------------------------------------------------------------------------


async def test_a_fork_within_a_turn_runs_nothing_and_has_the_title_of_its_origin(
    bus: Bus, served: Served, page: "Page"
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


# --- the log ------------------------------------------------------------------------------------------------------


async def test_the_definition_of_a_request_is_folded_into_the_turn_that_it_is_for(
    bus: Bus, served: Served, page: "Page"
) -> None:
    turns = [TurnId(loop_id="s1.main.1", turn_index=index) for index in range(2)]
    defined = [RequestDefined(hash=name, provider="p", model="m", max_tokens=9).as_extension() for name in "ab"]
    await bus.session("s1").publish(
        UserMessage.text("hi"),
        AgentStarted(loop_id=turns[0].loop_id, agent="a").as_extension(),
        defined[0],
        TurnStarted(turn_id=turns[0]).as_extension(),
        ExtensionMessage.of("tick", 1),
        defined[1],  # the tools have changed
        TurnStarted(turn_id=turns[1]).as_extension(),
    )
    await visit_session(page, served, "s1")
    await expect(page.locator(".turnrow")).to_have_count(2)
    assert (await walk(page)).positions == [1, 2, 5, 6]
    await page.locator(".turnrow").last.click()
    assert (await walk(page)).positions == [1, 2, 5, 6, 7]
    await visit_session(page, served, "s1?at=3")
    await expect(page.locator(".row[data-position='3'] .kind")).to_have_text("request.defined")


# --- what the model saw -------------------------------------------------------------------------------------------


async def test_the_context_of_a_position_and_the_bar_agree_and_what_was_made_up_is_marked(
    bus: Bus, served: Served, page: "Page"
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


async def test_the_bar_leaves_the_recorded_request_of_a_turn(bus: Bus, served: Served, page: "Page") -> None:
    last = await record_loops(bus.session("s1"), turns=3)
    await visit_session(page, served, "s1/timeline")
    await page.locator(".tl-row.k-turn").nth(1).click()
    await page.get_by_role("link", name="What the model saw").click()
    await expect(page.get_by_label("Recorded request")).to_be_checked()
    bar = page.get_by_role("slider", name="Position")
    await expect(bar).not_to_have_value(str(last))  # the position of the request
    await bar.press("ArrowLeft")
    await expect(page.get_by_label("Recorded request")).not_to_be_checked()
    await expect(page.locator(".cx-facts")).to_contain_text(f"after entry #{await bar.input_value()}")


# --- compare ------------------------------------------------------------------------------------------------------


async def test_an_edit_is_a_difference_in_a_context_and_in_a_comparison(bus: Bus, served: Served, page: "Page") -> None:
    arguments: dict[str, JsonValue] = {"path": "a.py", "old_str": "one\ntwo", "new_str": "one\nthree", "deep": {"a": 1}}
    edit = ToolCallBlock(id="c1", name="edit", arguments=arguments)
    await bus.session("s1").publish(
        UserMessage.text("Change it"), AssistantMessage(content=(edit,), provider="anthropic", model="model-1")
    )
    for place in ("s1/compare?a=1&b=2", "s1/context?at=2"):
        await visit_session(page, served, place)
        call = page.locator(".cx-call", has_text="edit")
        await expect(call.locator(".d-add")).to_contain_text("three")
        await expect(call.locator(".d-del")).to_contain_text("two")
        await expect(call.locator("dt", has_text="path")).to_be_visible()
        await expect(call).not_to_contain_text('old_str":')
