"""The sample case of what a tool result says to programs alone."""

import json
from typing import cast

import pytest

from lanebus.bus.messages import read_llm
from tests.support.log.entries import asks, calls, context_of
from tests.support.providers.forms import FORMS
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.histories import MODEL

__all__ = ()


@cases("terminate")
@pytest.mark.parametrize("form", FORMS)
def test_what_programs_alone_may_know_is_on_no_wire(case: Case, form: str) -> None:
    if case.given.keys() != {"tool_result"} or case.expect.keys() != {"wire_must_not_contain"}:
        pytest.fail("no such case")
    result = cast("Object", case.given["tool_result"])
    answer = read_llm(json.dumps({"role": "user", "content": [{"type": "toolResult", **result}]}))
    context = context_of(asks("a"), calls(str(result["id"])), answer)
    wire = json.dumps(FORMS[form].to(context, model=MODEL).body)
    assert str(result["content"]) in wire
    assert [word for word in cast("list[str]", case.expect["wire_must_not_contain"]) if word in wire] == []
