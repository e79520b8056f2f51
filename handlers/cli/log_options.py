"""The options `--log-level` and `--log-format`, the form of log lines, and the only place that installs a handler of
`logging`.
"""

import json
import logging
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from traceback import extract_tb
from typing import TypeVar, cast

import click

from lanebus.bus.errors import BusError, Closed, MediaDamaged, MediaMissing, SetupError, StreamError, Unavailable
from lanebus.bus.text import without_secrets
from lanebus.handlers.agent import ServerUnsafe, common_fields, write_event
from lanebus.handlers.cli.text import plain

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
    from lanebus.bus.servers import DurabilityWarning  # noqa: PLC0415  # loads the bus, which --help does not need

    if issubclass(category, DurabilityWarning):
        write_event(_log, ServerUnsafe(fault=str(message)))
    else:
        _log.warning("%s", message)


# Log lines for a terminal, and as JSON for programs.
#
# Errors are shown without their texts, which may quote a message, a tool's arguments or a key. Only errors of the bus
# that are made from ids and numbers keep theirs.

_WITH_TEXT: tuple[type[BusError], ...] = (Closed, MediaDamaged, MediaMissing, SetupError, StreamError, Unavailable)


def shown_error(error: BaseException) -> str:
    """Return the name of an error's type. The error's text is added only for types of the bus whose text never quotes
    a session's messages."""
    name = type(error).__name__
    return without_secrets(f"{name}: {error}") if isinstance(error, _WITH_TEXT) else name


class _Lines(logging.Formatter):
    def __init__(self, frames: int = 20) -> None:
        """
        Args:
            frames: maximum number of stack frames to show of an error; the innermost frames are shown.
        """
        super().__init__()
        self._frames = frames

    def _text(self, record: logging.LogRecord) -> str:
        """Return the message, with errors among its arguments as `shown_error` shows them."""
        if not isinstance(record.args, tuple) or not record.args:
            return record.getMessage()
        arguments = tuple(shown_error(each) if isinstance(each, BaseException) else each for each in record.args)
        return record.msg % arguments if isinstance(record.msg, str) else str(record.msg)

    def _fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        """Return the fields of an event; for other records, the common fields of the task."""
        values = cast("dict[str, object]", record.__dict__)
        if "event" in values:
            known = values.keys() - _STANDARD
            return {name: values[name] for name in values if name in known}
        return common_fields()

    def _stack(self, record: logging.LogRecord) -> Sequence[str]:
        """Return the error of a record and the lines that raised it; empty if the record has no error."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return ()
        frames = extract_tb(error.__traceback__)[-self._frames :]
        return [shown_error(error), *(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)]


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class TerminalLines(_Lines):
    """Formats a record as one line for people: time, level, text. An error adds a line for each stack frame."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        text = without_secrets(self._text(record))
        if "event" not in record.__dict__:
            shown = [f"{name}={value}" for name, value in self._fields(record).items() if value not in {"", None}]
            text = " ".join((text, *shown))
        head = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03} {record.levelname:<7} {plain(text)}"
        return "\n    ".join((head, *(plain(line) for line in self._stack(record))))


class JsonLines(_Lines):
    """Formats a record as one line of JSON, in ASCII: time (UTC), level, logger, event or message, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if "event" not in record.__dict__:
            line["message"] = plain(without_secrets(self._text(record)))
        line |= self._fields(record)
        if stack := self._stack(record):
            line["exception"], line["stack"] = stack[0], list(stack[1:])
        return json.dumps(line, default=str)
