"""The public names of `lanebus` and its groups."""

import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

import lanebus
from lanebus import errors
from tests.support.backends.frameworks import FRAMEWORKS, module_marks
from tests.support.paths import ROOT

GROUPS = (
    *("access", "agent", "archive", "bounds", "codecs", "context", "errors", "groups", "mcp", "media", "messages"),
    *("integration", "projections", "providers", "telemetry", "testing"),
)
BACKENDS = tuple(name for name in FRAMEWORKS if (ROOT / "lanebus" / f"{name}.py").exists())
"""groups whose names cannot be imported without a framework"""
MODULES = [
    "lanebus",
    *(f"lanebus.{group}" for group in GROUPS),
    *(pytest.param(f"lanebus.{name}", marks=module_marks(name)) for name in BACKENDS),
]


def names(module: str) -> list[str]:
    return list(import_module(module).__all__)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_there_and_none_twice(module: str) -> None:
    listed = names(module)
    assert [name for name in listed if not hasattr(import_module(module), name)] == []
    assert len(set(listed)) == len(listed)
    assert module != "lanebus" or len(listed) <= 40


def test_there_are_no_other_groups() -> None:
    modules = {path.stem for path in (ROOT / "lanebus").glob("*.py")}
    assert modules - {"__init__", "__main__", "checkout", "pytest_plugin"} == {*GROUPS, *BACKENDS}


def test_a_name_in_two_groups_is_one_object() -> None:
    found: dict[str, object] = {}
    for module in ("lanebus", *(f"lanebus.{group}" for group in GROUPS)):
        for name in names(module):
            value: object = getattr(import_module(module), name)
            assert found.setdefault(name, value) is value, f"{module}.{name}"


def test_importing_lanebus_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import lanebus; print(*sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name for name in run.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert loaded == {"lanebus"}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = getattr(lanebus, "nothing")  # noqa: B009


def test_every_public_error_has_one_root_and_is_told_apart_by_who_can_act() -> None:
    branches = (errors.MessageError, errors.SetupError, errors.StreamError, errors.Closed, errors.Unavailable)
    for name in errors.__all__:
        error: object = getattr(errors, name)
        assert isinstance(error, type)
        if not issubclass(error, Warning) and error is not errors.BusError:
            assert issubclass(error, errors.BusError), name
            assert len([branch for branch in branches if issubclass(error, branch)]) == 1, name


def documented(module: str) -> Iterator[tuple[str, str]]:
    """Yield each public name of a module and each public method, with its docstring."""
    for name in names(module):
        value: object = getattr(import_module(module), name)
        yield name, inspect.getdoc(value) or ""
        if inspect.isclass(value):
            for method in (each for each in dir(value) if not each.startswith("_") or each in {"__init__", "__call__"}):
                yield f"{name}.{method}", inspect.getdoc(getattr(value, method)) or ""


def raised(docstring: str) -> Iterator[str]:
    """Yield the text before the colon of each entry of a `Raises:` section."""
    for section in re.findall(r"^Raises:\n((?: {4}.*\n?)+)", docstring, re.MULTILINE):
        for entry in re.findall(r"^ {4}(?! )(.*)", section, re.MULTILINE):
            yield entry.partition(": ")[0]


ERRORS = {name for group in (*GROUPS, *BACKENDS) for name in names(f"lanebus.{group}")} | {*dir(builtins)}
OF_PYDANTIC = {"ValidationError", "PydanticSerializationError"}
OF_FRAMEWORKS = {
    "lanebus.langgraph": {"InvalidNamespaceError"},
    "lanebus.pydantic_ai": {"ConversationConflict", "UserError"},
    "lanebus.a2a": {"ConcurrentTaskModificationError", "InvalidParamsError"},
}
"""errors of a framework's own interface, which its users know"""


@pytest.mark.parametrize("module", MODULES)
def test_each_entry_of_raises_is_one_error_that_a_user_can_import(module: str) -> None:
    """The reference shows each entry as one exception."""
    known = ERRORS | OF_PYDANTIC | OF_FRAMEWORKS.get(module, set())
    wrong = {
        name: found
        for name, docstring in documented(module)
        if (found := [error for error in raised(docstring) if error.rpartition(".")[2] not in known])
    }
    assert wrong == {}
