"""The type of arguments that name a session, and the completion of names in a shell."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from lanebus.bus.errors import check_bounds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from click.shell_completion import CompletionItem

    from lanebus.bus.bus import Bus
    from lanebus.handlers.cli.options import Settings

__all__ = ("CompletionBounds", "SessionId", "complete_agent", "complete_group", "complete_session")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionBounds:
    """How long a completion may take, and how much it shows."""

    seconds: float = 1.0
    """longest time for one word; if the server is slower, nothing is completed"""
    ids: int = 100
    """maximum number of names to suggest"""

    def __post_init__(self) -> None:
        check_bounds(self)


_BOUNDS = CompletionBounds()


class SessionId(click.ParamType[str]):
    """A session id. Shells complete it with the ids of the bus that the command line names."""

    name = "session"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text unchanged. The bus checks the id later, and raises its own error."""
        del param, ctx
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem[str]]":
        """Return the session ids that begin with `incomplete`, as suggestions for the shell."""
        del param
        return complete_session(ctx, incomplete)


def complete_session(ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
    """Return the session ids that begin with `incomplete`, in alphabetical order, at most 100."""
    return _complete(ctx, incomplete, lambda bus: bus.catalog.names(incomplete, _BOUNDS.ids))


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
    """Return the consumer groups whose names begin with `incomplete`, at most 100."""
    del param
    return _complete(ctx, incomplete, lambda bus: bus.groups())


def complete_agent(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
    """Return the agents whose names begin with `incomplete`, at most 100."""
    del param

    async def names(bus: "Bus") -> list[str]:
        return [agent.name for agent in await bus.agents()]

    return _complete(ctx, incomplete, names)


def _complete(
    ctx: click.Context, incomplete: str, ask: "Callable[[Bus], Awaitable[Sequence[str]]]"
) -> "list[CompletionItem[str]]":
    """Return the names that begin with a text. Errors and delays complete nothing, and nothing is printed."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415  # only a completion needs these

    from lanebus.bus.errors import BusError  # noqa: PLC0415
    from lanebus.handlers.cli.options import Settings  # noqa: PLC0415
    from lanebus.handlers.cli.terminal.text import shell_word  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning would be printed into the prompt
            # A completion stores nothing, and a module that it imports could print into the prompt.
            names = _names(Settings.of(ctx)._replace(redact=None), ask)
    except (BusError, click.UsageError, OSError):
        return []
    # The shell puts the word into the prompt as it is: a name that it would read as a command is left out.
    safe = [name for name in names if name.startswith(incomplete) and shell_word(name) == name]
    return [CompletionItem(name) for name in safe][: _BOUNDS.ids]


def _names(
    settings: "Settings", ask: "Callable[[Bus], Awaitable[Sequence[str]]]", bounds: CompletionBounds = _BOUNDS
) -> "Sequence[str]":
    import anyio  # noqa: PLC0415

    from lanebus.handlers.cli.access import open_bus  # noqa: PLC0415

    async def main() -> "Sequence[str]":
        with anyio.move_on_after(bounds.seconds):
            async with open_bus(settings) as bus:
                return await ask(bus)
        return []

    return anyio.run(main)
