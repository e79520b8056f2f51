"""The root of all errors."""

__all__ = ("BusError",)


class BusError(Exception):
    """The root of all errors this project raises on purpose."""
