"""Which test runs when: those marked `slow` first, spread evenly over the processes of a run."""

import pytest

__all__ = ("spread",)


def spread(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the tests in the order to run them.

    A run with several processes begins by giving each an equal, contiguous share; then those that are done take from
    the others' ends. So each share begins with its part of the slow tests. The order within both sorts is kept: tests
    of one file share what is costly to start.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = [item for item in items if not item.get_closest_marker("slow")]
    result: list[pytest.Item] = []
    for process in range(processes):
        share = slice(len(others) * process // processes, len(others) * (process + 1) // processes)
        result += slow[process::processes] + others[share]
    return result


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.parent.name == "laws":
        item.add_marker("law")


@pytest.hookimpl(trylast=True)  # after tests were deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workers: dict[str, int] = getattr(config, "workerinput", {})
    items[:] = spread(items, workers.get("workercount", 1))
