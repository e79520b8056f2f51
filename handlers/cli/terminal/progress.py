"""Show the progress of a long command on a terminal."""

import sys
from time import monotonic
from types import TracebackType
from typing import Self

from lanebus.handlers.cli.terminal.text import count
from lanebus.handlers.transcripts.report import ImportProgress

__all__ = ("ProgressBar",)

_CELLS = 30
_PAUSE = 0.05  # least seconds between two drawings
_CLEAR = "\r\x1b[2K"


class ProgressBar:
    """Draws a progress line on stderr during the block, then removes it. Draws nothing if stderr is no terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._last = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def show(self, progress: ImportProgress) -> None:
        """Draw the progress, unless it was drawn less than `_PAUSE` seconds ago."""
        if not self._is_shown or monotonic() - self._last < _PAUSE:
            return
        self._last = monotonic()
        sys.stderr.write(_CLEAR + _line(progress))
        sys.stderr.flush()


def _line(progress: ImportProgress) -> str:
    entries = f"{count(progress.entries)} entries"
    if not progress.total_bytes:
        return entries
    part = min(progress.read_bytes / progress.total_bytes, 1.0)
    done = round(part * _CELLS)
    return f"[{'█' * done}{'·' * (_CELLS - done)}] {part:4.0%}  {entries}"
