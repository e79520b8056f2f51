"""Read the parameters from a function's docstring in Google style. Pure."""

import re
from collections.abc import Collection, Sequence

__all__ = ("read_docstring",)

_HEADS = frozenset({"Args:", "Arguments:", "Parameters:"})
_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\(.*?\))?:(?:\s+(.*))?")


def read_docstring(text: str, parameters: Collection[str]) -> tuple[str, dict[str, str]]:
    """Split a docstring into the function's description and a description of each parameter.

    If a line of the parameter section cannot be parsed, return the whole text as the description.

    Args:
        text: the docstring, as `inspect.getdoc` returns it.
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
    """Return each parameter's description as one line; empty if a line belongs to no parameter."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    indent = next((_indent(line) for line in lines if line.strip()), 0)
    for line in lines:
        if not line.strip():
            continue
        if _indent(line) > indent and current is not None:
            current.append(line.strip())
            continue
        entry = _ENTRY.fullmatch(line.strip())
        if entry is None or _indent(line) != indent or entry[1] not in parameters:
            return {}
        current = found[entry[1]] = [entry[2]] if entry[2] else []
    return {name: " ".join(each) for name, each in found.items() if each}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
