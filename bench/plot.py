"""A chart of cost by session size, with logarithmic axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from bench.size import CostAt

__all__ = ("draw",)


class _Chart(Protocol):
    def add(self, title: str, values: Sequence[tuple[int, float]]) -> object: ...
    def render(self) -> bytes: ...


def draw(rows: Sequence[CostAt], path: Path) -> None:
    """Write the chart to `path` as SVG. Needs the package `pygal`."""
    from pygal import XY  # type: ignore[import-untyped]  # noqa: PLC0415  # optional package
    from pygal.style import CleanStyle  # type: ignore[import-untyped]  # noqa: PLC0415

    chart = cast(
        "_Chart",
        XY(
            js=(),
            style=CleanStyle,
            title="µs a step, by the entries of the session",
            logarithmic=True,
            xrange=(rows[0].size, rows[-1].size),
            range=(10, 10_000),
            y_labels=[10, 100, 1_000, 10_000],
            x_labels=[row.size for row in rows],
            x_value_formatter="{:,.0f}".format,
            value_formatter="{:,.0f} µs".format,
            legend_at_bottom=True,
            height=420,
            margin_right=48,
            dots_size=3,
        ),
    )
    chart.add("publish one message", [(row.size, row.publish.middle) for row in rows])
    chart.add("read the newest 100", [(row.size, row.newest.middle) for row in rows])
    path.write_bytes(chart.render())
