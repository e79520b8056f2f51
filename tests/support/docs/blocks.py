"""Find the code blocks of a page, and run them.

A Python block with `anyio.run(` in it is a program. The other Python blocks of a page share their names, may await, and
find `bus` and `session`. A block titled "Output" is the output of the block before it. A shell block is run line by
line. A comment before a block that cannot run gives the reason: `<!-- not run: needs docker -->`.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple, cast

from tests.support.paths import ROOT

__all__ = ("PAGES", "Block", "as_module", "blocks", "run_parts")

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
"""every page with code in it"""

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]*?) -->\n)?```(?P<language>\w+)?(?: title=\"(?P<title>[^\"]*)\")?\n"
    r"(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)


class Block(NamedTuple):
    """A block of code."""

    language: str
    code: str
    line: int
    """line of its fence, from 1"""
    reason: str | None
    """why it is not run; None if it is"""
    output: str | None
    """the expected output; None if the page does not show it"""
    title: str | None = None
    """name of the file that it is saved as, for shell blocks of the page; None saves none"""

    @property
    def is_program(self) -> bool:
        return self.language == "python" and "anyio.run(" in self.code


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order.

    Raises:
        AssertionError: a fence is written in a form that would hide its block from this function.
    """
    text = page.read_text(encoding="utf-8")
    found = [*_BLOCK.finditer(text)]
    assert 2 * len(found) == len(_FENCE.findall(text)), f"{page}: a fence is indented, or not closed"
    result = list[Block]()
    for match in found:
        if match["title"] == "Output":
            assert result, f"{page}: an output stands before any code"
            result[-1] = result[-1]._replace(output=match["code"])
        else:
            line = text.count("\n", 0, match.start()) + 1
            result.append(Block(match["language"] or "", match["code"], line, match["reason"], None, match["title"]))
    return result


def as_module(page: Path, parts: Sequence[Block]) -> str:
    """Return the parts of a page as one module for a type checker. Parts that await are put into an async function."""
    body = "\n".join(part.code for part in parts)
    return (
        "# pyright: reportUnusedVariable=false, reportUnusedFunction=false, reportUnusedClass=false\n"
        "# pyright: reportUnusedExpression=false, reportUnusedImport=false\n"
        "from lanebus import Bus, Session\n"
        f"\n\nasync def page(bus: Bus, session: Session) -> None:\n{textwrap.indent(body, '    ')}\n"
    )


async def run_parts(page: Path, parts: Sequence[Block], names: Mapping[str, object]) -> list[str]:
    """Run the parts of a page with these names. Return the output of each."""
    module = ModuleType(f"page_{re.sub(r'[^a-z]', '_', page.stem)}")
    vars(module).update(names)
    printed = list[str]()
    vars(module)["print"] = lambda *what: printed.append(" ".join(map(str, what)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    sys.modules[module.__name__] = module  # pydantic and dataclasses look up annotations there
    told = list[str]()
    try:
        for part in parts:
            printed.clear()
            # Preceded by empty lines, so that tracebacks show the line numbers of the page.
            code = compile(
                "\n" * part.line + part.code, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
            )
            await _run(code, vars(module))
            told.append("".join(f"{line}\n" for line in printed))
    finally:
        del sys.modules[module.__name__]
    return told


async def _run(code: CodeType, names: dict[str, object]) -> None:
    found = cast("object", eval(code, names))  # noqa: S307  # our own text
    if inspect.iscoroutine(found):
        await cast("Coroutine[object, object, object]", found)
