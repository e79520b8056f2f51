"""Order the tests: those marked `slow` first, spread evenly over the processes of a run.

Tests marked `browser` all start in one process, so that only one browser is started.
"""

import pytest

__all__ = ("spread",)


def spread(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the tests in the order to run them.

    A run with several processes first gives each an equal, contiguous share. Later, idle processes take tests from the
    ends of other shares. So each share starts with its part of the slow tests, and the last one with the browser tests.
    The order within each kind is kept, because tests of one file share what is costly to start.
    """
    browser = [item for item in items if item.get_closest_marker("browser")]
    rest = [item for item in items if not item.get_closest_marker("browser")]
    slow = [item for item in rest if item.get_closest_marker("slow")]
    others = [item for item in rest if not item.get_closest_marker("slow")]
    firsts = [slow[process::processes] for process in range(processes)]
    firsts[-1] = [*browser, *firsts[-1]]
    ends = [len(items) * (process + 1) // processes for process in range(processes)]
    result: list[pytest.Item] = []
    for first, end in zip(firsts, ends, strict=True):
        filling = max(end - len(result) - len(first), 0)
        result += [*first, *others[:filling]]
        others = others[filling:]
    return result + others


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.parent.name == "laws":
        item.add_marker("law")


@pytest.hookimpl(trylast=True)  # after tests were deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workers: dict[str, int] = getattr(config, "workerinput", {})
    items[:] = spread(items, workers.get("workercount", 1))
