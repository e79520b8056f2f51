"""Rows of text in columns, for a terminal. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lanebus.handlers.cli.terminal.text import cut, plain, width

__all__ = ("Column", "line", "table")

_GAP = "  "
_NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    is_number: bool = False
    """aligned at the right"""
    is_flexible: bool = False
    """cut where the table would be too wide"""
    columns: int = 0
    """at least that wide"""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], fit: int | None) -> Iterator[str]:
    """A line with the titles, then one for each row.

    Args:
        fit: most columns of a line, as the terminal has; None is no limit.
    """
    cells = [[column.title for column in columns], *([plain(cell) for cell in row] for row in rows)]
    widths = [max(column.columns, *(width(row[index]) for row in cells)) for index, column in enumerate(columns)]
    if fit is not None:
        _shrink(columns, widths, fit)
    for row in cells:
        yield _line(columns, row, widths, fit)


def line(columns: Sequence[Column], row: Sequence[str], fit: int | None) -> str:
    """One row by itself, where those to come are not known: each column has its own width, a flexible one the rest."""
    cells = [plain(cell) for cell in row]
    widths = [max(column.columns, width(cell)) for column, cell in zip(columns, cells, strict=True)]
    if fit is not None:
        _shrink(columns, widths, fit)
    return _line(columns, cells, widths, fit)


def _shrink(columns: Sequence[Column], widths: list[int], fit: int) -> None:
    """Take what is too much from the flexible columns, from the widest first."""
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - fit
    flexible = [index for index, column in enumerate(columns) if column.is_flexible]
    while over > 0 and flexible:
        index = max(flexible, key=lambda index: widths[index])
        if widths[index] <= _NARROWEST:
            return
        widths[index] -= 1
        over -= 1


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], fit: int | None) -> str:
    parts: list[str] = []
    for column, cell, wanted in zip(columns, cells, widths, strict=True):
        text = cut(cell, wanted)
        padding = " " * (wanted - width(text))
        parts.append(padding + text if column.is_number else text + padding)
    whole = _GAP.join(parts).rstrip()
    return whole if fit is None else cut(whole, fit)
