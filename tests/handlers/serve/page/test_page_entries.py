"""What an entry holds, as the page draws it in Chromium: Markdown, code, differences, JSON and media."""

import base64
import json

import anyio
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, ExtensionMessage, TextBlock, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.bus.messages import AgentStarted, ToolStarted, ToolWaiting, TurnStarted
from lanebus.handlers.context import cut_text
from lanebus.messages import Delta, TurnId
from tests.support.page.browsing import ON_A_BROWSER, Page, Route, Seen, expect, visit
from tests.support.page.log import HARMFUL, show_all_events, walk
from tests.support.page.serving import Served

SECONDS = 120.0
"""seconds to wait for an event that must happen"""

pytestmark = ON_A_BROWSER

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

TEXT = """# Findings

See [the docs](https://docs.example/streams), [this](javascript:alert(1)) and ![a chart](https://pictures.example/c.png).

1. one
2. **two** and `three`

| case | time |
|---|---:|
| small | 2 |

```python
def claim(self) -> None:
    return "yes"  # why
```

```diff
@@ -1 +1 @@
-old
+new
```

<b onclick=alert(1)>bold</b>
"""

DRAW_ONE = """async () => {
  const { h, render } = await import("preact");
  const { Markdown } = await import("/static/app/markdown.js");
  window.draw = (id, text) => {
    const place = document.body.appendChild(document.createElement("div"));
    place.id = id;
    render(h(Markdown, { text }), place);
  };
  draw("one", "**one**");
}"""
DRAW_ANOTHER = """() => {
  const { requestAnimationFrame, setTimeout } = window;
  const held = [];
  window.requestAnimationFrame = window.setTimeout = (call) => held.push(call);  // Preact runs effects with these
  draw("other", "**other**");
  Object.assign(window, { requestAnimationFrame, setTimeout, go: () => held.forEach((call) => call()) });
}"""


async def test_markdown_is_drawn_if_the_library_arrives_between_a_drawing_and_its_effect(
    served: Served, page: Page
) -> None:
    asked, sent = anyio.Event(), anyio.Event()

    async def hold(route: Route) -> None:
        asked.set()
        await sent.wait()
        await route.continue_()

    await page.goto(served.url)
    await page.route("**/marked.esm.js", hold)
    await page.evaluate(DRAW_ONE)
    with anyio.fail_after(SECONDS):
        await asked.wait()
    await page.evaluate(DRAW_ANOTHER)
    sent.set()
    await expect(page.locator("#one strong")).to_have_text("one")
    await page.evaluate("go()")
    await expect(page.locator("#other strong")).to_have_text("other")


async def test_code_that_cannot_be_coloured_in_time_is_shown_as_it_is_and_holds_up_nothing(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    hostile = "<a" + "  a" * 40  # the library's patterns for these languages take as many steps as there are subsets
    fences = [
        f"```{language}\n{text}\n```" for language, text in (("html", hostile), ("xml", hostile), ("py", "def f"))
    ]
    call = ToolCallBlock(id="c1", name="write", arguments={"path": "a" * 400_000 + "!", "text": "x = 1"})
    await bus.session("s1").publish(AssistantMessage(content=(TextBlock(text="\n\n".join(fences)), call)))
    await visit(page, served, "#/s/s1")
    blocks = page.locator(".md .codeblock")
    await expect(blocks.nth(2).locator(".s-kwd")).to_have_text("def")
    await expect(blocks).to_have_text([hostile, hostile, "def f"])
    await expect(blocks.nth(0).locator("span")).to_have_count(0)
    assert (seen.errors, await page.evaluate("1 + 1")) == ([], 2)


async def test_code_that_grows_stays_coloured(bus: Bus, served: Served, page: Page) -> None:
    await bus.session("s1").publish(UserMessage.text("Write it"))
    await visit(page, served, "#/s/s1")
    text = "```py\ndef f():\n"
    for line in range(20):
        await bus.session("s1").preview(
            Delta(kind="text", message_id="m1", delta=f"{text if not line else ''}  x = {line}\n")
        )
        await expect(page.locator(".preview .codeblock")).to_contain_text(f"x = {line}")
        await expect(page.locator(".preview .s-kwd").first).to_have_text("def")


async def test_markdown_is_drawn_with_safe_links_that_say_where_they_lead_and_code_that_can_be_copied(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    await page.set_viewport_size({"width": 1400, "height": 1600})
    await bus.session("s1").publish(AssistantMessage(content=(TextBlock(text=TEXT),)))
    await visit(page, served, "#/s/s1")
    text = page.locator(".md")
    await expect(text.locator(".heading")).to_have_text("Findings")
    await expect(text.locator("ol > li")).to_have_text(["one", "two and three"])
    await expect(text.locator("td")).to_have_text(["small", "2"])
    links = text.locator("a")
    await expect(links).to_have_text(["the docs", "picture: a chart"])
    for index, address in enumerate(("https://docs.example/streams", "https://pictures.example/c.png")):
        await expect(links.nth(index)).to_have_attribute("href", address)
        await expect(links.nth(index)).to_have_attribute("rel", "noopener noreferrer nofollow")
    # A link says where it leads, and one that may not be opened stays as it is written.
    await expect(text).to_contain_text("the docs (docs.example)")
    await expect(text).to_contain_text("[this](javascript:alert(1))")
    await expect(text).to_contain_text("<b onclick=alert(1)>bold</b>")
    await expect(text.locator(".s-kwd").first).to_have_text("def")
    await expect(text.locator(".d-del")).to_contain_text("-old")
    await expect(text.locator(".d-add")).to_contain_text("+new")
    await page.get_by_label("Plain text").check()
    await expect(page.locator(".md")).to_have_count(0)
    await expect(page.locator(".message .text")).to_contain_text("# Findings")
    assert (seen.dialogs, seen.off_origin(served.base), seen.errors) == ([], [], [])

    await page.get_by_label("Plain text").uncheck()
    copies = page.get_by_role("button", name="Copy the code")
    await page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    await copies.first.click()
    await expect(copies.first).to_have_attribute("title", "The browser does not allow it")
    await page.evaluate("() => { delete navigator.clipboard.writeText; }")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for index, code in enumerate(('def claim(self) -> None:\n    return "yes"  # why', "@@ -1 +1 @@\n-old\n+new")):
        await copies.nth(index).click()
        await expect(copies.nth(index)).to_have_attribute("title", "Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == code
    await page.context.clear_permissions()

    await page.set_viewport_size({"width": 1400, "height": 1600})
    paragraphs = "\n\n".join(LINKS)
    await bus.session("s2").publish(AssistantMessage(content=(TextBlock(text=paragraphs),)))
    await visit(page, served, "#/s/s2")
    await expect(page.locator(".md p")).to_have_text([*LINKS.values()])


LINKS = {
    "[bank.example](https://bank.example/login)": "bank.example",
    "<https://bank.example/login>": "https://bank.example/login",
    "www.bank.example": "www.bank.example",
    "[https://bank.example](https://evil.example)": "https://bank.example (evil.example)",
    "[bank.example/evil.example](https://evil.example)": "bank.example/evil.example (evil.example)",
    "[evil.example.bank.example](https://evil.example)": "evil.example.bank.example (evil.example)",
    "<https://bank.example@evil.example/>": "https://bank.example@evil.example/ (evil.example)",
    "https://bаnk.example/": "https://bаnk.example/ (xn--bnk-6cd.example)",  # with a Cyrillic letter
    "[https://bank.example\u202emoc.\u200bx](https://evil.example)": (
        "https://bank.example⟨U+202E⟩moc.⟨U+200B⟩x (evil.example)"
    ),
    "[\u202eevil.example](https://evil.example)": "⟨U+202E⟩evil.example (evil.example)",
    "![evil.example \u202e](https://evil.example/x)": "picture: evil.example ⟨U+202E⟩ (evil.example)",
    "[a@bank.example](mailto:b@evil.example)": "a@bank.example (b@evil.example)",
}
"""Markdown of a link → what the page shows"""


async def test_arguments_show_an_edit_as_a_difference_and_json_as_a_tree(bus: Bus, served: Served, page: Page) -> None:
    edit: dict[str, JsonValue] = {"path": "a.py", "old_str": "one\ntwo\nthree", "new_str": "one\n2\nthree"}
    call = ToolCallBlock(id="c1", name="edit", arguments={**edit, "more": {"deep": {"deeper": [1, 2]}}})
    result = json.dumps({"hits": [{"path": "a.py"}], "total": 1, "note": "long enough for a tree"})
    exact = json.dumps({"id": 12345678901234567890, "note": "a number that JSON in a browser would change"})
    await bus.session("s1").publish(
        AssistantMessage(content=(call,)), ToolResultMessage.of(call, result), ToolResultMessage.of(call, exact)
    )
    await visit(page, served, "#/s/s1")
    await expect(page.locator(".call .d-del")).to_contain_text("two")
    await expect(page.locator(".call .d-add")).to_contain_text("2")
    await expect(page.locator(".call .d-same")).to_have_count(2)
    await expect(page.get_by_text("deeper")).to_have_count(1)  # in the summary: the rest is not drawn yet
    await page.locator(".call .j-fold[aria-expanded='false']").click()
    await expect(page.locator(".call .j-key", has_text="deeper")).to_be_visible()
    await expect(page.locator(".toolResult .json")).to_have_count(1)
    await expect(page.locator(".toolResult").last).to_contain_text("12345678901234567890")


async def test_words_in_a_wide_table_stay_whole_and_the_table_scrolls(bus: Bus, served: Served, page: Page) -> None:
    words = [
        "Authentication",
        "authentication_timeout",
        "Infrastructure",
        "https://docs.example/authentication/timeout",
    ]
    head, rule = "|".join(["", *words, *words, ""]), "|".join(["", *["---"] * 8, ""])
    await page.set_viewport_size({"width": 390, "height": 900})
    await bus.session("s1").publish(UserMessage.text(f"{head}\n{rule}\n{head}\n\n{head}\n{rule}\n{head}"))
    await visit(page, served, "#/s/s1")
    await expect(page.locator(".md td")).to_have_count(16)
    broken: list[str] = await page.locator(".md :is(th, td)").evaluate_all("""(cells) => cells.filter((cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return new Set([...range.getClientRects()].map(({ top }) => Math.round(top / 8))).size > 1;
    }).map((cell) => cell.textContent)""")
    assert [text for text in broken if " (" not in text] == []  # a host after a link is a word of its own
    table = page.locator(".md .wide").first
    assert await table.evaluate("(one) => one.scrollWidth > one.clientWidth") is True
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth") is True
    await table.focus()
    await page.keyboard.press("ArrowRight")
    await page.wait_for_function("(one) => one.scrollLeft > 0", arg=await table.element_handle())


async def test_invisible_characters_of_a_call_are_codes_wherever_it_is_drawn(
    bus: Bus, served: Served, page: Page
) -> None:
    hidden = "a\u202eb\u200bc\x07d\U000e0041e"
    code = "a⟨U+202E⟩b⟨U+200B⟩c⟨U+0007⟩d⟨U+E0041⟩e"
    turn = TurnId(loop_id="s1.main.1", turn_index=0)
    arguments: dict[str, JsonValue] = {
        f"name {hidden}": f"text {hidden}\n\tindented",
        "tree": {f"key {hidden}": [f"item {hidden}"]},
        "old_str": f"old {hidden}",
        "new_str": f"new {hidden}",
    }
    call = ToolCallBlock(id=f"c0 {hidden}", name=f"tool {hidden}", arguments=arguments)
    raw = ToolCallBlock(id="c1", name="raw", arguments={}, arguments_raw=f"{{ {hidden}")
    await page.set_viewport_size({"width": 1400, "height": 6000})
    await bus.session("s1").publish(
        UserMessage.text("hello"),
        AgentStarted(loop_id=turn.loop_id, agent="a").as_extension(),
        TurnStarted(turn_id=turn).as_extension(),
        AssistantMessage(content=(call, raw), turn_id=turn, stop_reason="toolUse"),
        ToolStarted(turn_id=turn, tool_call_id=call.id, tool_name=call.name).as_extension(),
        ToolWaiting(turn_id=turn, tool_call_id=call.id, tool_name=call.name).as_extension(),
        ToolResultMessage.of(call, "done"),
        UserMessage.text("a family: 👩\u200d👧"),
    )
    await visit(page, served, "#/s/s1")
    card = page.locator(".call").first
    await expect(card).to_contain_text(f"tool {code}")
    await expect(card.locator(".id")).to_have_text(f"c0 {code}")
    for text in (f"name {code}", f"text {code}\n\tindented", f"key {code}", f"old {code}"):
        await expect(card).to_contain_text(text)
    await expect(page.locator(".call").nth(1)).to_contain_text(f"{{ {code}")
    await expect(page.locator(".message.user").last).to_contain_text("👩\u200d👧")  # a text is as it was written
    await show_all_events(page)
    folded = ":is(details:not([open]) > summary, .rawswitch[aria-pressed=false], .j-fold[aria-expanded=false])"
    for _ in range(12):
        await page.locator(f".rows {folded}").evaluate_all("""async (all) => {
          for (const one of all) one.click();
          await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
        }""")
    await expect(page.locator(f".rows {folded}")).to_have_count(0)
    for place in (".rows .row:not([data-position='8'])", ".turns", ".control"):
        drawn = " ".join(await page.locator(place).all_inner_texts())
        titles: list[str] = await page.locator(f"{place} [title]").evaluate_all("(all) => all.map((one) => one.title)")
        assert code in drawn
        assert [one for one in "\u202e\u200b\x07\U000e0041" if one in " ".join([drawn, *titles])] == []


async def test_every_entry_has_its_json_a_link_and_pictures_from_its_bytes_or_the_server_that_can_be_saved(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    await bus.session("s1").publish(UserMessage.text("hello"), ExtensionMessage.of("tick", {"number": 7}))
    await visit(page, served, "#/s/s1")
    await page.get_by_title("The entry as JSON").click()
    await expect(page.locator(".message .rawentry .j-key", has_text="producer")).to_be_visible()
    await page.locator(".event summary").click()
    await page.get_by_role("button", name="Whole entry").click()
    await expect(page.locator(".event .rawentry .j-key", has_text="producer")).to_be_visible()
    await expect(page.locator(".row .spine a")).to_have_count(2)
    await expect(page.locator(".row .spine a").last).to_have_attribute("href", "#/s/s1?at=2")

    large = PIXEL + b"<script>alert(1)</script>" * 3_000
    await bus.session("s2").publish(UserMessage.with_images("see", [large]))
    await visit(page, served, "#/s/s2")
    picture = page.locator(".rows img")
    await expect(picture).to_have_js_property("naturalWidth", 1)
    assert str(await picture.get_attribute("src")).startswith("blob:")
    async with page.expect_download() as started:
        await page.get_by_role("button", name="Save as a file").click()
    path = await (await started.value).path()
    assert path.read_bytes() == large
    assert [url for url in seen.off_origin(served.base) if not url.startswith("blob:")] == []
    assert (seen.dialogs, seen.errors) == ([], [])


async def test_a_huge_line_deep_json_and_hostile_markdown_leave_the_page_usable(
    bus: Bus, served: Served, page: Page, seen: Seen
) -> None:
    deep: JsonValue = "end"
    for _ in range(60):
        deep = [deep]
    hostile = ("[" * 9000, "**a_" * 4000, "> " * 9000, "1. " * 5000, "*a **b " * 2000, "- a\n" * 5000, "|a" * 9000)
    await page.set_viewport_size({"width": 1400, "height": 4000})
    session = bus.session("s1")
    await session.publish(UserMessage.text("x" * 900_000), ExtensionMessage.of("deep", deep))
    await session.publish(*(UserMessage.text(text) for text in hostile))
    await session.publish(UserMessage.text("\u202eevil\u202c \u2066left\u2069"), UserMessage.text("still here"))
    await visit(page, served, "#/s/s1")
    await expect(page.get_by_text("still here")).to_be_in_viewport()
    walked = await walk(page, unfolds=True)
    assert walked.positions == list(range(1, 5 + len(hostile)))
    assert walked.harmful == []
    await expect(page.locator(f".rows :is({HARMFUL})")).to_have_count(0)
    assert (seen.dialogs, seen.off_origin(served.base), seen.errors) == ([], [], [])


CUTS = """async (texts) => {
  const { cut } = await import("/static/app/format.js");
  const parts = (text) => [...new Intl.Segmenter().segment(text)].map((one) => one.segment);
  return texts.flatMap((text) => {
    const found = [];
    for (let length = 0; length <= text.length; length += 1) {
      const start = cut(text, length);
      const isWhole = start.length <= length && parts(text).slice(0, parts(start).length).join("") === start;
      if (!isWhole) found.push([text, length, start]);
    }
    return found;
  });
}"""
WHOLE = """([text, start]) => {
  const parts = (text) => [...new Intl.Segmenter().segment(text)].map((one) => one.segment);
  return parts(text).slice(0, parts(start).length).join("") === start;
}"""
CHARACTERS = {
    "family": "👩‍👩‍👧‍👦",
    "skin tone": "👍🏽",
    "flag": "🇩🇪",
    "keycap": "1️⃣",
    "combining": "e\u0301\u0323",
    "Devanagari": "क्षि",
    "Hangul": "\u1112\u1161\u11ab",
    "Thai": "กำ",
    "heart": "❤️",
}


async def test_texts_and_titles_are_cut_between_characters_as_people_see_them(served: Served, page: Page) -> None:
    await page.goto(served.url)
    texts = [character * 3 for character in CHARACTERS.values()] + ["a" * 300 + "👩‍👩‍👧‍👦" * 3]
    assert await page.evaluate(CUTS, texts) == []
    split: list[tuple[str, int]] = []
    for name, character in CHARACTERS.items():
        for before in range(12):
            text = "a" * before + character * 20
            if not await page.evaluate(WHOLE, [text, cut_text(text, 12)]):
                split.append((name, before))
    assert split == []
