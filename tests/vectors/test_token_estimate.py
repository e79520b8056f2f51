"""How many tokens a text or a context has, about; and how a long text is cut."""

from typing import cast

import pytest

from lanebus.bus.messages import AssistantMessage, Usage
from lanebus.handlers.context import BY_BYTES, context_tokens
from lanebus.handlers.context.cutting import head_and_tail
from tests.support.log.entries import asks, context_of
from tests.support.vectors.cases import Case, cases

__all__ = ()


@cases("token_estimate")
def test_sizes_are_estimated_as_their_system_does_it(case: Case) -> None:
    given, expect = case.given, case.expect
    match given:
        case {"texts": _}:
            assert [BY_BYTES.text(text) for text in cast("list[str]", given["texts"])] == expect["tokens"]
        case {
            "recorded_usage": {"input": int(read), "output": int(written)},
            "at_index": 1,
            "trailing_message": str(text),
        }:
            answer = AssistantMessage(usage=Usage(input=read, output=written))
            trailing = asks(text)
            known, _, rest = str(expect["tokens"]).partition(" + ")
            assert rest == "estimate(trailing)"
            assert context_tokens(context_of(asks("a"), answer, trailing)) == int(known) + BY_BYTES.message(trailing)
        case {"lines": int(count), "max_lines": int(most)}:
            cut = head_and_tail("\n".join(f"line {number}" for number in range(1, count + 1)), most)
            lines = cut.splitlines()
            assert all(
                text in lines or (text == "truncated" and text in cut) for text in cast("list[str]", expect["contains"])
            )
            assert not any(text in cut for text in cast("list[str]", expect["not_contains"]))
        case _:
            pytest.fail("no such case")
