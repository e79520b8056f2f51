"""Error texts name the fault and its remedy, also those of every dataclass of bounds."""

import ast
import math
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from lanebus import Bounds
from lanebus.agent import WorkerBounds
from lanebus.bounds import PublishBounds
from lanebus.bus import errors
from lanebus.bus.errors import InvalidBound, check_bounds
from lanebus.errors import SetupError
from tests.support.laws.tiny import LAW_TINY, RUN_TINY, WORKER_TINY
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SMALLEST = {"use 0 or more": 0, "use 1 or more": 1, "use a number of 0 or more": 0.0, "use a number above 0": 1e-9}
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
assert {Bounds, PublishBounds, WorkerBounds} <= set(ALL)
assert len(ALL) >= 23


def _default(field: "Field[object]") -> object:
    return field.default if field.default is not MISSING else cast("type", field.default_factory)()


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_field_of_bounds_refuses_nonsense_by_its_name_and_takes_the_smallest_value_that_it_names(
    kind: "type[DataclassInstance]",
) -> None:
    for field in fields(kind):
        default = _default(field)
        for value in (*NO_NUMBERS, *([1.5] if isinstance(default, int) else [])):
            with pytest.raises(InvalidBound) as caught:
                kind(**{field.name: value})
            assert isinstance(caught.value, SetupError)
            assert caught.value.key.endswith(f".{field.name}")
            assert caught.value.fault.startswith(f"{caught.value.key} is {value!r}")
            assert caught.value.remedy.startswith("use ")
        kind(**{field.name: default})
        if is_dataclass(default):
            continue
        with pytest.raises(InvalidBound) as caught:
            kind(**{field.name: -1})
        kind(**{field.name: SMALLEST[caught.value.remedy]})
        if SMALLEST[caught.value.remedy]:
            with pytest.raises(InvalidBound):
                kind(**{field.name: 0})


def test_the_keys_of_the_bus_are_those_of_the_settings_file() -> None:
    for part in fields(Bounds):
        kind = cast("type[DataclassInstance]", type(_default(part)))
        first = fields(kind)[0].name
        with pytest.raises(InvalidBound) as caught:
            kind(**{first: -1})
        assert caught.value.key == f"bounds.{part.name}.{first}"


def test_the_remedy_names_the_smallest_value() -> None:
    for name, remedy in (("batch_count", "use 1 or more"), ("quarantine_attempts", "use 0 or more")):
        with pytest.raises(InvalidBound) as caught:
            PublishBounds(**{name: -1})
        assert str(caught.value) == f"bounds.publish.{name} is -1: {remedy}"


def test_tiny_bounds_are_valid() -> None:
    for bounds in (LAW_TINY, RUN_TINY, WORKER_TINY):
        check_bounds(bounds, zero=[field.name for field in fields(bounds)])


REMEDIES: list[tuple[errors.BusError, str]] = [
    (errors.NoLanes(), "give at least one"),
    (errors.NoKinds(), "give at least one"),
    (errors.UnknownVersion(3, 2), "install a newer lanebus"),
    (errors.MessageTooLarge(9, 8), "shorten it, or move large content to the media store"),
    (errors.KeyReserved("lanebus:k", "lanebus:"), "use a key that does not begin with 'lanebus:'"),
    (errors.KeyTooLong(9, 8), "use its SHA-256"),
    (errors.MediaTooLarge(9, 8), "use smaller ones"),
    (errors.MediaMissing("k"), "another media store"),
    (errors.MediaDamaged("a", "b"), "put them again"),
    (errors.InvalidMediaKey("x"), "use a SHA-256"),
    (errors.NoMediaStore("k"), "give the one that holds it"),
    (errors.NoArchive("s"), "Bus.open(archive=…)"),
    (errors.Conflict("s", 1, 2), "read on and decide anew"),
    (errors.Fenced("s", 1, 2), "stop"),
    (errors.SessionClosed("s"), "reopen it"),
    (errors.SessionDamaged("s", "head, position"), "restore the server's data"),
    (errors.SessionErased("s"), "use another session id"),
    (errors.SessionExists("s", None, 0), "choose another id"),
    (errors.NoSuchPosition("s", 9, 3), "name one from 1 to its last, 3"),
    (errors.NoSuchPosition("s", 1, 0), "session 's' has no entries: publish to it first"),
    (errors.OverLimit("s", "session", 9, 8), "raise the limit"),
    (errors.PreviewFull("s", 9, 8), "publish the whole messages"),
    (errors.LogRolledBack("s", 9, 8), "read again after position 8, or publish the lost messages again"),
    (errors.LogRolledBack("s", 9, 0), "and perhaps all before it: check that the cursor is of this session"),
    (errors.GroupInUse("g", ("a", "b")), "stop them, or remove the group by force"),
    (errors.CursorTrimmed("s", "1", 3), "begin there"),
    (errors.HeadMissing("s", 3), "restore the server's data from a backup"),
    (errors.EntriesMissing("s", "1", 3), "restore the server's data from a backup"),
    (errors.TrimRefused("s", 9, {"r:a": 3}), "trim less"),
    (errors.EraseRefused("s", ("f",)), "erase these first"),
    (errors.ArchiveDamaged("s", "1-2-x", "missing"), "restore it from a backup"),
    (errors.Closed("bus"), "open another"),
    (errors.OutcomeUnknown("s", 1.0), "publish again with the same key"),
    (errors.OutcomeUnknown("s", 1.0, is_forgotten=True), "publish again with the same key"),
    (errors.Refused("OOM"), "raise maxmemory, then archive and trim sessions; `lanebus erase` works at once"),
    (errors.LoginRefused(), "correct it there"),
    (errors.RewriteUnfinished("it failed"), "erase the session again with rewrite"),
    (errors.ServerInUse(Path("/d"), (7,)), "end the processes that use it"),
]


@pytest.mark.parametrize(("error", "remedy"), REMEDIES, ids=lambda each: type(each).__name__)
def test_an_error_text_is_short_and_contains_the_remedy(error: errors.BusError, remedy: str) -> None:
    assert remedy in str(error)
    assert len(str(error)) < 200
