"""Write a page for each public module: each name with its docstring, classes first, then functions and values."""

import inspect
from importlib import import_module

__all__ = ("GROUPS", "api_page", "described_in")

GROUPS = (
    "lanebus",
    "lanebus.messages",
    "lanebus.errors",
    "lanebus.agent",
    "lanebus.context",
    "lanebus.projections",
    "lanebus.providers",
    "lanebus.codecs",
    "lanebus.media",
    "lanebus.archive",
    "lanebus.groups",
    "lanebus.bounds",
    "lanebus.mcp",
    "lanebus.access",
    "lanebus.telemetry",
    "lanebus.testing",
    "lanebus.integration",
)


def api_page(group: str) -> str:
    """Return the page of one public module, with a directive of mkdocstrings for each name.

    A name that the package `lanebus` also exports is described only on that package's page, so that each name has one
    place.
    """
    module = import_module(group)
    names = described_in(group)
    elsewhere = {*module.__all__} - {*names}
    lines = [f"# {group}", "", (inspect.getdoc(module) or "").split("\n\n    ", maxsplit=1)[0], ""]
    if group == "lanebus":
        lines[2] = "The names that nearly every program needs. The other groups hold the rest."
    if elsewhere:
        links = ", ".join(f"[`{name}`][lanebus.{name}]" for name in sorted(elsewhere))
        lines += [f"Described with [lanebus](lanebus.md): {links}.", ""]
    for title, kind in (("Classes", "class"), ("Functions", "function"), ("Values", "value")):
        found = [name for name in names if _kind(getattr(module, name)) == kind]
        if found:
            lines += [f"## {title}", ""]
        for name in found:
            lines += [f"::: {group}.{name}", ""]
    return "\n".join(lines)


def described_in(group: str) -> list[str]:
    """Return the sorted names of a public module that are described with it: all that `lanebus` does not export too."""
    elsewhere = () if group == "lanebus" else import_module("lanebus").__all__
    return sorted({*import_module(group).__all__} - {*elsewhere})


def _kind(value: object) -> str:
    if inspect.isclass(value):
        return "class"
    return "function" if inspect.isroutine(value) else "value"
