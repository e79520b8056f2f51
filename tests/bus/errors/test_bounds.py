"""Every dataclass of bounds refuses nonsense, with the field and what to use instead."""

import ast
import math
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

import pytest

from lanebus import Bounds
from lanebus.agent import WorkerBounds
from lanebus.bounds import PublishBounds
from lanebus.bus.errors import InvalidBound, check_bounds
from lanebus.errors import SetupError
from tests.support.laws.tiny import LAW_TINY, RUN_TINY, WORKER_TINY
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ()

NO_NUMBERS: tuple[object, ...] = (None, "1", True, False, -1, math.nan, math.inf, -math.inf)


def _all() -> "list[type[DataclassInstance]]":
    """Return each class of the product whose name ends with Bounds."""
    found: list[type[DataclassInstance]] = []
    for top in ("bus", "handlers"):
        for path in sorted((ROOT / top).rglob("*.py")):
            text = path.read_text()
            if "Bounds:" not in text:
                continue
            names = [each.name for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)]
            module = ".".join(("lanebus", *path.relative_to(ROOT).with_suffix("").parts))
            kinds = [getattr(import_module(module), name) for name in names if name.endswith("Bounds")]
            found += [cast("type[DataclassInstance]", kind) for kind in kinds if is_dataclass(kind)]
    return found


ALL = _all()


def _default(field: "Field[object]") -> object:
    return field.default if field.default is not MISSING else cast("type", field.default_factory)()


def test_every_class_of_bounds_is_found() -> None:
    assert {Bounds, PublishBounds, WorkerBounds} <= set(ALL)
    assert len(ALL) >= 23


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_field_of_bounds_refuses_nonsense_by_its_name(kind: "type[DataclassInstance]") -> None:
    for field in fields(kind):
        default = _default(field)
        wrong: tuple[object, ...] = (*NO_NUMBERS, 1.5) if isinstance(default, int) else NO_NUMBERS
        for value in wrong:
            with pytest.raises(InvalidBound) as caught:
                kind(**{field.name: value})
            assert isinstance(caught.value, SetupError)
            assert caught.value.key.endswith(f".{field.name}")
            assert caught.value.fault.startswith(f"{caught.value.key} is {value!r}")
            assert caught.value.remedy.startswith("use ")
        kind(**{field.name: default})


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_bounds_take_the_smallest_value_that_the_error_names(kind: "type[DataclassInstance]") -> None:
    for field in fields(kind):
        default = _default(field)
        if is_dataclass(default):
            continue
        with pytest.raises(InvalidBound) as caught:
            kind(**{field.name: -1})
        smallest = {
            "use 0 or more": 0,
            "use 1 or more": 1,
            "use a number of 0 or more": 0.0,
            "use a number above 0": 1e-9,
        }
        kind(**{field.name: smallest[caught.value.remedy]})
        if "above" in caught.value.remedy or "1" in caught.value.remedy:
            with pytest.raises(InvalidBound):
                kind(**{field.name: 0})


def test_the_keys_of_the_bus_are_those_of_the_settings_file() -> None:
    for part in fields(Bounds):
        kind = cast("type[DataclassInstance]", type(_default(part)))
        first = fields(kind)[0].name
        with pytest.raises(InvalidBound) as caught:
            kind(**{first: -1})
        assert caught.value.key == f"bounds.{part.name}.{first}"


@pytest.mark.parametrize(
    ("name", "remedy"), [("batch_count", "use 1 or more"), ("quarantine_attempts", "use 0 or more")]
)
def test_the_remedy_names_the_smallest_value(name: str, remedy: str) -> None:
    with pytest.raises(InvalidBound) as caught:
        PublishBounds(**{name: -1})
    assert str(caught.value) == f"bounds.publish.{name} is -1: {remedy}"


def test_tiny_bounds_are_valid() -> None:
    for bounds in (LAW_TINY, RUN_TINY, WORKER_TINY):
        check_bounds(bounds, zero=[field.name for field in fields(bounds)])
