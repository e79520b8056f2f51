"""The error of using what the caller has closed."""

from lanebus.bus.errors.base import BusError

__all__ = ("Closed",)


class Closed(BusError):
    """The bus, or the part of it that was used, is closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed: open another")
        self.what = what
