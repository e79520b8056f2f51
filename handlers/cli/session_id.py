"""The type of arguments that name a session, and the completion of session ids in a shell."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from lanebus.handlers.cli.options import Settings

__all__ = ("CompletionBounds", "SessionId", "complete_session")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionBounds:
    """How long a completion may take, and how much it shows."""

    seconds: float = 1.0
    """longest time for one word; if the server is slower, nothing is completed"""
    ids: int = 100
    """most session ids"""


_BOUNDS = CompletionBounds()


class SessionId(click.ParamType[str]):
    """A session id. Shells complete it with the ids of the bus that the command line names."""

    name = "session"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text unchanged. The bus checks it, with an error of its own."""
        del param, ctx
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem[str]]":
        """Return ids that begin with a text."""
        del param
        return complete_session(ctx, incomplete)


def complete_session(ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
    """Return the first ids that begin with a text. Errors and delays complete nothing."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415  # only a completion needs these

    from lanebus.bus.errors import BusError  # noqa: PLC0415
    from lanebus.handlers.cli.options import Settings  # noqa: PLC0415

    try:
        return [CompletionItem(name) for name in _names(Settings.of(ctx), incomplete)]
    except (BusError, click.UsageError, OSError):
        return []


def _names(settings: "Settings", incomplete: str, bounds: CompletionBounds = _BOUNDS) -> list[str]:
    import anyio  # noqa: PLC0415

    from lanebus.handlers.cli.access import open_bus  # noqa: PLC0415

    async def ask() -> list[str]:
        with anyio.move_on_after(bounds.seconds):
            async with open_bus(settings) as bus:
                return await bus.catalog.names(incomplete, bounds.ids)
        return []

    return anyio.run(ask)
