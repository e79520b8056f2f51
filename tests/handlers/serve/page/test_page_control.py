"""The page's buttons in Chromium, on a real bus and a real server."""

import anyio
import pytest
from pydantic import JsonValue

from lanebus import Bus, ExtensionMessage, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop
from lanebus.bus.messages import AgentStarted, Approve, ControlAnswered, Deny
from lanebus.handlers.agent import Worker
from lanebus.handlers.providers import Piece
from lanebus.messages import TurnId
from tests.support.agent.agents import Pause, ScriptedModel, answer
from tests.support.page.browsing import ON_A_BROWSER, Page, Route, Seen, SharedBrowser, browsing, expect, hold, visit
from tests.support.page.commands import next_control
from tests.support.page.log import HARMFUL
from tests.support.page.samples import waiting, waiting_for_approval
from tests.support.page.serving import Served
from tests.support.page.xss import PAYLOADS

pytestmark = ON_A_BROWSER

TURN = TurnId(loop_id="s1.main.1", turn_index=0)


async def test_a_waiting_call_is_shown_with_its_arguments_and_approved_by_a_click(
    served: Served, page: Page, bus: Bus
) -> None:
    await visit(page, served, "#/s/s1")
    session = bus.session("s1")
    call = ToolCallBlock(id="c0", name="delete_file", arguments={"path": "delete_file"})
    await waiting(session, call)
    ask = page.locator(".ask")
    await expect(ask).to_contain_text("delete_file")
    await expect(ask).to_contain_text('"path": "delete_file"')
    await expect(page.locator(".doing")).to_have_attribute("data-doing", "waiting")
    await page.get_by_role("button", name="Approve").click()
    position, control = await next_control(session, 5)
    about = {"turnId": {"loopId": TURN.loop_id, "turnIndex": 0}, "toolCallId": "c0"}
    assert control.as_extension().data == {**about, "callHash": call.call_hash, "by": "page"}
    assert control.KIND == "control.approve"
    await expect(page.locator(".sent")).to_have_text(f"approve delete_file #{position}: waits for the worker")
    await session.publish(ControlAnswered(control=position, outcome="applied").as_extension())
    await expect(page.locator(".sent")).to_have_text(f"approve delete_file #{position}: applied")
    rows = page.locator(".row.extension .line .words")
    await expect(rows.nth(-2)).to_have_text("delete_file · c0 · by page")
    await expect(rows.last).to_have_text(f"#{position} applied · delete_file")
    await expect(ask).to_have_count(0)


async def test_a_call_cannot_be_approved_before_its_arguments_are_shown(served: Served, page: Page, bus: Bus) -> None:
    await visit(page, served, "#/s/s1")
    is_free = await hold(page, "**/call?*")
    await waiting_for_approval(bus.session("s1"), "hi", "rm")
    await expect(page.locator(".ask")).to_contain_text("arguments are loading")
    await expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    await page.get_by_label("Why rm is denied").focus()
    is_free.set()
    await expect(page.locator(".ask .whole")).to_have_text('{\n  "path": "rm"\n}')
    await expect(page.get_by_label("Why rm is denied")).to_be_focused()  # a user who types goes on typing
    await expect(page.get_by_role("button", name="Approve")).to_be_enabled()


async def test_all_of_a_long_call_is_shown_and_its_invisible_characters_are_escaped(
    bus: Bus, served: Served, page: Page
) -> None:
    hidden = "\u202e\u2066\u200b\ufeff\u00ad\u2028\u061c\u3164\U000e0041\ufe0f\u2800\U00016fe4\U0001d159\ue000\u200d"
    text = f"echo {hidden}\x1b {'a' * 20_000} ; rm -rf / # end"
    call = ToolCallBlock(id="c0", name="she\u202ell", arguments={"command": text, "number": 12345678901234567891})
    session = bus.session("s1")
    await waiting(session, call)
    await session.publish(*(ExtensionMessage.of("tick", number) for number in range(400)))  # the call is far above
    await visit(page, served, "#/s/s1")
    whole = page.locator(".ask .whole")
    await expect(whole).to_contain_text("rm -rf / # end")
    await expect(whole).to_contain_text("12345678901234567891")
    drawn = await page.locator(".ask").text_content() or ""
    assert "a" * 20_000 in drawn
    assert "she⟨U+202E⟩ll" in drawn
    assert [one for one in hidden + "\x1b" if one in drawn] == []
    assert [one for one in hidden if f"⟨U+{ord(one):04X}⟩" not in drawn] == []
    assert "not sent to the model" in (await page.get_by_label("is denied").get_attribute("placeholder") or "")
    await page.get_by_role("button", name="Approve").click()
    _, control = await next_control(session, 405)
    assert isinstance(control, Approve)
    assert control.call_hash == call.call_hash


async def test_a_denial_sends_its_reason_and_the_shown_call_stays_while_others_come_and_go(
    bus: Bus, served: Served, page: Page
) -> None:
    await visit(page, served, "#/s/s1")
    session = bus.session("s1")
    await waiting_for_approval(session, "hi", "rm", "mv")
    await page.get_by_role("button", name="Next call").click()
    await page.get_by_label("Why mv is denied").fill("not this one")
    await page.locator(".ask", has_text="mv").get_by_role("button", name="Deny").click()
    position, control = await next_control(session, 6)
    assert control.KIND == "control.deny"
    data = control.as_extension().data
    assert isinstance(data, dict)
    assert (data["toolCallId"], data["reason"]) == ("c1", "not this one")
    answered = ControlAnswered(control=position, outcome="late", reason="it has its result")
    await session.publish(answered.as_extension())
    await expect(page.locator(".sent")).to_have_text(f"deny mv #{position}: late (it has its result)")
    await expect(page.locator(".row.extension", has_text="it has its result")).to_have_count(1)

    await visit(page, served, "#/s/s2")
    session = bus.session("s2")
    turn = await waiting_for_approval(session, "hi", "one", "two", "three")
    await page.get_by_role("button", name="Previous call").click()  # before the first comes the last
    shown, count = page.locator(".ask:not([hidden]) .tool"), page.locator(".pager [role=status]")
    await expect(shown).to_have_text("three")
    await page.get_by_role("button", name="Previous call").click()
    await page.get_by_label("Why two is denied").fill("not this one")
    decision = Approve(
        turn_id=turn,
        tool_call_id="c0",
        call_hash=ToolCallBlock(id="c0", name="one", arguments={"path": "one"}).call_hash,
    )
    await session.publish(decision.as_extension())
    await session.publish(ControlAnswered(control=(await session.head()).position, outcome="applied").as_extension())
    await expect(count).to_have_text("1 of 2")
    await expect(shown).to_have_text("two")
    await expect(page.get_by_label("Why two is denied")).to_have_value("not this one")


async def test_the_buttons_match_the_agents_state(served: Served, page: Page, bus: Bus) -> None:
    await visit(page, served, "#/s/s1")
    session, buttons = bus.session("s1"), page.locator(".buttons button")
    await expect(page.get_by_text("This session does not exist yet")).to_be_visible()
    await expect(page.locator(".control")).to_have_count(0)
    await session.publish(UserMessage.text("hi"))
    await expect(buttons).to_have_text(["Pause"])
    await expect(page.get_by_role("button", name="Steer now")).to_have_count(0)
    await session.publish(AgentStarted(loop_id=TURN.loop_id, agent="a").as_extension())
    await expect(buttons).to_have_text(["Pause", "Abort"])
    await expect(page.get_by_role("button", name="Steer now")).to_be_disabled()
    await page.get_by_role("button", name="Pause").click()
    position, _ = await next_control(session, 2)
    await session.publish(ControlAnswered(control=position, outcome="applied").as_extension())
    await expect(buttons).to_have_text(["Resume", "Abort"])
    await expect(page.locator(".doing")).to_have_text("paused")
    await session.close()
    await expect(buttons).to_have_count(0)


async def test_an_answer_is_steered_aborted_and_followed_up(bus: Bus, served: Served, page: Page) -> None:
    box, said = page.get_by_label("Message to the agent"), page.locator(".row.llm .left")
    pause, long = Pause(), Piece("text", "It is a long st")
    model = ScriptedModel(
        [long, Pause()], answer("Very short."), [long, Pause()], [pause, *answer("First.")], answer("Second.")
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Worker(bus, AgentLoop(model)).run)
        await visit(page, served, "#/s/s1")
        await box.fill("Tell me a story")
        await box.press("Enter")
        await expect(page.locator(".preview")).to_contain_text("It is a long st")
        await expect(page.locator(".doing")).to_have_attribute("data-doing", "model")
        await box.fill("Shorter!")
        await page.get_by_role("button", name="Steer now").click()
        await expect(said).to_contain_text(["Tell me a story", "Shorter!", "It is a long st", "Very short."])
        await expect(page.locator(".sent")).to_contain_text("applied")
        await expect(page.locator(".doing")).to_have_attribute("data-doing", "idle")
        await expect(box).to_have_value("")

        await bus.session("s2").publish(UserMessage.text("Tell me a story"))
        await visit(page, served, "#/s/s2")
        await expect(page.locator(".preview")).to_contain_text("It is a long st")
        await page.get_by_role("button", name="Abort").click()
        await expect(page.locator(".message.assistant .stop")).to_have_text("aborted")
        await expect(page.locator(".sent.applied")).to_contain_text("abort")
        await expect(page.locator(".buttons button")).to_have_text(["Pause"])

        await bus.session("s3").publish(UserMessage.text("one"))
        await visit(page, served, "#/s/s3")
        await page.get_by_label("send after the loop").check()
        await box.fill("two")
        await box.press("Enter")
        await expect(said).to_contain_text(["one", "two"])
        pause.over.set()
        await expect(said).to_contain_text(["one", "two", "First.", "Second."])
        tasks.cancel_scope.cancel()
    assert [len(request.context.messages) for request in model.requests[-2:]] == [1, 3]


async def test_a_command_whose_response_was_lost_is_published_once_when_repeated(
    served: Served, page: Page, bus: Bus, seen: Seen
) -> None:
    await visit(page, served, "#/s/s1")
    session = bus.session("s1")
    await waiting_for_approval(session, "hi", "rm")
    await expect(page.locator(".ask")).to_have_count(1)

    async def lose(route: Route) -> None:
        await route.fetch()
        await route.abort()

    await page.route("**/commands", lose, times=1)
    await page.get_by_role("button", name="Abort").click()
    await expect(page.locator(".control .fault")).to_contain_text("does not answer")
    await page.get_by_role("button", name="Abort").click()
    await expect(page.locator(".sent")).to_contain_text("abort #6")
    assert (await session.head()).position == 6
    seen.forget()


HOSTILE = ("script", "iframe", "img", "form", "object", "style", "link", "base", "meta")


def _said_by(payload: str) -> list[ExtensionMessage]:
    """Commands, an answer and a waiting call, with the payload in every field."""

    def told(*names: str) -> dict[str, JsonValue]:
        return dict.fromkeys(names, payload)

    kinds = ("control.abort", "control.deny", "control.handoff", "control.resume")
    return [
        *(ExtensionMessage.of(kind, told("reason", "by", "to", "toolCallId", "when")) for kind in kinds),
        ExtensionMessage.of("agent.control.answered", told("control", "outcome", "reason")),
        ExtensionMessage.of("agent.tool.waiting", told("toolName", "why")),
    ]


@pytest.mark.full
async def test_payloads_in_titles_calls_arguments_and_command_answers_are_shown_as_text(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    session = bus.session("s1")
    bad = [payload for payload in PAYLOADS if payload.isprintable()]
    for number, payload in enumerate(bad[:12]):
        await waiting_for_approval(bus.session(f"t{number}"), payload, payload)
    await visit(page, served, "#/inbox")
    await expect(page.locator(".waitingcall .whole")).to_have_count(12)
    await expect(page.locator(".session .title", has_text=bad[0]).first).to_be_visible()
    assert await page.locator(f":is(.inbox, .virtual) :is({', '.join(HOSTILE)})").count() == 0
    await waiting_for_approval(session, "hi", *bad)
    await visit(page, served, "#/s/s1")
    await expect(page.locator(".ask")).to_have_count(len(bad))
    drawn = await page.locator(".asks").text_content() or ""
    assert all(payload in drawn for payload in bad)
    arguments: dict[str, JsonValue] = {payload: [payload] for payload in PAYLOADS}
    await waiting(bus.session("s2"), ToolCallBlock(id="c0", name=PAYLOADS[0], arguments=arguments))
    await page.goto(f"{served.base}/#/s/s2")
    await expect(page.locator(".ask .whole")).to_contain_text("alert(document.domain)")
    assert await page.locator(f".ask :is({', '.join((*HOSTILE, 'svg', 'a'))})").count() == 0
    await page.goto(f"{served.base}/#/s/s1")
    await page.get_by_role("button", name="Pause").click()
    position, _ = await next_control(session, 4 + len(bad))
    await session.publish(*(message for payload in PAYLOADS for message in _said_by(payload)))
    await session.publish(ControlAnswered(control=position, outcome="refused", reason=PAYLOADS[4]).as_extension())
    await expect(page.locator(".sent.refused")).to_contain_text(PAYLOADS[4])
    assert await page.locator(f".control :is({', '.join((*HOSTILE, 'svg', 'a'))})").count() == 0
    assert await page.locator(f".rows :is({HARMFUL})").count() == 0
    assert (seen.dialogs, seen.off_origin(served.base), seen.errors) == ([], [], [])


HIDDEN_PART = """(found) => {
  const { left, top, right, bottom, width, height } = found.getBoundingClientRect();
  const isIn = left >= 0 && top >= 0 && right <= innerWidth + 1 && bottom <= innerHeight + 1 && width > 0;
  return isIn && found.contains(document.elementFromPoint(left + width / 2, top + height / 2)) ? null
    : `${found.textContent} ${[left, top, right, bottom].map(Math.round)} in ${innerWidth} x ${innerHeight}`;
}"""


async def hidden_parts(page: Page) -> list[str]:
    """Return the parts of the call that is shown that a user cannot see or press where they are."""
    bar, ask = page.locator(".control"), page.locator(".ask:not([hidden])")
    parts = [
        bar.locator(".doing"),
        bar.get_by_role("status").filter(has_text=" of "),
        bar.get_by_role("button", name="Next call"),
        bar.get_by_role("button", name="Previous call"),
        ask.locator(".tool"),
        ask.get_by_role("button", name="Approve"),
        ask.get_by_role("button", name="Deny"),
        ask.get_by_label("is denied"),
    ]
    told = list[str | None]([await part.evaluate(HIDDEN_PART) for part in parts])
    return [each for each in told if each is not None]


WINDOWS = {
    "laptop": (1440, 900),
    "small laptop": (1024, 768),
    "phone": (390, 844),
    "small phone": (320, 568),
    "1440 x 900 at a zoom of 200 %": (720, 450),
    "1024 x 768 at a zoom of 200 %": (512, 384),
    "1280 x 1024 at a zoom of 400 %": (320, 256),
}


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_waiting_call_is_whole_in_view_and_says_how_many_wait_in_any_window(
    bus: Bus, served: Served, page: Page, window: str
) -> None:
    width, height = WINDOWS[window]
    await page.set_viewport_size({"width": width, "height": height})
    lines: JsonValue = {"lines": [f"line {number} of a long call" for number in range(200)]}
    calls = [ToolCallBlock(id=f"c{at}", name=f"tool_{at}", arguments=lines) for at in range(2)]
    await waiting(bus.session("s1"), *calls)
    await page.goto(served.url)
    for place in ("#/s/s1", "#/s/s1/timeline"):
        await page.goto(f"{served.base}/{place}")
        for number, press in ((1, "Next call"), (2, "Previous call")):
            ask = page.locator(".ask:not([hidden])")
            await expect(ask.locator(".tool")).to_have_text(f"tool_{number - 1}")
            await expect(page.locator(".pager [role=status]")).to_have_text(f"{number} of 2")
            whole = ask.locator(".whole")
            await expect(whole).to_contain_text("line 199")
            for share in (0, 1) if height > 300 else (0,):  # however the rest of the session is scrolled
                await page.locator("main").evaluate("(one, share) => one.scrollTo(0, share * 9999)", share)
                assert await hidden_parts(page) == []
                await whole.evaluate("(one, share) => one.scrollTo(0, share * 99999)", share)
                assert await whole.evaluate("(one) => one.clientHeight >= 19 && one.scrollHeight > one.clientHeight")
                assert await hidden_parts(page) == []
            await page.get_by_role("button", name=press).click()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True
    if window != "laptop":
        await page.goto(f"{served.base}/#/s/s1")
        box = page.get_by_label("Message to the agent")
        await box.scroll_into_view_if_needed()
        await expect(box).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("place", ["#/s/s1", "#/inbox"])
async def test_presses_at_one_point_answer_one_call_until_the_next_one_can_be_read(
    browser: SharedBrowser, bus: Bus, served: Served, place: str
) -> None:
    async with browsing(browser, is_hurried=True) as (page, _):
        await page.clock.install()
        session = bus.session("s1")
        await waiting_for_approval(session, "hi", "one", "two", "three", "four", "five")
        await visit(page, served, f"{place}")
        await expect(page.locator(".ask .whole")).to_have_count(5)
        answers = page.locator(".ask:not([hidden]) .answers").first

        async def point_at_approve() -> tuple[float, float]:
            box = await answers.get_by_role("button", name="Approve").bounding_box()
            assert box is not None
            return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

        async def press() -> None:
            """Press where the mouse is; a slow second click counts as the first one of its own."""
            await page.mouse.down()
            await page.mouse.up()

        async def answered(kind: type[Approve | Deny], name: str, after: int) -> int:
            """Wait for the answer to a call, and let a worker apply it, until the next call is shown in its place."""
            position, control = await next_control(session, after)
            assert isinstance(control, kind)
            assert control.tool_call_id == name
            await session.publish(ControlAnswered(control=position, outcome="applied").as_extension())
            calls = page.locator(".ask")
            left = 4 - int(name[1])
            while await calls.count() > left:
                await page.clock.run_for(50)
            return position + 1

        at = await point_at_approve()
        await page.mouse.move(*at)
        await page.clock.pause_at(await page.evaluate("Date.now() / 1000") + 5)
        await press()
        position = await answered(Approve, "c0", 6)
        assert await point_at_approve() == pytest.approx(at, abs=20)
        for past in (100, 200, 300):
            await page.clock.run_for(past)
            await press()
            await page.mouse.move(at[0] + past % 3, at[1] + 1)  # as a hand that rests
        await answers.get_by_role("button", name="Deny").focus()
        await page.keyboard.press("Enter")
        position = await answered(Deny, "c1", position)
        await page.clock.run_for(1000)
        await press()  # long enough in view to be read
        position = await answered(Approve, "c2", position)
        await page.clock.run_for(50)
        await page.mouse.move(at[0], at[1] - 40)
        await page.mouse.move(*at)
        await press()
        await answered(Approve, "c3", position)
