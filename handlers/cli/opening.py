"""The bus and the session that a command is about."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bus.bus import Bus
from bus.session import Session
from handlers.cli.errors import SessionEmpty
from handlers.cli.options import Settings

__all__ = ("open_bus", "open_session")


@asynccontextmanager
async def open_bus(settings: Settings) -> AsyncGenerator[Bus]:
    """The bus of the settings.

    Raises:
        SetupError, Unavailable: as `Bus.open`.
    """
    async with Bus.open(settings.url, data_dir=settings.data_dir, namespace=settings.namespace) as bus:
        yield bus


@asynccontextmanager
async def open_session(settings: Settings, session_id: str) -> AsyncGenerator[Session]:
    """A session that has entries.

    Raises:
        InvalidSessionId, SessionEmpty: there can be, or is, no such session.
        SetupError, Unavailable: as `Bus.open`.
    """
    async with open_bus(settings) as bus:
        session = bus.session(session_id)
        if not (await session.head()).position:
            raise SessionEmpty(session_id)
        yield session
