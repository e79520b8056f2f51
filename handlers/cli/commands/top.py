"""`lanebus top`: show consumer groups, running sessions and waiting work."""

import shutil
from functools import partial

import anyio
import click

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import Unavailable
from lanebus.handlers.cli.access import open_bus
from lanebus.handlers.cli.groups import require_groups
from lanebus.handlers.cli.options import Settings, ViewCommand
from lanebus.handlers.cli.run import run
from lanebus.handlers.cli.session_id import complete_group
from lanebus.handlers.cli.terminal.dashboard import draw
from lanebus.handlers.cli.terminal.line import Line
from lanebus.handlers.cli.terminal.output import Output, put, tell
from lanebus.handlers.cli.terminal.screen import Screen, can_draw, has_colours
from lanebus.handlers.monitoring.overview import Overview, overview_json
from lanebus.handlers.monitoring.watcher import Watcher

__all__ = ("command",)

PATIENCE_SECONDS = 3.0
"""seconds after which a reading is abandoned and an error is shown instead"""


@click.command("top", cls=ViewCommand)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_group,
    help="Show only this consumer group; may be repeated.",
)
@click.option("--once", is_flag=True, help="Print one reading, and end.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.2),
    default=1.0,
    metavar="SECONDS",
    help="Time between two readings; 0.2 or more.",
    show_default=True,
)
@click.pass_context
def command(ctx: click.Context, *, groups: tuple[str, ...], once: bool, every: float) -> None:
    """Show consumer groups, their workers and sessions, and waiting work, until Ctrl-C. Changes nothing.

    lag counts sessions that wait for a worker, pending counts sessions that a worker has, and retries counts sessions
    that wait for their next attempt. held counts the sessions that a worker held at its last heartbeat; the table shows
    "-" for a worker that is gone. A session is listed while a worker has it, or while it waits for a person. Numbers
    with ≈ are estimates from a sample. The load on the server stays small, however much is stored.

    As JSON, each line is one reading: time (seconds UTC), groups, sessions, sessions_left_out and pace, which is null
    in the first reading. If the server did not answer, the line has only an error.

    \b
    Example: lanebus top --group agents
    Example: lanebus top --once --json
    """
    output = Output.of(ctx)
    run(partial(_top, Settings.of(ctx), groups, _viewer(output, once=once), every=None if once else every))


async def _top(settings: Settings, groups: tuple[str, ...], view: "_View", *, every: float | None) -> None:
    async with open_bus(settings) as bus:
        await require_groups(bus, groups)
        watcher = Watcher(bus, groups)
        first = await watcher.look()
        with view:
            view.show(first)
            while every is not None:
                await anyio.sleep(every)
                try:
                    with anyio.fail_after(PATIENCE_SECONDS):
                        view.show(await watcher.look())
                except TimeoutError:
                    view.tell_trouble(f"the server did not answer within {PATIENCE_SECONDS:g} s")
                except Unavailable as error:
                    view.tell_trouble(without_secrets(str(error)))


class _View:
    """Prints one reading after the other, as JSON or as plain text."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._trouble = ""
        self._is_first = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, overview: Overview) -> None:
        """Print a reading."""
        if self._trouble:
            self._trouble = ""
            tell("the server answers again")
        if self._output.is_json:
            self._output.json(overview_json(overview), flush=True)
            return
        if not self._is_first:
            self._output.line("")
        self._is_first = False
        for line in draw(overview, fit=self._output.fit):
            put(line, colours=has_colours())
        self._output.line("", flush=True)

    def tell_trouble(self, trouble: str) -> None:
        """Report why there is no new reading. On stderr, the same text is not repeated."""
        if self._output.is_json:
            self._output.json({"error": trouble}, flush=True)
        if trouble != self._trouble:
            tell(f"{trouble}; trying again")
        self._trouble = trouble


class _LiveView(_View):
    """Draws each reading over the previous reading. At the end, the last reading is printed and stays on the
    terminal."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._screen = Screen(colours=has_colours())
        self._last: Overview | None = None

    def __enter__(self) -> None:
        self._screen.__enter__()

    def __exit__(self, *_: object) -> None:
        self._screen.__exit__(None, None, None)
        if self._last is not None:
            for line in self._lines(self._last):
                self._output.line(line.text)

    def show(self, overview: Overview) -> None:
        self._last, self._trouble = overview, ""
        self._draw()

    def tell_trouble(self, trouble: str) -> None:
        self._trouble = trouble
        self._draw()

    def _draw(self) -> None:
        if self._last is not None:
            self._screen.show(self._lines(self._last), shutil.get_terminal_size())

    def _lines(self, overview: Overview) -> list[Line]:
        columns, height = shutil.get_terminal_size()
        # Keep the last column free: clearing the rest of a line would erase a character in this column.
        return draw(overview, fit=columns - 1, height=height, trouble=self._trouble)


def _viewer(output: Output, *, once: bool) -> _View:
    return _LiveView(output) if can_draw() and not output.is_json and not once else _View(output)
