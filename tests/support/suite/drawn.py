"""Select the variants of a test for one run: all at scale 1, otherwise some drawn by the seed.

- A test for several kinds of servers runs on one of them.
- `@pytest.mark.drawn("name", …)`: a share of the values of these arguments, `LANEBUS_SCALE` of them and at least one.
- `@pytest.mark.full`: not at all.
- Tests in a browser (`@pytest.mark.browser`), of clients in Node, and those marked `costly`: every third of what these
  rules leave, so that each file has its share. These few hundred take more CPU time than the thousands of others.

This applies to a run of the whole suite below scale 1; the other variants are reported as deselected. A run of selected
files, names or markers keeps all that it selects.
"""

import math

import pytest

from tests.support.suite.needs import find, needs_of
from tests.support.suite.scale import SCALE, randomness

__all__ = ("left_out",)

KINDS_OF_SERVERS = ("server", "one", "process")
"""arguments whose value is a kind of server"""


def left_out(items: list[pytest.Item], scale: float) -> set[pytest.Item]:
    """Return the tests that a run at this scale leaves out. Tests that cannot run on this machine are drawn last."""
    variants: dict[tuple[str, frozenset[tuple[str, int]]], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            arguments = item.callspec.params
            # The variants of a test share the objects of their values, which need not be comparable.
            others = frozenset(
                (name, id(value)) for name, value in arguments.items() if name not in _drawn_arguments(item)
            )
            if len(others) < len(arguments):
                variants.setdefault((item.nodeid.partition("[")[0], others), []).append(item)
    result = {item for item in items if item.get_closest_marker("full")}
    for group in variants.values():
        can_run = [item for item in group if all(find(need) is not None for need in needs_of(item))]
        share = math.ceil(scale * len(group)) if group[0].get_closest_marker("drawn") else 1
        kept = randomness(group[0].nodeid).sample(can_run or group, min(share, len(can_run or group)))
        result.update(item for item in group if item not in kept)
    costly = [item for item in items if item not in result and _is_costly(item)]
    first = randomness("costly").randrange(3)
    result.update(item for number, item in enumerate(costly) if number % 3 != first)
    return result


def _is_costly(item: pytest.Item) -> bool:
    """Return whether a test starts a browser or Node, or is marked."""
    is_marked = any(item.get_closest_marker(name) for name in ("browser", "costly"))
    return is_marked or not {"referees", "client"}.isdisjoint(needs_of(item))


def _drawn_arguments(item: pytest.Function) -> tuple[str, ...]:
    mark = item.get_closest_marker("drawn")
    return KINDS_OF_SERVERS if mark is None else (*KINDS_OF_SERVERS, *mark.args)


def _is_whole(config: pytest.Config) -> bool:
    """Return whether the run selects no tests, neither by path nor by name or mark."""
    from_paths = config.args_source is pytest.Config.ArgsSource.ARGS
    return not (from_paths or config.option.keyword or config.option.markexpr)


@pytest.hookimpl(tryfirst=True)  # before the order is set
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if SCALE < 1 and _is_whole(config):
        gone = left_out(items, SCALE)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=list(gone))
