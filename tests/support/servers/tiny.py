"""Tiny bounds: what only holds at large ones is a fault, and shows here.

ALSO_TINY = True    in a test module: its tests run on one more kind of server too, whose buses have tiny bounds
"""

from typing import TypeGuard

import pytest

from bus.bounds import Bounds
from bus.connection_bounds import ConnectionBounds
from bus.publish import PublishBounds

__all__ = ("TINY",)

TINY = Bounds(
    connection=ConnectionBounds(
        answer_seconds=0.3, pool_connections=2, media_connections=1, scan_count=3, group_commands=4
    ),
    publish=PublishBounds(
        queue_bytes=20_000, batch_count=4, batch_bytes=2_000, small_batch_count=2, recovery_sessions=2
    ),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out that kind for modules that do not ask for it."""
    gone = [item for item in items if _is_tiny(item) and not getattr(item.module, "ALSO_TINY", False)]
    if gone:
        items[:] = [item for item in items if item not in set(gone)]
        config.hook.pytest_deselected(items=gone)


def _is_tiny(item: pytest.Item) -> TypeGuard[pytest.Function]:
    return isinstance(item, pytest.Function) and hasattr(item, "callspec") and "tiny" in item.callspec.params.values()
