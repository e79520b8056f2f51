"""Async iterators that a cancelled `anext` does not end, unlike async generators.

A time limit around one `anext` is how a program asks for news and then does something else. A generator that is
cancelled is finished: it ends without an error when it is iterated again, and the entries that follow are missed.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator
from functools import partial, wraps
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

import anyio

from lanebus.bus.errors import Closed
from lanebus.bus.origin import BusOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

__all__ = ("Flattened", "Iteration", "Resumable", "resumable")

P = ParamSpec("P")
T = TypeVar("T")
G = TypeVar("G")


class Iteration(AsyncGenerator[T, None]):
    """Base class of the iterators: an async generator that receives no values."""

    __slots__ = ()

    @abstractmethod
    async def __anext__(self) -> T: ...

    async def asend(self, value: None, /) -> T:
        """Return the next item."""
        del value
        return await self.__anext__()

    async def athrow(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> T:
        """Close the iterator, and raise an error."""
        await self.aclose()
        error = typ if isinstance(typ, BaseException) else val if isinstance(val, BaseException) else typ()
        raise error.with_traceback(tb)

    @abstractmethod
    async def aclose(self) -> None: ...


class Resumable(Iteration[T]):
    """Iterates over an async generator. After a cancelled `anext`, the next one returns the item that it waited for.

    Each item is awaited in a task. If the call is cancelled, the task goes on, for one item at most. `aclose` ends it,
    and so does the garbage collection of the iterator.
    """

    __slots__ = ("_is_cut", "_is_running", "_origin", "_source", "_step", "is_ended")

    def __init__(self, source: AsyncGenerator[T, None]) -> None:
        """
        Args:
            source: the generator. It must not refer to this iterator.
        """
        self._source, self._origin = source, BusOrigin()
        self._step: asyncio.Task[T] | None = None
        self._is_running = self._is_cut = False
        self.is_ended = False
        """whether the generator has ended, with or without an error"""

    async def __anext__(self) -> T:
        """Return the next item.

        Raises:
            Closed: the task of an earlier call was cancelled, for example because the event loop ended.
            OpenedElsewhere: this is another process or event loop than that of the iterator.
        """
        self._enter("anext")
        try:
            if self._is_cut:
                raise Closed("the iterator")
            step = self._step = self._step or asyncio.create_task(_next(self._source))
            await asyncio.wait((step,))
        finally:
            self._is_running = False
        self._step, self._is_cut = None, step.cancelled()
        self.is_ended = self._is_cut or step.exception() is not None
        try:
            return step.result()
        finally:
            del step  # an error refers to this frame: the iterator would live until the next garbage collection

    async def aclose(self) -> None:
        """End the generator.

        Raises:
            OpenedElsewhere: this is another process or event loop than that of the iterator.
        """
        self._enter("aclose")
        try:
            step, self._step, self.is_ended = self._step, None, True
            if step is not None:
                step.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait((step,))
                _retrieve(step)
            await self._source.aclose()
        finally:
            self._is_running = False

    def _enter(self, call: str) -> None:
        self._origin.check_running()
        if self._is_running:
            raise RuntimeError(f"{call}(): asynchronous generator is already running")  # as Python says it
        self._is_running = True

    def __del__(self) -> None:
        if (step := self._step) is not None:
            self._origin.call_soon(partial(_abandon, step))


class Flattened(Iteration[T], Generic[G, T]):
    """Iterates over the items of groups, such as the entries of pages."""

    __slots__ = ("_groups", "_items", "_items_of")

    def __init__(self, groups: AsyncGenerator[G, None], items_of: Callable[[G], Iterable[T]]) -> None:
        """
        Args:
            groups: the generator of the groups. It must not refer to this iterator.
            items_of: returns the items of a group.
        """
        self._groups, self._items_of = Resumable(groups), items_of
        self._items: Iterator[T] = iter(())

    async def __anext__(self) -> T:
        """Return the next item. Raises the errors of `Resumable`."""
        while True:
            for item in self._items:
                return item
            self._items = iter(self._items_of(await self._groups.__anext__()))

    async def aclose(self) -> None:
        """End the generator."""
        self._items = iter(())
        await self._groups.aclose()


def resumable(function: Callable[P, AsyncGenerator[T, None]]) -> Callable[P, AsyncGenerator[T, None]]:
    """Decorate an async generator function: it returns a `Resumable`."""

    @wraps(function)
    def begun(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        return Resumable(function(*args, **kwargs))

    return begun


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await source.__anext__()


def _abandon(step: asyncio.Task[T]) -> None:
    step.add_done_callback(_retrieve)
    step.cancel()


def _retrieve(step: asyncio.Task[T]) -> None:
    """Mark a task's exception as retrieved, so that asyncio does not log it."""
    if not step.cancelled():
        step.exception()
