"""What a function's docstring says of its parameters, in Google's style. Pure."""

import re
from collections.abc import Collection, Sequence

__all__ = ("read_docstring",)

_HEADS = frozenset({"Args:", "Arguments:", "Parameters:"})
_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\(.*?\))?:(?:\s+(.*))?")


def read_docstring(text: str, parameters: Collection[str]) -> tuple[str, dict[str, str]]:
    """Part a docstring, as `inspect.getdoc` gives it, into the description and what it says of each parameter.

    The section of the parameters is taken out of the description only if all of it was understood; else nothing is
    taken for anything, and the description is the whole text.
    """
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.rstrip() in _HEADS), None)
    if start is None:
        return text, {}
    end = next((at for at in range(start + 1, len(lines)) if lines[at][:1].strip()), len(lines))
    entries = _read_section(lines[start + 1 : end], parameters)
    if not entries:
        return text, {}
    before, after = "\n".join(lines[:start]).rstrip(), "\n".join(lines[end:]).rstrip()
    return "\n\n".join(part for part in (before, after) if part), entries


def _read_section(lines: Sequence[str], parameters: Collection[str]) -> dict[str, str]:
    """Each parameter's words on one line; empty if a line is none of a parameter's."""
    found: dict[str, list[str]] = {}
    words: list[str] | None = None
    indent = next((_indent(line) for line in lines if line.strip()), 0)
    for line in lines:
        if not line.strip():
            continue
        if _indent(line) > indent and words is not None:
            words.append(line.strip())
            continue
        entry = _ENTRY.fullmatch(line.strip())
        if entry is None or _indent(line) != indent or entry[1] not in parameters:
            return {}
        words = found[entry[1]] = [entry[2]] if entry[2] else []
    return {name: " ".join(each) for name, each in found.items() if each}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
