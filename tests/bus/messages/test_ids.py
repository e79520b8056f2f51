"""Ids: of the requested kind, and unique."""

import time
import uuid

import pytest

from lanebus.bus.errors import InvalidContent
from lanebus.bus.messages import uuid_id
from lanebus.bus.messages.base import (
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


@pytest.mark.parametrize(
    ("kind", "default", "wanted"),
    [("string", "mine", "mine"), ("int", 7, 7), ("bigint", 2**60, str(2**60)), ("bigint", "123", "123")],
)
def test_a_default_of_the_kind_is_the_id(kind: IdKind, default: Id, wanted: Id) -> None:
    assert generate_id(default, kind=kind) == wanted


@pytest.mark.parametrize(
    ("kind", "default"), [("string", 7), ("string", ""), ("int", "7"), ("int", True), ("int", 0), ("bigint", True)]
)
def test_a_default_of_another_kind_or_an_empty_one_is_replaced(kind: IdKind, default: Id) -> None:
    assert len({default, generate_id(default, kind=kind), generate_id(default, kind=kind)}) == 3


def test_numbers_stay_below_the_limit_of_their_kind_and_large_ones_are_text_for_javascript() -> None:
    assert all(0 <= int(generate_id(kind="int")) < 2**32 for _ in range(100))
    assert all(isinstance(each := generate_id(kind="bigint"), str) and int(each) < 2**64 for _ in range(100))


def test_an_override_takes_precedence_regardless_of_its_kind_unless_it_is_empty() -> None:
    assert [generate_id("mine", override=each) for each in ("theirs", 5, lambda: "theirs", lambda: 5)] == [
        *("theirs", 5, "theirs", 5)
    ]
    assert [generate_id("mine", override=each) for each in ("", default_id)] == ["mine", "mine"]


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
