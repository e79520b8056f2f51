"""JSON from outside: every fault is reported with its path."""

import pytest
from pydantic import JsonValue

from lanebus.bus.messages.json_parser import DEPTH_LIMIT, parse_json, require_json
from lanebus.errors import DecodeError

__all__ = ()


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a":1,"a":1}', "a"),
        ('[{"b":{"c":1,"d":2,"c":3}}]', "0.b.c"),
        ('{"a":[1,2,{"b":Infinity}]}', "a.2.b"),
        ('{"a":-1e400}', "a"),
        ("NaN", ""),
        ('[{"a":1,"a":2}', "a"),  # the text ends early, so only the key is known and not the path
        ('["\\ud800"]', "0"),
        ('{"a":{"b\\udfff":1}}', "a"),
    ],
)
def test_a_fault_is_reported_with_its_path(text: str, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_json(text)
    assert caught.value.path == path


def test_equal_keys_in_different_objects_are_accepted() -> None:
    assert parse_json('[{"a":1},{"a":{"a":1}}]') == [{"a": 1}, {"a": {"a": 1}}]


@pytest.mark.parametrize(
    ("value", "path"), [({"a": nested(200)}, "a"), ([float("nan")], "0"), ({"a": ["\ud800"]}, "a.0")]
)
def test_require_json_checks_a_value_from_another_parser(value: JsonValue, path: str) -> None:
    require_json({"a": nested(DEPTH_LIMIT - 2)})
    with pytest.raises(DecodeError) as caught:
        require_json(value)
    assert caught.value.path == path


@pytest.mark.parametrize("fault", ['{"a":1,"a":2}', '"\\ud800"'])
def test_a_fault_below_long_names_and_beside_long_lists_costs_no_more_than_its_path(fault: str) -> None:
    # A path for each number of the list would need 60 GB.
    text = f'{{"{"k" * 300_000}":[{",".join("0" * 200_000)}],"z":[{fault}]}}'
    with pytest.raises(DecodeError) as caught:
        parse_json(text)
    assert caught.value.path in {"z.0", "z.0.a"}
