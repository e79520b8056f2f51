"""JSON from outside: every fault is reported with its path."""

import json
import tracemalloc
from contextlib import suppress
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import DEPTH_LIMIT, JsonBounds, parse_json, require_few_values, require_json
from lanebus.errors import DecodeError
from tests.support.suite.scale import count, randomness


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


@pytest.mark.parametrize(("fault", "path"), [('{"a":1,"a":2}', "a"), ('"\\ud800"', ""), ("NaN", "")])
def test_a_fault_behind_thousands_of_values_is_not_searched_for(fault: str, path: str) -> None:
    # Anyone may send it: a path for each number of the list would take seconds, and gigabytes below long names.
    text = f'{{"{"k" * 300_000}":[{",".join("0" * 200_000)}],"z":[{fault}]}}'
    with pytest.raises(DecodeError) as caught:
        parse_json(text)
    assert caught.value.path == path


DENSE = ("[]", "{}", "1", "1234", "[1]", '{"a":1}', '{"a":{}}', '{"a":[]}', '""', '"ab"', "1.5", "[[],[]]", '"[[{{,,"')
FEW = JsonBounds(parsed_bytes=100_000)


@pytest.mark.parametrize("item", DENSE)
@pytest.mark.parametrize("padding", [0, 5, 15, 40])
def test_a_text_is_refused_or_takes_a_few_bytes_of_memory_for_each_of_its_own(item: str, padding: int) -> None:
    text = ("[" + f"{item},{' ' * padding}" * 5_000 + "1]").encode()
    tracemalloc.start()
    with suppress(DecodeError):
        parse_json(text, FEW)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(text) + 200_000


@pytest.mark.parametrize("item", ["[]", "{}", '{"a":[]}', '{"a":1}'])
def test_a_text_of_too_many_values_is_refused_and_says_what_it_has(item: str) -> None:
    text = "[" + f"{item}," * 120_000 + "1]"
    for data in (text, text.encode(), f'["\\\\\\"[",{text}', text[:-1]):
        with pytest.raises(DecodeError, match=r"too many values: .* commas would take about .* Split it"):
            parse_json(data)


def test_lone_surrogates_are_found_wherever_they_are() -> None:
    random, pieces = randomness("surrogates"), (r"\ud83d", r"\ude00", r"\\", "a", r"\u0041", r"\uD800", r"\uDFFF", "é")
    for _ in range(count(20_000)):
        text = "".join(random.choice(pieces) for _ in range(random.randrange(7)))
        text = f'"{text}"'
        read = cast("str", json.loads(text))
        if any("\ud800" <= each <= "\udfff" for each in read):
            with pytest.raises(DecodeError, match="lone surrogate"):
                parse_json(text)
        else:
            assert parse_json(text) == read


def test_signs_inside_of_texts_are_no_values() -> None:
    inner = json.dumps([{"a": []}] * 50_000)
    for text in (inner, inner.replace(" ", "\\"), inner + "\\", "\ud83d" + inner):
        require_few_values(json.dumps({"a": text}))
        require_few_values(json.dumps({"a": [text]}, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def test_a_short_text_may_have_any_number_of_values() -> None:
    assert parse_json("[" + "{}," * 10_000 + "1]") == [{}] * 10_000 + [1]
    with pytest.raises(DecodeError, match="too many values"):
        parse_json("[" + "{}," * 10_000 + "1]", FEW)
