"""The base class of all errors."""

__all__ = ("BusError",)


class BusError(Exception):
    """The base class of all errors that lanebus raises on purpose."""
