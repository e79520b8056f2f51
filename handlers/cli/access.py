"""The bus and the session that a command is about.

`on_bus` and `on_session` run one coroutine function on them from a command, and `open_bus` and `open_session` open them
inside of one.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import TypeVar

import anyio
import click

from lanebus.bus.archive.blob_archive import archive_store_at
from lanebus.bus.bus import Bus
from lanebus.bus.errors import SessionErased
from lanebus.bus.media.blob_media import media_store_at
from lanebus.bus.session.session import Session
from lanebus.handlers.cli.errors import ServerSilent, SessionEmpty
from lanebus.handlers.cli.options import Settings
from lanebus.handlers.cli.run import run
from lanebus.handlers.cli.terminal.output import tell

__all__ = ("on_bus", "on_session", "open_bus", "open_session")

T = TypeVar("T")

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


def on_bus(ctx: click.Context, do: Callable[[Bus], Awaitable[T]]) -> T:
    """Open the bus of a command, and return what `do` gives for it.

    Raises:
        BusError: as `open_bus`, or as `do`.
        KeyboardInterrupt, Terminated: the process was asked to end.
    """
    settings = Settings.of(ctx)

    async def main() -> T:
        async with open_bus(settings) as bus:
            return await do(bus)

    return run(main)


def on_session(ctx: click.Context, session_id: str, do: Callable[[Session], Awaitable[T]]) -> T:
    """The same for a session that has entries: raises as `open_session`."""
    settings = Settings.of(ctx)

    async def main() -> T:
        async with open_session(settings, session_id) as session:
            return await do(session)

    return run(main)
