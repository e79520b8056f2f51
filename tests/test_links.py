"""Links between the pages of a checkout lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

__all__ = ()

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").glob("*.md")])
_LINK = re.compile(r"(?:\]\(|^\[[\w.]+\]: )(?![a-z]+:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def links_of(page: Path) -> list[tuple[str, str]]:
    """Return the path and the anchor of each link to a file of the repository. Either may be ""."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    return [(found["path"], found["anchor"] or "") for found in _LINK.finditer(text)]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts and the site make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_links_are_found() -> None:
    assert ("docs/tutorial.md", "") in links_of(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    dead = list[str]()
    for path, anchor in links_of(page):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            dead.append(f"{path}#{anchor}")
    assert dead == []
