"""The JSON of usage, and its sums."""

import pytest

from lanebus.bus.messages import Frozen, Usage

__all__ = ()


class _Holder(Frozen):
    usage: Usage


def test_reported_usage_has_no_estimate_mark_in_its_json() -> None:
    assert "estimated" not in Usage(input=1).to_json()
    assert Usage.model_validate_json(b'{"estimated":false}') == Usage()


def test_an_estimate_keeps_its_mark_in_json() -> None:
    usage = Usage(input=1, estimated=True)
    assert '"estimated":true' in usage.to_json()
    assert _Holder.model_validate_json(_Holder(usage=usage).to_json_bytes()).usage == usage


@pytest.mark.parametrize(("one", "other", "both"), [(None, None, None), (True, None, True), (None, True, True)])
def test_a_sum_with_an_estimate_is_an_estimate(one: bool | None, other: bool | None, both: bool | None) -> None:
    assert Usage(estimated=one).combine(Usage(estimated=other)).estimated is both


def test_a_missing_total_is_the_sum_of_the_parts_and_a_given_one_stays() -> None:
    parts = Usage(input=10, output=5, reasoning=3, cache_read=2, cache_write=1)
    assert parts.with_total().total_tokens == 18
    assert parts.model_copy(update={"total_tokens": 20}).with_total().total_tokens == 20
    assert Usage().with_total() == Usage()
