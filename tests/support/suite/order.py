"""Order the tests: those in a browser all start in one process, so that only one browser is started."""

import pytest

__all__ = ("spread",)


def spread(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the tests in the order to run them.

    A run with several processes first gives each an equal, contiguous share. Later, idle processes take tests from the
    ends of other shares. So the last share starts with the tests in a browser.
    """
    browser = [item for item in items if item.get_closest_marker("browser")]
    others = [item for item in items if not item.get_closest_marker("browser")]
    before = min(len(items) * (processes - 1) // processes, len(others))
    return [*others[:before], *browser, *others[before:]]


@pytest.hookimpl(trylast=True)  # after tests were deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workers: dict[str, int] = getattr(config, "workerinput", {})
    items[:] = spread(items, workers.get("workercount", 1))
