"""The log of a session on the page, of which only the rows in view are in the document."""

from pydantic import TypeAdapter

from tests.support.page.browsing import Page, expect

HARMFUL = (
    "script, iframe, object, embed, link, base, style, svg, math, form, meta, video, audio, [onerror], [onload], "
    "img:not([src^='data:image/']):not([src^='blob:']), a:not([href^='#/s/']):not([rel~='noopener'])"
)
"""selector of elements that a text must never become. Links of the page itself begin with `#/s/`."""

_WALK = """async ([unfolds, harmful]) => {
  const box = document.querySelector(".scroll");
  const rows = () => [...document.querySelectorAll(".rows > .row")];
  const frame = () => new Promise((go) => requestAnimationFrame(go));
  const settled = async () => {
    let [last, same] = ["", 0];
    for (let frames = 0; frames < 2000 && same < 4; frames += 1) {
      await frame();
      const isLoading = document.querySelector(".loading") !== null;
      const now = `${box.scrollTop} ${box.scrollHeight} ${rows().map((row) => row.dataset.position)}`;
      same = now === last && !isLoading ? same + 1 : 0;
      last = now;
    }
  };
  const closed = "details:not([open]) > summary, [aria-expanded=false]";
  const found = { positions: [], texts: [], harmful: [], most: 0 };
  const seen = new Set();
  box.scrollTop = 0;
  for (;;) {
    await settled();
    for (let round = 0; unfolds && round < 8; round += 1) {
      const folded = document.querySelectorAll(`.rows :is(${closed})`);
      if (!folded.length) break;
      folded.forEach((one) => one.click());
      await settled();
    }
    for (const row of rows()) {
      const position = Number(row.dataset.position);
      if (!seen.has(position)) found.positions.push(position);
      seen.add(position);
      if (unfolds) found.texts.push(row.textContent);
    }
    for (const bad of document.querySelectorAll(`.rows :is(${harmful})`)) found.harmful.push(bad.outerHTML);
    found.most = Math.max(found.most, document.querySelectorAll("*").length);
    const before = box.scrollTop;
    box.scrollTop = before + box.clientHeight * 0.9;
    await frame();
    if (box.scrollTop - before < 1) return found;
  }
}"""


class Walk:
    """What a walk from the first entry to the last one found."""

    def __init__(self, found: object) -> None:
        walked = TypeAdapter(dict[str, list[int] | list[str] | int]).validate_python(found)
        self.positions = TypeAdapter(list[int]).validate_python(walked["positions"])
        """positions of the rows, in the order in which they came into view"""
        self.text = "\n".join(TypeAdapter(list[str]).validate_python(walked["texts"]))
        """the texts of the rows, if they were unfolded"""
        self.harmful = TypeAdapter(list[str]).validate_python(walked["harmful"])
        """elements that a text must never become"""
        self.elements = TypeAdapter(int).validate_python(walked["most"])
        """the largest number of elements that the document had"""


async def walk(page: Page, *, unfolds: bool = False) -> Walk:
    """Scroll through the whole log, from its first entry to its last one.

    Args:
        page: the page.
        unfolds: unfold everything on the way, and collect the texts.
    """
    await expect(page.locator(".rows > .row").first).to_be_attached()  # before, nothing is there that could be walked
    return Walk(await page.evaluate(_WALK, [unfolds, HARMFUL]))


async def show_all_events(page: Page) -> None:
    """Show each lifecycle event in a row of its own."""
    await page.get_by_label("All events").check()
    await expect(page.locator(".turnrow")).to_have_count(0)


async def show_plain_text(page: Page) -> None:
    """Show texts without their Markdown."""
    await page.get_by_label("Plain text").check()
