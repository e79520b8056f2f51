"""The reference in `docs/` says what the code says, and each public name can be read about."""

import inspect
import os
import pydoc
import re
from importlib import import_module
from pathlib import Path

import pytest

from docs.site.api import GROUPS, api_page
from docs.site.links import with_targets, without_targets
from docs.site.reference import COMMAND, DOCS, made_from_code, write
from docs.site.tables import fill_in, without_marks
from lanebus import agent
from lanebus.bus.messages import CONTROLS

END = "<!-- end of what is made from code -->"
CONTROL = f"<!-- made from code: control -->\n{END}\n"


@pytest.mark.full
def test_pages_of_a_checkout_have_what_is_made_from_code() -> None:
    old = [path.relative_to(DOCS).as_posix() for path, text in made_from_code() if path.read_text() != text]
    assert old == [], f"run `{COMMAND}` and commit the files"


def test_part_of_a_page_is_made_anew_and_the_rest_stays() -> None:
    page = f"Before\n\n{CONTROL}\nAfter\n"
    filled = fill_in(page)
    assert "| `control.abort` |" in filled
    assert filled.startswith("Before\n\n<!-- made from code: control -->\n")
    assert filled.endswith(f"{END}\n\nAfter\n")
    assert fill_in(filled.replace("`control.abort`", "`control.stop`")) == filled
    assert without_marks(filled).startswith("Before\n\n| Kind |")
    assert fill_in("<!-- a plain comment -->") == "<!-- a plain comment -->"


def test_part_that_is_unknown_or_has_no_end_is_an_error() -> None:
    with pytest.raises(KeyError, match="rutes"):
        fill_in(CONTROL.replace("control", "rutes"))
    for page in ("<!-- made from code: routes -->\n", f"<!-- made from code: routes -->\n\n{CONTROL}", f"{END}\n"):
        with pytest.raises(ValueError, match="has no end"):
            fill_in(page)


def test_environment_does_not_change_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    page = f"<!-- made from code: settings -->\n{END}"
    kept = fill_in(page)
    monkeypatch.setitem(os.environ, "LANEBUS_NAMESPACE", "mine")
    monkeypatch.setitem(os.environ, "LANEBUS_TOKEN", "secret")
    assert fill_in(page) == kept


def test_name_on_a_page_leads_to_the_table_of_its_module() -> None:
    text = "Call [`ask`][lanebus.agent.ask], and [`Bus.open`][lanebus.Bus.open].\n"
    page = with_targets(text, Path("how-to/a.md"))
    assert page.splitlines()[-2:] == [
        "[lanebus.Bus.open]: ../reference/api.md#lanebus",
        "[lanebus.agent.ask]: ../reference/api.md#lanebusagent",
    ]
    assert with_targets(page, Path("how-to/a.md")) == page
    assert without_targets(page) == text
    assert with_targets(page.replace("[lanebus.agent.ask]", ""), Path("a.md")).count("api.md") == 1


@pytest.mark.full
def test_changed_page_is_written_and_named(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "openapi.json").write_text("{}")
    (tmp_path / "plain.md").write_text("# Plain\n")
    (tmp_path / "page.md").write_text(CONTROL)
    assert [path.name for path in write(tmp_path)] == ["page.md", "openapi.json"]
    assert "`control.abort`" in (tmp_path / "page.md").read_text()
    assert write(tmp_path) == []


def test_table_of_commands_names_the_function_that_sends_each() -> None:
    table = fill_in(CONTROL)
    functions = re.findall(r"\[`(\w+)\(\)`\]\[lanebus\.agent\.(\w+)\]", table)
    assert [shown for shown, _ in functions] == [
        *("abort", "steer", "approve", "deny", "pause", "handoff", "resume", "request_compaction")
    ]
    assert all(shown == linked and hasattr(agent, linked) for shown, linked in functions)
    assert len(functions) == len(CONTROLS)


@pytest.mark.full
@pytest.mark.parametrize("group", GROUPS)
def test_pydoc_and_the_site_show_every_public_class(group: str) -> None:
    module = import_module(group)
    classes = [name for name in module.__all__ if inspect.isclass(getattr(module, name))]
    assert [
        name
        for name in classes
        if f"{group}.{name}" not in api_page(group) and f"[lanebus.{name}]" not in api_page(group)
    ] == []
    shown = pydoc.plain(pydoc.render_doc(group))
    assert [name for name in classes if not re.search(rf"^    class {name}\b", shown, re.MULTILINE)] == []
