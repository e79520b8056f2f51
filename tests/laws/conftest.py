"""Fixtures of the laws, and how a law that failed is repeated."""

import shlex
from collections.abc import Generator

import pytest

from tests.support.laws.crew import forks
from tests.support.suite.scale import SCALE, SEED

__all__ = ("forks",)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the command that repeats a failed law."""
    report = yield
    if report.failed:
        command = f"LANEBUS_SEED={SEED} LANEBUS_SCALE={SCALE:g} .venv/bin/python -m pytest {shlex.quote(item.nodeid)}"
        report.sections.append(("Repeat it", command))
    return report
