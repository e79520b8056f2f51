"""Write `llms.txt`, a list of the pages for language models, and `llms-full.txt`, all pages in one file."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from docs.site.navigation import Menu, pages_of
from docs.site.signatures import body_of, properties_of, signature_of
from docs.site.values import definition_of

__all__ = ("write_llms",)

_ABOUT = "An event-sourced message bus for agent loops, on Redis streams, in Python."
_DIRECTIVE = re.compile(r"^::: (?P<module>[\w.]+)\.(?P<name>\w+)$", re.MULTILINE)


def write_llms(source: Path, site: Path, found: Menu) -> None:
    """Write both files into the site.

    Args:
        source: the folder of the Markdown pages from which the site was built.
    """
    index, whole = [f"# lanebus\n\n> {_ABOUT}\n"], [f"# lanebus\n\n{_ABOUT}\n"]
    last = ""
    for heading, title, page in pages_of(found):
        if heading != last:
            index.append(f"\n## {heading}\n")
            last = heading
        text = (source / page).read_text(encoding="utf-8")
        place = "./" if page == "index.md" else f"{page.removesuffix('.md')}/"
        index.append(f"- [{title}]({place}): {_first_sentence(text)}")
        whole.append(f"\n---\n\n{_as_text(text)}")
    (site / "llms.txt").write_text("\n".join(index) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n".join(whole), encoding="utf-8")


def _first_sentence(text: str) -> str:
    for block in text.split("\n\n"):
        line = " ".join(block.split())
        if line and not line.startswith(("#", "<", ":::", "!", "```", "|", "- ", ">")):
            return re.split(r"(?<=\.)\s", line, maxsplit=1)[0]
    return ""


def _as_text(page: str) -> str:
    """Return a page without its pictures, and with docstrings in place of the directives that stand for these
    docstrings."""
    text = re.sub(r'<figure class="picture">.*?</figure>\n?', "", page, flags=re.DOTALL)
    return _DIRECTIVE.sub(lambda match: "\n\n".join(_described(match["module"], match["name"])), text)


def _described(module: str, name: str) -> Iterator[str]:
    value: object = getattr(import_module(module), name)
    yield f"### {name}"
    if not inspect.isclass(value):
        yield from _callable(name, value) if inspect.isroutine(value) else _value(module, name)
        return
    yield from _class(name, value)
    for line, told in properties_of(value):
        yield f"```python\n{line}\n```"
        yield told
    for method, function in vars(value).items():
        if not method.startswith("_") and inspect.isroutine(inspect.unwrap(getattr(value, method))):
            yield from _callable(f"{name}.{method}", getattr(function, "__func__", function))


def _value(module: str, name: str) -> Iterator[str]:
    """Yield the definition of a value, such as a type alias, and its docstring."""
    found = definition_of(module, name)
    if found is not None and found.code:
        yield f"```python\n{found.code}\n```"
    if found is not None and found.told:
        yield found.told


def _class(name: str, found: type) -> Iterator[str]:
    """Yield the fields of a class, else its constructor's signature, and then its docstring."""
    made = inspect.getattr_static(found, "__init__", None)
    first = body_of(found) or (signature_of(name, made) if inspect.isfunction(made) else None)
    if first is not None:
        yield f"```python\n{first.removeprefix('def ').removesuffix(' -> None')}\n```"
    if text := inspect.getdoc(found):
        yield text


def _callable(name: str, value: object) -> Iterator[str]:
    if not callable(value):
        return
    if (first := signature_of(name, value)) is not None:
        yield f"```python\n{first}\n```"
    if text := inspect.getdoc(value):
        yield text
