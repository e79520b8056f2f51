"""The pytest plugin: the fixtures `lanebus_bus` and `lanebus_model`.

pytest loads this module in each run, so it imports nothing of the bus before a test asks for a fixture.
"""

from __future__ import annotations

import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from lanebus.bus.bus import Bus
    from lanebus.handlers.agent.models.offline import ScriptedModel

__all__ = ("lanebus_model", "pytest_configure")


def pytest_configure(config: pytest.Config) -> None:
    """Register the async fixture `lanebus_bus` for pytest-asyncio if that plugin is installed, otherwise for anyio."""
    decorate: Callable[..., Callable[[Callable[..., object]], object]] = pytest.fixture
    if config.pluginmanager.hasplugin("asyncio"):
        decorate = import_module("pytest_asyncio").fixture
    fixtures = ModuleType("lanebus_async_fixtures")  # pytest looks for fixtures in modules and classes alone
    vars(fixtures)["lanebus_bus"] = decorate(name="lanebus_bus")(_lanebus_bus)
    config.pluginmanager.register(fixtures)


@pytest.fixture
def lanebus_model() -> ScriptedModel:
    """A `ScriptedModel` without answers: add them with `then`."""
    from lanebus.handlers.agent.models.offline import ScriptedModel  # noqa: PLC0415  # only runs that use it pay for it

    return ScriptedModel()


@pytest.fixture
def lanebus_data_dir() -> Generator[Path]:
    """A directory for an embedded server, with a path short enough for its socket. It is removed after the test."""
    folder = Path(tempfile.mkdtemp(prefix="lanebus-"))
    yield folder / "data"
    shutil.rmtree(folder, ignore_errors=True)


async def _lanebus_bus(lanebus_data_dir: Path) -> AsyncGenerator[Bus]:
    """A bus on an embedded server of its own. The server ends with the test, and its log is removed."""
    import asyncio  # noqa: PLC0415  # only runs that use it pay for it

    from lanebus.bus.bus import Bus  # noqa: PLC0415  # only runs that use it pay for it
    from lanebus.bus.embedded.server import stop_server  # noqa: PLC0415

    opened: asyncio.Future[Bus] = asyncio.get_running_loop().create_future()
    is_over = asyncio.Event()

    async def hold() -> None:
        async with Bus.open(data_dir=lanebus_data_dir) as bus:
            opened.set_result(bus)
            await is_over.wait()

    # A task of its own: pytest-asyncio runs the two halves of a fixture in two tasks, and a bus is closed in the task
    # that opened it.
    holding = asyncio.create_task(hold())
    await asyncio.wait((holding, opened), return_when=asyncio.FIRST_COMPLETED)
    if holding.done():
        await holding  # raises the error of `Bus.open`
    yield opened.result()
    is_over.set()
    await holding
    await stop_server(lanebus_data_dir)
