"""The documentation builds without a warning and has no dead link."""

import inspect
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from docs.site.api import GROUPS
from docs.site.values import definition_of
from lanebus.bus.messages import Wire
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.skipif(
        find_spec("zensical") is None and os.environ.get("CI") != "true",
        reason="needs zensical: pip install 'lanebus[docs]'",
    ),
]


_NOT_GIVEN = object()
_SOURCE_ONLY = ("\n<!-- made from code", "\n<!-- end of what is made", "api.md#lanebus")
"""texts that only a reader of the source pages sees"""
SECONDS = 2.5


async def send(text: Annotated[str, "checked"], *, seconds: float = SECONDS, key: object = _NOT_GIVEN) -> int:
    del seconds, key
    return len(text)


@asynccontextmanager
async def opened(text: str) -> AsyncGenerator[str, None]:
    yield text


class Parcel(Wire):
    sent_by: str
    weight_kg: int = Field(default=0, ge=0)
    """of the parcel"""
    notes: list[str] = Field(default_factory=list)

    @property
    def is_heavy(self) -> bool:
        """Whether it is heavy."""
        return self.weight_kg > 20


@pytest.mark.full
def test_site_builds_without_a_warning_and_without_a_dead_link(tmp_path: Path) -> None:
    from docs.site.build import build

    first = build(tmp_path / "site")
    text = first.read_text(encoding="utf-8")
    assert 'class="drawn"' in text
    assert not (tmp_path / "site" / "sitemap.xml").exists()  # it would be empty
    full = (tmp_path / "site" / "llms-full.txt").read_text(encoding="utf-8")
    index = (tmp_path / "site" / "llms.txt").read_text(encoding="utf-8")
    assert "# Session and lanes" in full
    assert [text for text in _SOURCE_ONLY if text in full] == []
    assert "    tool_call_id: str" in full
    assert _empty_sections(full) == []
    assert "Redact = Callable[[Redactable], Redactable]" in full
    assert [hidden for hidden in (" object at 0x", "FieldInfo(", "<factory>") if hidden in full] == []
    assert "concepts/session-and-lanes" in index
    page = (tmp_path / "site" / "reference" / "lanebus" / "index.html").read_text(encoding="utf-8")
    shown = {found: _signature(page, found) for found in ("publish", "fork", "lease", "read")}
    assert shown == {"publish": "async def", "fork": "async def", "lease": "def", "read": "def"}
    internal = ("Bus.leases", "Bus.inspector", "Session.resources")
    assert [name for name in internal if f'id="lanebus.{name}"' in page] == []
    assert _signature(page, "open", of="Bus") == "@classmethod def"
    assert "    url: str | None = None,\n" in re.sub(r"<[^>]*>", "", page)  # one line for each parameter


def _empty_sections(full: str) -> list[str]:
    """Return the headings of public names that nothing is said about."""
    return re.findall(r"^### ([A-Za-z_]+)\n+(?=#|---|\Z)", full, flags=re.MULTILINE)


def _signature(page: str, name: str, *, of: str = "Session") -> str:
    """What the page shows before the name of a method."""
    entry = page.partition(f'id="lanebus.{of}.{name}"')[2]
    shown = entry.partition("<code>")[2].partition('<span class="nf">')[0]
    return " ".join(re.sub(r"<[^>]*>", "", shown).split())


def test_method_that_a_class_takes_over_from_a_module_has_its_docstring(tmp_path: Path) -> None:
    import griffe

    from docs.site.methods import TakenOver

    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "parts.py").write_text(
        "def go(self: object, far: int) -> None:\n    'Go on.'\ndef parts(self: object) -> None:\n    'List them.'\n"
    )
    (tmp_path / "shop" / "car.py").write_text(
        "from shop import parts\nclass Car:\n    go = parts.go\n    parts = parts.parts\n    wheels = 4\n"
        "    def __init__(self) -> None:\n        self.engine = 1\n        'internal: what moves it'\n"
    )
    extensions = griffe.load_extensions(TakenOver())
    car = griffe.load("shop", search_paths=[str(tmp_path)], extensions=extensions)["car.Car"]
    docstrings = {name: member.docstring and member.docstring.value for name, member in car.members.items()}
    assert docstrings == {"go": "Go on.", "parts": "List them.", "wheels": None, "__init__": None}


def test_signature_has_names_and_defaults_as_the_source_writes_them() -> None:
    from docs.site.signatures import body_of, properties_of, signature_of

    assert signature_of("send", send) == "async def send(text: str, *, seconds: float=2.5, key: object=...) -> int"
    assert (
        signature_of("opened", opened)
        == "@asynccontextmanager\nasync def opened(text: str) -> AsyncGenerator[str, None]"
    )
    assert body_of(Parcel) == (
        "class Parcel:\n    sent_by: str\n    weight_kg: int = 0\n"
        '    """of the parcel"""\n    notes: list[str] = list()'
    )
    assert [*properties_of(Parcel)] == [("Parcel.is_heavy: bool", "Whether it is heavy.")]
    assert body_of(int) is None
    assert signature_of("len", len) is None


@pytest.mark.parametrize(
    ("link", "is_dead"),
    [
        ("b/", False),
        ("b/#there", False),
        ("#here", False),
        ("https://example.com/x#y", False),
        ("c/", True),
        ("b/#not-there", True),
        ("../../outside.html", True),
        ("picture.svg", True),
    ],
)
def test_crawler_finds_a_page_or_an_anchor_that_is_missing(tmp_path: Path, link: str, is_dead: bool) -> None:
    from docs.site.crawl import dead_links

    (tmp_path / "b").mkdir()
    (tmp_path / "index.html").write_text(f'<h1 id="here">A</h1><a href="{link}">x</a>')
    (tmp_path / "b" / "index.html").write_text('<h1 id="there">B</h1><a href="../">up</a>')
    assert dead_links(tmp_path) == ([f"index.html: {link}"] if is_dead else [])


def test_picture_uses_only_classes_that_the_site_has_colours_for() -> None:
    style = (ROOT / "docs" / "assets" / "site.css").read_text(encoding="utf-8")
    known = {*re.findall(r"\.picture \.(\w+)", style), "line"}
    pictures = [*(ROOT / "docs").glob("*/*.svg")]
    used = {
        name
        for picture in pictures
        for names in re.findall(r'class="([^"]*)"', picture.read_text(encoding="utf-8"))
        for name in names.split()
    }
    assert len(pictures) >= 12
    assert used - known == set()


def test_menu_leaves_out_what_is_not_written_and_a_page_it_does_not_list_is_found(tmp_path: Path) -> None:
    from docs.site.build import unlisted_pages
    from docs.site.navigation import menu

    (tmp_path / "concepts").mkdir()
    for page in ("index.md", "concepts/fork.md", "concepts/lost.md"):
        (tmp_path / page).write_text("# A page")
    found = menu(tmp_path)
    assert found == [{"Home": "index.md"}, {"Concepts": [{"Fork": "concepts/fork.md"}]}]
    assert unlisted_pages(tmp_path, found) == ["concepts/lost.md"]


def test_link_to_a_file_of_the_repository_keeps_its_text_and_has_to_be_right() -> None:
    from docs.site.build import DOCS, BuildFailed, inside

    assert inside("see [the tests](../tests/README.md) and [a page](../docs/index.md)", DOCS) == (
        "see the tests and [a page](../docs/index.md)"
    )
    assert inside("[alerts](../../handlers/serve/data/lanebus.rules.yml)", DOCS / "how-to") == (
        "[alerts](../handlers/serve/data/lanebus.rules.yml)"
    )
    with pytest.raises(BuildFailed, match="there is no tests/lost"):
        inside("see [it](../tests/lost.md)", DOCS)


def test_site_has_no_marks_and_no_targets_for_readers_of_a_checkout() -> None:
    from docs.site.build import DOCS
    from docs.site.links import without_targets
    from docs.site.tables import without_marks

    for page in DOCS.rglob("*.md"):
        text = without_marks(without_targets(page.read_text(encoding="utf-8")))
        assert [mark for mark in _SOURCE_ONLY if mark in text] == [], page


def test_a_warning_of_the_builder_fails_the_build() -> None:
    from docs.site.build import is_quiet

    assert is_quiet("Build started\nNo issues found\nBuild finished in 5.67s\n")
    assert not is_quiet("Build started\ngriffe: a.py:3: No type or annotation\nNo issues found\n")


@pytest.mark.parametrize("group", GROUPS)
def test_each_public_value_has_a_definition_or_a_docstring_for_language_models(group: str) -> None:
    module = import_module(group)
    kinds = {name: getattr(module, name) for name in module.__all__}
    values = [name for name, value in kinds.items() if not inspect.isclass(value) and not inspect.isroutine(value)]
    found = {name: definition_of(group, name) for name in values}
    assert [name for name, each in found.items() if each is None or not any(each)] == []
