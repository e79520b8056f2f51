"""Ids: of the requested kind, and unique."""

import time
import uuid

import pytest

from lanebus.bus.errors import InvalidContent
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

__all__ = ()


@pytest.mark.parametrize(
    ("kind", "default", "wanted"),
    [
        ("string", "mine", "mine"),
        ("int", 7, 7),
        ("bigint", 2**60, str(2**60)),
        ("bigint", "123", "123"),
    ],
)
def test_a_default_of_the_kind_is_the_id(kind: IdKind, default: Id, wanted: Id) -> None:
    assert generate_id(default, kind=kind) == wanted


@pytest.mark.parametrize(
    ("kind", "default"), [("string", 7), ("string", ""), ("int", "7"), ("int", True), ("int", 0), ("bigint", True)]
)
def test_a_default_of_another_kind_or_an_empty_one_is_replaced(kind: IdKind, default: Id) -> None:
    first, second = generate_id(default, kind=kind), generate_id(default, kind=kind)
    assert first != default
    assert first != second


@pytest.mark.parametrize(("kind", "limit"), [("int", 2**32), ("bigint", 2**64)])
def test_numbers_stay_below_the_limit_of_their_kind(kind: IdKind, limit: int) -> None:
    assert all(0 <= int(generate_id(kind=kind)) < limit for _ in range(100))


def test_a_bigint_id_is_text_because_javascript_could_not_read_the_number() -> None:
    assert isinstance(generate_id(kind="bigint"), str)


@pytest.mark.parametrize("override", ["theirs", 5, lambda: "theirs", lambda: 5])
def test_an_override_takes_precedence_regardless_of_its_kind(override: Id) -> None:
    assert generate_id("mine", override=override) in {"theirs", 5}


@pytest.mark.parametrize("override", ["", default_id])
def test_an_empty_override_selects_the_default_id(override: Id) -> None:
    assert generate_id("mine", override=override) == "mine"


async def _later() -> Id:
    return "awaited"


async def test_generate_id_async_accepts_an_asynchronous_override() -> None:
    assert await generate_id_async("mine", override=_later) == "awaited"
    assert await generate_id_async("mine", override=_later()) == "awaited"
    assert await generate_id_async("mine", override="theirs") == "theirs"
    assert await generate_id_async("mine") == "mine"


def test_generate_id_refuses_an_asynchronous_override() -> None:
    with pytest.raises(InvalidContent, match="generate_id_async"):
        generate_id(override=_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_each_generator_returns_ids_of_its_form() -> None:
    assert uuid.UUID(uuid_id()).version == 4
    assert len(uuid_id()) == 36
    assert len(hex_id()) == 32
    assert int(hex_id(), 16) >= 0
    assert 0 <= int_id() < 2**32
    assert abs(int(big_int_id()) - time.time_ns()) < 60 * 10**9
    assert abs(timestamp_id() - time.time_ns() // 1000) < 60 * 10**6
    assert len(short_id()) == 8
    assert short_id().isalnum()
    assert default_id() == ""
