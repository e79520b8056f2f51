"""The bus and the session that a command is about."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from math import inf

import anyio

from bus.archive import archive_store_at
from bus.bus import Bus
from bus.errors import SessionErased
from bus.media.place import media_store_at
from bus.session import Session
from handlers.cli.errors import ServerSilent, SessionEmpty
from handlers.cli.options import Settings
from handlers.cli.output import tell

__all__ = ("open_bus", "open_session")

OPEN_SECONDS = 10.0
"""How long a server of yours may take to answer at all."""

HINT_SECONDS = 3.0
"""When the user is told what is waited for, where it is the embedded server: it may be loading a large log for long."""

WAITING = "waiting for the embedded server, which does not answer yet; Ctrl-C ends"


@asynccontextmanager
async def open_bus(settings: Settings) -> AsyncGenerator[Bus]:
    """The bus of the settings.

    Raises:
        SetupError, Unavailable: as `Bus.open`.
        ServerSilent: the server of the URL does not answer.
    """
    hint = None if settings.url else asyncio.get_running_loop().call_later(HINT_SECONDS, tell, WAITING)
    with anyio.move_on_after(OPEN_SECONDS if settings.url else inf) as patience:
        async with Bus.open(
            settings.url,
            data_dir=settings.data_dir,
            namespace=settings.namespace,
            media=media_store_at(settings.media) if settings.media else None,
            archive=archive_store_at(settings.archive) if settings.archive else None,
        ) as bus:
            patience.deadline = inf
            if hint is not None:
                hint.cancel()
            yield bus
    if patience.cancelled_caught:
        raise ServerSilent(OPEN_SECONDS)


@asynccontextmanager
async def open_session(settings: Settings, session_id: str) -> AsyncGenerator[Session]:
    """A session that has entries.

    Raises:
        InvalidSessionId, SessionEmpty, SessionErased: there can be, or is, no such session.
        SetupError, Unavailable: as `Bus.open`.
    """
    async with open_bus(settings) as bus:
        session = bus.session(session_id)
        head = await session.head()
        if head.is_erased:
            raise SessionErased(session_id)
        if not head.position:
            raise SessionEmpty(session_id)
        yield session
