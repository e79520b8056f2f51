"""Principals: rights of a wrong type or form are refused, as they would grant everything or nothing."""

from math import inf, nan
from typing import TypedDict, cast

import pytest

from lanebus.access import Principal
from lanebus.bus.errors import InvalidArgument
from lanebus.bus.messages import Lane

__all__ = ()


class Fields(TypedDict, total=False):
    actions: tuple[str, ...]
    sessions: tuple[str, ...]
    agents: tuple[str, ...]
    lanes: frozenset[Lane]
    token_id: str
    expires: float | None
    requests_per_second: float | None
    body_bytes: int | None


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("sessions", "team-*", r"`sessions` is 'team-\*': pass a tuple, \('team-\*',\)"),
        ("actions", "command.*", r"pass a tuple, \('command"),
        *((field, "*", "pass a tuple") for field in ("actions", "sessions", "agents")),
        *((field, ["*"], "pass a tuple of texts") for field in ("actions", "sessions", "agents")),
        *((field, (7,), "pass a tuple of texts") for field in ("actions", "sessions", "agents")),
        ("actions", ("command.*",), "pass 'command', which includes all below it"),
        ("actions", ("*.abort",), "write `\\*` alone"),
        *(("sessions", (each,), "`\\*` only at the end") for each in ("*foo", "te*am-*", "**")),
        *(("sessions", (each,), "it can match nothing") for each in ("team/1", "", "a b", "x" * 65, "a.b")),
        *(("agents", (each,), "it can match nothing") for each in ("a/b", "")),
        *(("lanes", each, "frozenset") for each in ("llm", Lane.LLM, {Lane.LLM}, frozenset({"llm"}), None)),
        ("token_id", 7, "pass a text"),
        *(("expires", each, "finite number above 0") for each in ("tomorrow", nan, inf, -1, 0, True)),
        *(("requests_per_second", each, "above 0, or None") for each in ("1", nan, inf, -1, 0, True)),
        *(("body_bytes", each, "an integer of 1 or more") for each in (1.5, "1", -1, 0, True)),
    ],
)
def test_rights_of_a_wrong_type_or_form_are_refused_by_name(field: str, value: object, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as refused:
        Principal(name="eve", **cast("Fields", {field: value}))
    assert refused.value.name == field


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="name"):
        Principal(name=cast("str", 7))


def test_patterns_that_can_match_are_accepted() -> None:
    made = Principal(name="ann", sessions=("a", "b-*", "*"), agents=("x.y", "z*"), actions=("read", "later.action"))
    assert made.sessions == ("a", "b-*", "*")
