"""Imports point one way: examples, tests, docs → handlers → bus. A package imports only packages below it."""

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# The packages from the lowest to the highest: each may import those before it. A module in no package is listed itself.
ORDERS = {
    "bus": """errors faces text concurrency storage messages wire hooks servers embedded log media publishing previews
        following archive groups retention opening session_upkeep session bus""",
    "handlers": "context projections providers formats agent protocols integrations verify serve cli",
}
FACES = tuple(f"lanebus.bus{part}" for part in ("", ".errors", ".messages", ".servers", ".storage", ".wire"))
HTTP = (
    """starlette uvicorn http.server http.client httpx httpx2 httpcore2 h11 anthropic mcp openai google.genai obstore"""
)


def sources(folder: str) -> list[Path]:
    """Return the Python files of a package, relative to the repository."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))


def product() -> list[Path]:
    return [*sources("bus"), *sources("handlers"), *sources("lanebus")]


def imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Yield each import of a module of a package, also within functions, as its line and the full dotted name."""
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


@cache
def read(path: Path) -> list[tuple[int, str]]:
    """Return the imports of one file of the repository."""
    return list(imports((ROOT / path).read_text(), ".".join(path.parent.parts)))


def is_in(name: str, module: str) -> bool:
    """Return whether a dotted name is that module or something in it."""
    return name == module or name.startswith(module + ".")


def crossings(folder: str, *forbidden: str) -> list[str]:
    """Return the forbidden imports of a package, as `file:line name`."""
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


def test_the_product_knows_nothing_of_what_uses_it() -> None:
    users = ("tests", "examples", "bench", "docs")
    assert crossings("bus", "lanebus.handlers", *users) + crossings("handlers", *users) == []


@pytest.mark.parametrize("top", ORDERS)
def test_a_package_imports_only_packages_below_it(top: str) -> None:
    order, wrong = ORDERS[top].split(), list[str]()
    for path in sources(top):
        own = path.parts[1].removesuffix(".py")
        if own == "__init__":
            continue
        assert own in order, f"{path}: give {own} its place in the order of tests/test_layers.py"
        below = order[: order.index(own) + 1]
        for line, name in read(path):
            if is_in(name, f"lanebus.{top}") and [*name.split("."), "", ""][2] not in below:
                wrong.append(f"{path}:{line} imports {name}")
    assert wrong == []


def test_handlers_use_the_bus_and_each_other_by_faces_alone() -> None:
    """So the inside of a package can move. A package's own modules are imported by their names, not by its face."""
    wrong: list[str] = []
    for path in sources("handlers"):
        own = f"lanebus.handlers.{path.parts[1]}"
        for line, name in read(path):
            module = name.rpartition(".")[0]  # of a name that is imported from a face
            if is_in(name, "lanebus.bus") and module not in {*FACES, "lanebus.bus.faces", "lanebus.bus.text"}:
                wrong.append(f"{path}:{line} imports {name}")
            if is_in(name, "lanebus.handlers") and not is_in(name, own) and name.count(".") > 3:
                wrong.append(f"{path}:{line} imports {name}")
    assert wrong == []


def test_integrations_use_public_names_alone() -> None:
    """So an integration can become a distribution of its own."""
    public = {path.stem for path in sources("lanebus")}
    assert [
        f"{path}:{line} imports {name}"
        for path in sources("handlers/integrations")
        for line, name in read(path)
        if is_in(name, "lanebus") and not is_in(name, "lanebus.handlers.integrations")
        if name != "lanebus.bus.faces.lazy_names" and name.count(".") > 1 and name.split(".")[1] not in public
    ] == []


@pytest.mark.parametrize("face", [*FACES, *(f"lanebus.handlers.{name}" for name in ORDERS["handlers"].split()[:-1])])
def test_a_face_has_the_names_that_it_lists_and_none_is_a_module(face: str) -> None:
    module = import_module(face)
    listed: tuple[str, ...] = module.__all__
    assert [name for name in listed if not hasattr(module, name)] == []
    folder = ROOT / face.removeprefix("lanebus.").replace(".", "/")
    assert {path.stem for path in folder.iterdir()} & {*listed} == set()
    assert face != "lanebus.bus" or len(listed) <= 80


def test_only_faces_list_their_names() -> None:
    assert [
        str(path)
        for path in (*sources("bus"), *sources("handlers"))
        if path.name != "__init__.py" and re.search(r"^__all__\b", (ROOT / path).read_text(), re.MULTILINE)
    ] == []


def test_no_modules_import_each_other() -> None:
    """There is no import cycle, also not within a package."""
    modules = {"lanebus." + ".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in product()}
    graph: dict[str, set[str]] = defaultdict(set)
    for module, path in modules.items():
        for _, name in read(path):
            parts = name.split(".")
            for length in range(len(parts), 1, -1):
                if (found := ".".join(parts[:length])) in modules:
                    graph[module].add(found)
                    break
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " → ".join([*above[above.index(module) :], module])
        if module not in done:
            for other in sorted(graph[module]):
                if other != module:
                    visit(other, (*above, module))
            done.add(module)

    for module in sorted(modules):
        visit(module, ())


def test_messages_stand_on_the_standard_library_and_pydantic() -> None:
    # filetype is the one exception: it is pure, and detects a media type from the first bytes.
    known = {*sys.stdlib_module_names, "pydantic", "pydantic_core", "typing_extensions", "filetype", "lanebus"}
    assert [
        f"{path}:{line} imports {name}"
        for path in sources("bus/messages")
        for line, name in read(path)
        if name.split(".")[0] not in known
    ] == []


def test_only_connection_and_endpoint_import_redis() -> None:
    found = crossings("bus", "redis", "valkey") + crossings("handlers", "redis", "valkey")
    assert [
        line for line in found if not line.startswith(("bus/servers/connection.py:", "bus/servers/endpoint.py:"))
    ] == []


def test_importing_bus_loads_no_http_and_no_handlers() -> None:
    code = "import sys, lanebus.bus.bus; print(*sys.modules, sep='\\n')"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "lanebus.bus.session" in loaded
    assert loaded & {*HTTP.split(), "lanebus.handlers"} == set()


def test_nothing_imports_the_folders_by_their_own_names() -> None:
    """A user's project may have its own `bus` or `handlers`; ours imported by these names would be second copies."""
    tops = ("bus", "handlers", "tests", "examples", "bench", "docs")
    assert [line for top in tops for line in crossings(top, "bus", "handlers")] == []


LONGER = {
    "bus/log/log.py": "the log of a namespace, and the heads that it returns",
    "bus/publishing/outbox.py": "how the replies of a batch are read, and what was not answered is recovered",
    "bus/publishing/publisher.py": "how waiting publishes become batches, and their limits",
    "bus/wire/codec.py": "how an entry is written, read, and told from others",
    "handlers/providers/gemini.py": "one provider",
}
"""the files of more than 800 lines, each with its one story"""


def test_no_other_module_is_longer_than_800_lines() -> None:
    assert {str(path) for path in product() if len((ROOT / path).read_text().splitlines()) > 800} == LONGER.keys()


def test_no_two_classes_of_the_product_share_a_name() -> None:
    classes = Counter(
        node.name
        for path in product()
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, number in classes.items() if number > 1] == []


def test_every_package_says_what_it_does() -> None:
    packages = [path for path in product() if path.name == "__init__.py"]
    assert [str(path) for path in packages if not ast.get_docstring(ast.parse((ROOT / path).read_text()))] == []


def test_each_file_with_tests_is_found_by_pytest_and_is_not_skipped_as_a_whole() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^(async )?def test_", text, re.MULTILINE) and "support" not in path.parts:
            assert path.name.startswith("test_"), path
            assert (path.parent / "__init__.py").exists(), path
            assert not re.search(r"^pytest\.(skip|importorskip)\(", text, re.MULTILINE), path
