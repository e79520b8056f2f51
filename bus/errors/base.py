"""The base class of all errors."""

__all__ = ("BusError",)


class BusError(Exception):
    """The base class of all errors that lanebus raises on purpose. Its text is `fault: remedy`.

    Fields: `fault`, what is wrong; `remedy`, what to do next, or "".
    """

    def __init__(self, fault: str = "", remedy: str = "") -> None:
        super().__init__(f"{fault}: {remedy}" if remedy else fault)
        self.fault, self.remedy = fault, remedy
