"""Ids are chosen and made as the graph framework does."""

import time
import uuid
from collections.abc import Callable
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import uuid_id
from lanebus.bus.messages.ids import (
    Id,
    IdKind,
    big_int_id,
    default_id,
    generate_id,
    generate_id_async,
    hex_id,
    int_id,
    short_id,
    timestamp_id,
)
from tests.support.vectors.cases import Case, Object, cases

__all__ = ()


def is_uuid4(value: object) -> bool:
    return isinstance(value, str) and len(value) == 36 and uuid.UUID(value).version == 4


# Generator → who makes such ids here, and what its shape means.
GENERATORS: dict[str, tuple[Callable[[], Id], str, Callable[[Id], bool]]] = {
    "UUID": (uuid_id, "36-char uuid4", is_uuid4),
    # As text: JavaScript reads no number of this size exactly.
    "BigInt": (big_int_id, "int nanoseconds", lambda id: abs(int(id) - time.time_ns()) < 60 * 10**9),
    "Default": (default_id, "'' (framework default)", lambda id: id == "" and is_uuid4(generate_id(override=id))),
    "Int": (int_id, "int < 2^32", lambda id: isinstance(id, int) and 0 <= id < 2**32),
    "Hex": (hex_id, "32 hex chars", lambda id: isinstance(id, str) and len(bytes.fromhex(id)) == 16),
    "Timestamp": (
        timestamp_id,
        "int microseconds",
        lambda id: isinstance(id, int) and abs(id - time.time_ns() // 1000) < 60 * 10**6,
    ),
    "Short": (short_id, "8 alphanumerics", lambda id: isinstance(id, str) and len(id) == 8 and id.isalnum()),
}


@cases("ids")
async def test_an_id_is_chosen_and_made_as_theirs(case: Case) -> None:
    match cast("dict[str, JsonValue]", case.given):
        case {"generators": [*names]}:
            shapes = cast("list[str]", case.expect["shapes"])
            for name, shape in zip(map(str, names), shapes, strict=True):
                make, said, has_shape = GENERATORS[name]
                assert said == shape
                assert has_shape(make())
        case {"calls": [*defaults]}:
            first, second = (generate_id(cast("Id | None", default)) for default in defaults)
            wanted = cast("list[object]", case.expect["results"])
            assert first == wanted[0]
            assert "uuid4" in str(wanted[1])
            assert is_uuid4(second)
        case {"id_type": str() as kind, "injected": injected}:
            found = await _generated(cast("IdKind", kind), cast("Id | None", case.given.get("default_id")), injected)
            _check(found, case.expect)
        case _:
            pytest.fail("no such case")


async def _generated(kind: IdKind, default: Id | None, injected: object) -> Id:
    if isinstance(injected, str) and injected.startswith("coroutine returning "):
        awaited = injected.removeprefix("coroutine returning ").strip("'")

        async def later() -> Id:
            return awaited

        return await generate_id_async(default, kind=kind, override=later())
    return generate_id(default, kind=kind, override=cast("Id | None", injected))


def _check(found: Id, wanted: Object) -> None:
    match wanted:
        case {"value": value}:
            assert found == value
            assert type(found) is type(value)
        case {"type": "int", "lt": int() as limit}:
            assert isinstance(found, int)
            assert 0 <= found < limit
        case {"type": "str"}:
            assert is_uuid4(found)
        case _:
            pytest.fail("no such case")
