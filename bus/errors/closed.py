"""The error for using a closed bus."""

from lanebus.bus.errors.base import BusError

__all__ = ("Closed",)


class Closed(BusError):
    """The bus is closed, or the part of the bus that was used.

    Fields: `what`, a name for the closed part, such as "bus".
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed: open another")
        self.what = what
