"""Imports point one way: examples, tests → handlers → bus; and in `bus` only to what stands above."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

__all__ = ()


# The modules of `bus`, from the ground up. A new one gets its place here.
ORDER = [
    *("errors", "storage", "messages", "envelope", "checksum", "upcasters", "codec", "keys"),
    *("data_dir", "keeper", "launch", "server"),
    *(
        "connection_bounds",
        "links",
        "place",
        "pool",
        "grouped_pool",
        "sentinel",
        "slots",
        "cluster",
        "cluster_pool",
        "connection",
        "durability",
        "scripts",
        "head",
        "past",
        "pager",
        "work_bounds",
        "log",
        "fork",
        "incarnations",
        "checkpoints",
        "retention",
        "media",
        "group_names",
        "erasure",
        "receipt",
        "limits",
        "publish",
        "queue",
        "outbox",
        "outboxes",
        "recovery",
        "publisher",
        "notice",
        "selection",
        "reader",
        "subscription",
        "archive",
        "inspection",
        "feed",
        "feeds",
        "heads",
        "hub",
        "spoken",
        "live_streams",
        "live",
        "follower",
        "ringing",
        "shards",
        "retry_policy",
        "work",
        "liveness",
        "group_log",
        "leases",
        "backlog",
        "group_reader",
        "group_pumps",
        "taking",
        "dead_letters",
        "groups",
        "activity",
        "lease_status",
        "consumer",
        "bounds",
        "session",
        "bus",
    ),
]
REDIS = {Path("bus/links.py"), Path("bus/place.py")}
HTTP = {
    "starlette",
    "uvicorn",
    "http.server",
    "http.client",
    "httpx",
    "httpx2",
    "httpcore2",
    "h11",
    "anthropic",
    "mcp",
    "openai",
    "google.genai",
    "obstore",
}


def sources(folder: str) -> list[Path]:
    """The Python files of a package, relative to the repository."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))


def imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Each import, wherever it stands, as its line and the full dotted name of what is imported.

    Args:
        package: the dotted name of the package the source is in; relative imports start there.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parents = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*parents, *([module] if module else [])])
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case _:
                pass


def read(path: Path) -> list[tuple[int, str]]:
    """The imports of one file of the repository."""
    return list(imports((ROOT / path).read_text(), ".".join(path.parent.parts)))


def is_in(name: str, module: str) -> bool:
    """Whether a dotted name is that module or something in it."""
    return name == module or name.startswith(module + ".")


def crossings(folder: str, *forbidden: str) -> list[str]:
    """Imports in a package of what it may not know, as `file:line name`."""
    return [
        f"{path}:{line} imports {name}"
        for path in sources(folder)
        for line, name in read(path)
        if any(is_in(name, module) for module in forbidden)
    ]


def test_imports_are_found_wherever_they_stand() -> None:
    source = (
        "import a.b\ndef f():\n    from . import c\n    from ..d import e\nif TYPE_CHECKING:\n    from g import h\n"
    )
    assert sorted(imports(source, "top.sub")) == [(1, "a.b"), (3, "top.sub.c"), (4, "top.d.e"), (6, "g.h")]


def test_bus_knows_nothing_of_what_uses_it() -> None:
    assert crossings("bus", "handlers", "tests", "examples", "bench") == []


def test_handlers_know_nothing_of_what_uses_them() -> None:
    assert crossings("handlers", "tests", "examples", "bench") == []


def test_every_module_of_bus_has_a_place_in_the_order() -> None:
    assert {path.parts[1].removesuffix(".py") for path in sources("bus")} - {"__init__", *ORDER} == set()


def test_a_module_of_bus_imports_only_what_stands_above_it() -> None:
    wrong: list[str] = []
    for path in sources("bus"):
        own = path.parts[1].removesuffix(".py")
        if own == "__init__":  # re-exports all
            continue
        above = ORDER[: ORDER.index(own) + 1] if own in ORDER else []
        for line, name in read(path):
            if is_in(name, "bus") and [*name.split("."), ""][1] not in above:
                wrong.append(f"{path}:{line} imports {name}")
    assert wrong == []


def test_messages_stand_on_the_standard_library_and_pydantic() -> None:
    # filetype is the one more: pure too, it tells a media type from its bytes.
    known = {*sys.stdlib_module_names, "pydantic", "pydantic_core", "typing_extensions", "filetype", "bus"}
    assert [
        f"{path}:{line} imports {name}"
        for path in sources("bus/messages")
        for line, name in read(path)
        if name.split(".")[0] not in known
    ] == []


def test_only_links_and_place_import_redis() -> None:
    found = crossings("bus", "redis", "valkey") + crossings("handlers", "redis", "valkey")
    assert [line for line in found if Path(line.partition(":")[0]) not in REDIS] == []


def test_importing_bus_loads_no_http_and_no_handlers() -> None:
    code = "import sys, bus; print(*sys.modules, sep='\\n')"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "bus" in loaded
    assert loaded & {*HTTP, "handlers"} == set()
