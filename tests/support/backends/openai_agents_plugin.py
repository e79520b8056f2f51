"""A plugin for the tests of OpenAI's Agents SDK: their sessions in SQLite and in memory become sessions of lanebus.

It runs beside their package `tests`, not within ours, so it is on the path by itself:

    PYTHONPATH=tests/support/backends LANEBUS_URL=unix:///tmp/s python -m pytest -p openai_agents_plugin …

The bus runs in a thread of its own, because their tests use one session in several event loops. A session is found
again by its id and its file, as with SQLite.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, TypeVar
from uuid import uuid4

import agents
import agents.memory
import agents.memory.sqlite_session
import pytest

from lanebus import Bus
from lanebus.openai_agents import LanebusSession

__all__ = ("FileSession", "ListSession")

T = TypeVar("T")


class _Home:
    """The bus, in an event loop of its own thread."""

    bus: Bus

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._hold(),), daemon=True)
        self._opened = threading.Event()
        self._closing = asyncio.Event()
        self.used: set[str] = set()
        """ids of the tests that made a session"""

    def open(self) -> None:
        self._thread.start()
        if not self._opened.wait(60):
            raise TimeoutError("the bus did not open")

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()
        self._loop.close()

    async def _hold(self) -> None:
        async with Bus.open(os.environ["LANEBUS_URL"], namespace=f"referee-{uuid4().hex[:8]}") as self.bus:
            self._opened.set()
            await self._closing.wait()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the bus, and block this thread until it is done."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the bus. If the caller is cancelled, wait until it has ended too."""
        task = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                await asyncio.wait({task})
            raise


_HOME = _Home()


class _Forwarding:
    """A session that does everything in the loop of the bus."""

    session_id: str
    session_settings: agents.SessionSettings | None
    inner: LanebusSession

    def start(self, session_id: str, place: str, session_settings: Any) -> None:
        _HOME.used.add(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])
        self.session_id = session_id
        self.inner = LanebusSession(f"{place}/{session_id}", _HOME.bus, session_settings=session_settings)
        self.session_settings = self.inner.session_settings

    async def get_items(self, limit: int | None = None) -> list[agents.TResponseInputItem]:
        self.inner.session_settings = self.session_settings
        return await _HOME.run(self.inner.get_items(limit))

    async def add_items(self, items: list[agents.TResponseInputItem]) -> None:
        await _HOME.run(self.inner.add_items(items))

    async def pop_item(self) -> agents.TResponseInputItem | None:
        return await _HOME.run(self.inner.pop_item())

    async def clear_session(self) -> None:
        await _HOME.run(self.inner.clear_session())


class FileSession(_Forwarding):
    """In place of `SQLiteSession`."""

    def __init__(
        self,
        session_id: str,
        db_path: object = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        place = uuid4().hex if str(db_path) == ":memory:" else f"{db_path}/{sessions_table}/{messages_table}"
        self.start(session_id, place, session_settings)

    async def _get_compaction_snapshot(self, limit: int, **options: Any) -> object:
        if type(self) is not FileSession:
            return None
        read: Callable[..., Coroutine[Any, Any, Any]] = getattr(self.inner, "_get_compaction_snapshot")  # noqa: B009  # private, as in the SDK
        snapshot = await _HOME.run(read(limit, **options))
        if snapshot is None:
            return None
        replace: Callable[..., Coroutine[Any, Any, bool]] = snapshot.replace_suffix

        async def replace_suffix(start: int, output: list[agents.TResponseInputItem]) -> bool:
            return await _HOME.run(replace(start, output))

        return type(snapshot)(snapshot.items, snapshot.complete, replace_suffix)

    def close(self) -> None:
        """Do nothing: the bus is closed after the tests."""


class ListSession(_Forwarding):
    """In place of the methods of `SimpleListSession`, from which their tests derive classes."""

    def __init__(self, session_id: str = "test", history: list[agents.TResponseInputItem] | None = None) -> None:
        self.start(session_id, uuid4().hex, None)
        self._ignore_ids_for_matching = False
        if history:
            _HOME.wait(self.inner.add_items(history))

    @property
    def saved_items(self) -> list[agents.TResponseInputItem]:
        return _HOME.wait(self.inner.get_items())


def pytest_configure() -> None:
    """Open the bus, and put our sessions in place of theirs before their tests are imported."""
    _HOME.open()
    for module in (agents, agents.memory, agents.memory.sqlite_session):
        setattr(module, "SQLiteSession", FileSession)  # noqa: B010  # a type checker refuses another class


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Change the class from which the lists of their tests derive."""
    del items
    theirs: Any = import_module("tests.utils.simple_session").SimpleListSession  # of their package `tests`
    theirs.session_settings = None
    for name in ("__init__", "get_items", "add_items", "pop_item", "clear_session", "start", "saved_items"):
        setattr(theirs, name, getattr(ListSession, name))
    theirs._items = ListSession.saved_items


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests in which one of our sessions took part, so that the list can be checked."""
    terminalreporter.write_line(f"sessions of lanebus were used by {len(_HOME.used)} tests")
    if path := os.environ.get("SESSIONS_USED"):
        with open(path, "w") as file:
            file.writelines(f"{name}\n" for name in sorted(_HOME.used))


def pytest_unconfigure() -> None:
    """Close the bus."""
    _HOME.close()
