"""The error for using a closed bus."""

from lanebus.bus.errors.base import BusError

__all__ = ("Closed",)


class Closed(BusError):
    """The bus, or the used part of the bus, is closed.

    Fields: `what`, a name for the closed part, such as "bus".
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed", "open another")
        self.what = what
