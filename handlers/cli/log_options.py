"""The options `--log-level` and `--log-format`, and the only place that installs a handler of `logging`."""

import logging
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import click

from lanebus.handlers.cli.terminal.log_lines import JsonLines, TerminalLines
from lanebus.handlers.monitoring.log_events import ServerUnsafe, write_event

__all__ = ("log_options", "logging_to_stderr")

_log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., object])


def log_options(command: F) -> F:
    """Add `--log-level` and `--log-format` to a command, and pass them to it as `log_level` and `log_format`."""
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Least severe lines to log to stderr.  [env var: LANEBUS_LOG_LEVEL]",
        show_default=True,
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["auto", "text", "json"]),
        default="auto",
        help="Form of the lines; auto: text on a terminal, else JSON.  [env var: LANEBUS_LOG_FORMAT]",
        show_default=True,
    )
    return level(form(command))


@contextmanager
def logging_to_stderr(level: str, form: str) -> Generator[bool, None, None]:
    """Log to stderr during the block: lanebus from `level` on, other packages from warnings on.

    Args:
        level: debug, info, warning or error.
        form: text, json, or auto.

    Yields:
        Whether lines are JSON. Then print no other text to stderr.
    """
    is_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if is_json else TerminalLines())
    root, own = logging.getLogger(), logging.getLogger("lanebus")
    levels = root.level, own.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    own.setLevel(level.upper())
    try:
        with warnings.catch_warnings():
            if is_json:
                warnings.showwarning = _log_warning
            yield is_json
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        own.setLevel(levels[1])


def _log_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Log a warning as JSON: an event, if it is of the server."""
    from lanebus.bus.servers.durability import DurabilityWarning  # noqa: PLC0415  # loads the bus, which --help does not need

    if issubclass(category, DurabilityWarning):
        write_event(_log, ServerUnsafe(fault=str(message)))
    else:
        _log.warning("%s", message)
