"""Retry policies: delays and decisions."""

from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import Closed, SessionClosed, SetupError, Unavailable
from lanebus.errors import InvalidName
from lanebus.groups import GiveUp, Jitter, Retry, RetryPolicy

CHANCE = st.floats(0, 1, exclude_max=True)
ATTEMPT = st.integers(1, 10_000)
JITTER = st.sampled_from(("full", "equal", "none"))
POLICY = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 100),
    base=st.floats(0, 100),
    factor=st.floats(1, 10),
    longest=st.floats(0, 10_000),
    jitter=JITTER,
)


@given(POLICY, ATTEMPT, CHANCE)
def test_a_delay_is_within_its_bounds(policy: RetryPolicy, attempt: int, chance: float) -> None:
    assert 0 <= policy.delay(attempt, chance) <= policy.longest


@given(POLICY, ATTEMPT, CHANCE)
def test_delays_grow_with_the_attempts(policy: RetryPolicy, attempt: int, chance: float) -> None:
    assert policy.delay(attempt, chance) <= policy.delay(attempt + 1, chance) + 1e-9


@given(POLICY, ATTEMPT, CHANCE, CHANCE)
def test_jitter_bounds_the_random_share_of_a_delay(policy: RetryPolicy, attempt: int, one: float, other: float) -> None:
    most = policy.delay(attempt, 1.0)
    least = {"full": 0.0, "equal": most / 2, "none": most}[policy.jitter]
    assert least - 1e-9 <= policy.delay(attempt, one) <= most + 1e-9
    assert (policy.delay(attempt, one) <= policy.delay(attempt, other)) or one >= other


@given(POLICY, ATTEMPT, CHANCE, st.floats(0, 1000))
def test_a_policy_gives_up_after_the_last_attempt(
    policy: RetryPolicy, attempt: int, chance: float, least: float
) -> None:
    decision = policy.decide(RuntimeError(), attempt, chance, least=least)
    if attempt >= policy.attempts:
        assert decision == GiveUp("attempts")
    else:
        assert decision == Retry(max(policy.delay(attempt, chance), least))


def test_the_pauses_of_the_defaults() -> None:
    policy = RetryPolicy(jitter="none", attempts=12)
    assert [policy.delay(attempt, 0) for attempt in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert RetryPolicy(jitter="none").delay(100_000, 0) == 300


@pytest.mark.parametrize("error", [InvalidName("x y"), SetupError("x"), SessionClosed("s"), Closed("bus")])
def test_permanent_errors_are_not_retried(error: Exception) -> None:
    assert RetryPolicy().decide(error, 1) == GiveUp("error")


@pytest.mark.parametrize("error", [Unavailable("x"), TimeoutError(), ValueError()])
def test_transient_errors_are_retried(error: Exception) -> None:
    assert isinstance(RetryPolicy().decide(error, 1), Retry)


def test_only_the_listed_errors_are_retried() -> None:
    policy = RetryPolicy(retried=(OSError,))
    assert isinstance(policy.decide(TimeoutError(), 1), Retry)
    assert policy.decide(ValueError(), 1) == GiveUp("error")
    picky = RetryPolicy(is_retried=lambda error: "later" in str(error))
    assert isinstance(picky.decide(ValueError("later"), 1), Retry)
    assert picky.decide(ValueError("never"), 1) == GiveUp("error")


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "1", None])
def test_invalid_numbers_are_refused(value: object) -> None:
    make = cast("Callable[..., object]", RetryPolicy)
    wrong = {"base": value, "factor": value, "longest": value}
    for name, bad in (*wrong.items(), ("attempts", 0), ("attempts", "3"), ("attempts", True), ("jitter", "some")):
        with pytest.raises(SetupError, match=name):
            make(**{name: bad})


def test_an_unknown_jitter_is_refused() -> None:
    jitters: tuple[Jitter, ...] = ("full", "equal", "none")
    assert [RetryPolicy(jitter=jitter).delay(1, 0.5) for jitter in jitters] == [0.5, 0.75, 1.0]
