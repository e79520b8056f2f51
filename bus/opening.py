"""What `Bus.open` returns: the bus for an `async with` block. Other uses raise an error that says so."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Generic, Never, TypeVar

from lanebus.bus.errors import NotEntered
from lanebus.bus.origin import BusOrigin

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ("Opening",)

T_co = TypeVar("T_co", covariant=True)


class Opening(AbstractAsyncContextManager[T_co], Generic[T_co]):
    """A resource that is open for the length of an `async with` block."""

    def __init__(self, block: AbstractAsyncContextManager[T_co], call: str) -> None:
        """
        Args:
            block: opens and closes the resource.
            call: the call that made this object, for the error, such as "Bus.open()".
        """
        self._block, self._call, self._is_entered = block, call, False
        self._origin: BusOrigin | None = None

    async def __aenter__(self) -> T_co:
        """Open the resource.

        Raises:
            NotEntered: this object was entered before.
            SetupError: no asyncio event loop runs.
        """
        if self._is_entered:
            raise NotEntered(self._call, "entered twice")
        self._origin = BusOrigin.here()
        self._is_entered = True
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close the resource. A forked child that leaves the block closes nothing, because its parent still uses it.

        Raises:
            OpenedElsewhere: this is another event loop than that of `__aenter__`.
        """
        if self._origin is not None:
            if self._origin.is_forked:
                return None
            self._origin.check_running()
        return await self._block.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # a type checker refuses these uses itself

        def __await__(self) -> Never:
            raise NotEntered(self._call, "awaited")

        def __enter__(self) -> Never:
            raise NotEntered(self._call, "entered with `with`")

        def __exit__(self, *_: object) -> None:
            """Complete the protocol of `with`, so that `__enter__` is called."""

        def __getattr__(self, name: str) -> Never:
            raise NotEntered(self._call, f"asked for {name!r}")
