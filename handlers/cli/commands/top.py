"""`lanebus top`: who works, on what, and what waits."""

import shutil
from functools import partial

import anyio
import click

from lanebus.bus.errors import Unavailable
from lanebus.handlers.cli.access import open_bus
from lanebus.handlers.cli.options import Settings, ViewCommand
from lanebus.handlers.cli.run import run
from lanebus.handlers.cli.terminal.dashboard import Line, draw
from lanebus.handlers.cli.terminal.output import Output, tell
from lanebus.handlers.cli.terminal.screen import Screen, can_draw, has_colours, painted
from lanebus.handlers.monitoring.overview import Overview, overview_json
from lanebus.handlers.monitoring.watcher import Watcher

__all__ = ("command",)

PATIENCE_SECONDS = 3.0
"""A look that takes longer is given up, and the user is told."""


@click.command("top", cls=ViewCommand)
@click.option("--group", "groups", multiple=True, help="Only this group of workers; repeatable.")
@click.option("--once", is_flag=True, help="Look once, and end.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.2),
    default=1.0,
    metavar="SECONDS",
    help="Between two looks.",
    show_default=True,
)
@click.pass_context
def command(ctx: click.Context, *, groups: tuple[str, ...], once: bool, every: float) -> None:
    """Show the groups of workers, which sessions they are at and what waits, until Ctrl-C.

    A group's lag is how many works no worker was given yet; pending is what was given and is not done with. A session
    is shown while a worker has it in hand, and from when it was seen to wait for a person. Numbers with ≈ are taken
    from a part, where there is too much to look at all of it. It looks at little, whatever is stored, and changes
    nothing.

    As JSON each line is one look: time (seconds UTC), groups, sessions, sessions_left_out, and pace, which is null at
    the first; or error, where the server did not answer.

    \b
    Example: lanebus top --group agents
    Example: lanebus top --once --json
    """
    output = Output.of(ctx)
    run(partial(_top, Settings.of(ctx), groups, _viewer(output, once=once), every=None if once else every))


async def _top(settings: Settings, groups: tuple[str, ...], view: "_View", *, every: float | None) -> None:
    async with open_bus(settings) as bus:
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
                    view.tell_trouble(f"the server has not answered for {PATIENCE_SECONDS:g} s")
                except Unavailable as error:
                    view.tell_trouble(str(error))


class _View:
    """Prints one look after the other: as JSON, or as plain text where no terminal can be drawn on."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._trouble = ""
        self._is_first = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, overview: Overview) -> None:
        """A look."""
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
            self._output.line(painted(line, colours=has_colours()))
        self._output.line("", flush=True)

    def tell_trouble(self, trouble: str) -> None:
        """There is no newer look, for a reason that is told once."""
        if self._output.is_json:
            self._output.json({"error": trouble}, flush=True)
        if trouble != self._trouble:
            tell(f"{trouble}; looking on")
        self._trouble = trouble


class _LiveView(_View):
    """Draws each look over the one before. What was seen last stays on the terminal."""

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
        # Not the last column: what clears the rest of a line would clear a letter that stands there.
        return draw(overview, fit=columns - 1, height=height, trouble=self._trouble)


def _viewer(output: Output, *, once: bool) -> _View:
    return _LiveView(output) if can_draw() and not output.is_json and not once else _View(output)
