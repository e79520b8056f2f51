"""Pauses between attempts: they grow up to a bound, and end with the caller's patience."""

import pytest

from lanebus.bus.servers import Backoff


def test_pauses_grow_by_the_factor_up_to_the_longest_and_begin_anew_after_a_reset() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.advance() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert (backoff.next_pause, backoff.advance(), backoff.advance()) == (0.5, 0.5, 1.0)
    quick = Backoff(1.0, factor=4.0)
    assert [quick.advance() for _ in range(3)] == [1.0, 4.0, 16.0]
    high = Backoff(5.0, 1.0)  # a first pause above the longest is used once
    assert [high.advance() for _ in range(3)] == [5.0, 1.0, 1.0]


def test_jitter_draws_from_its_share_of_the_pause() -> None:
    for _ in range(100):
        assert 0.5 <= Backoff(1.0, jitter=0.5).advance() <= 1.5


@pytest.mark.parametrize("patience", [0.0, 0.02])
async def test_wait_returns_false_once_its_patience_is_over(patience: float) -> None:
    backoff = Backoff(0.001, 0.01, patience=patience)
    waits = 0
    while await backoff.wait():
        waits += 1
    assert (waits == 0) == (patience == 0.0)
