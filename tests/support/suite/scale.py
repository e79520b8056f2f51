"""The amount and the seed of random tests, from two environment variables.

- `LANEBUS_SEED`: an integer, by default 1, so that `make test` is repeatable; "random" draws a new one. The report's
  header and every failure name the seed.
- `LANEBUS_SCALE`: the share of the full counts to run, a number above 0. The default is 0.2; `make laws` and
  `make test-all` run 1.
"""

import math
import os
import secrets
from random import Random

import pytest
from hypothesis import HealthCheck, settings

__all__ = ("SCALE", "SEED", "count", "examples", "randomness")


def _seed() -> int:
    text = os.environ.get("LANEBUS_SEED", "1")
    number = secrets.randbelow(1_000_000) if text == "random" else int(text)
    os.environ["LANEBUS_SEED"] = str(number)  # the test workers and the processes that tests start inherit it
    return number


SEED = _seed()
"""the seed of every random choice in the suite"""

SCALE = float(os.environ.get("LANEBUS_SCALE", "0.2"))
"""the share of the full counts to run"""

IS_REPEATED = SEED == 1
"""True if Hypothesis must draw the same examples in each run: no other seed was chosen"""

settings.register_profile(
    "lanebus",
    deadline=None,  # slowness is not a fault
    derandomize=IS_REPEATED,
    database=None,  # a run depends on its seed alone
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("lanebus")


def count(full: int, *, least: int = 1) -> int:
    """Return how many rounds to run.

    Args:
        full: the count at scale 1.
        least: never fewer than this; for a test that says nothing below it.
    """
    return max(math.ceil(full * SCALE), least)


def examples(full: int, *, least: int = 10) -> settings:
    """Decorate a property test: draw `full` examples at scale 1, and never fewer than `least`."""
    return settings(max_examples=count(full, least=least))


def randomness(*names: object) -> Random:
    """Return a source of randomness for one test: the same for the same seed and names."""
    return Random(" ".join(map(str, (SEED, *names))))  # noqa: S311  not for secrets


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its options
def pytest_configure(config: pytest.Config) -> None:
    if not IS_REPEATED and config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = SEED


def pytest_report_header() -> str:
    return f"lanebus: LANEBUS_SEED={SEED} LANEBUS_SCALE={SCALE:g}"
