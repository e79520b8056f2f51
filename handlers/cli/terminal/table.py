"""Lay out rows of text in columns, for a terminal. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lanebus.handlers.cli.terminal.text import cut, plain, width

__all__ = ("Column", "line", "table")

_GAP = "  "
_NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    is_number: bool = False
    """whether cells are aligned at the right"""
    is_flexible: bool = False
    """whether cells are shortened if the table is too wide"""
    is_indented: bool = False
    """whether leading spaces of cells are kept, as in a tree. Use it only for text that lanebus itself wrote"""
    columns: int = 0
    """minimum width, in character columns of the terminal"""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], fit: int | None) -> Iterator[str]:
    """Yield a line with the titles, then one line for each row.

    Args:
        columns: the columns.
        rows: for each row a cell for each column. Control characters and line breaks are removed.
        fit: maximum number of columns of a line; None means unlimited.
    """
    cells = [[column.title for column in columns], *(_cells(columns, row) for row in rows)]
    widths = [max(column.columns, *(width(row[index]) for row in cells)) for index, column in enumerate(columns)]
    if fit is not None:
        _shrink(columns, widths, fit)
    for row in cells:
        yield _line(columns, row, widths, fit)


def line(columns: Sequence[Column], row: Sequence[str], fit: int | None) -> str:
    """Return one row as text, without knowing the other rows. Rows align only if no cell is wider than its column's
    `Column.columns`."""
    cells = _cells(columns, row)
    widths = [max(column.columns, width(cell)) for column, cell in zip(columns, cells, strict=True)]
    if fit is not None:
        _shrink(columns, widths, fit)
    return _line(columns, cells, widths, fit)


def _cells(columns: Sequence[Column], row: Sequence[str]) -> list[str]:
    return [
        _indent(cell) + plain(cell) if column.is_indented else plain(cell)
        for column, cell in zip(columns, row, strict=True)
    ]


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" "))]


def _shrink(columns: Sequence[Column], widths: list[int], fit: int) -> None:
    """Narrow the flexible columns until the line fits, starting with the widest column."""
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
    for column, cell, column_width in zip(columns, cells, widths, strict=True):
        text = cut(cell, column_width)
        padding = " " * (column_width - width(text))
        parts.append(padding + text if column.is_number else text + padding)
    whole = _GAP.join(parts).rstrip()
    return whole if fit is None else cut(whole, fit)
