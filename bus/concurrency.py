"""Asyncio as the bus uses it: the process and loop of a bus, iterators that survive a cancelled call, and threads.

A bus works in the process and in the event loop that opened it (`BusOrigin`). A cancelled `anext` does not end its
iterators (`resumable`). Blocking work has threads of its own (`run_in_thread`). No exception group leaves a public
call (`first_error`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary, ref

import anyio
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

from lanebus.bus.errors import Closed, OpenedElsewhere, SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType


# The process and the event loop in which a bus was opened. A bus works nowhere else.
#
# A forked child inherits the parent's sockets, and the number that names its producer: a publish of the child would
# pass for one of the parent. In another event loop, a publish is sent but its answer is never heard. So such calls are
# refused before anything is sent, and a forked child loses its copies of the sockets at once.

T = TypeVar("T")


class BusOrigin:
    """Remembers the running event loop and the process, and refuses calls from others."""

    __slots__ = ("_loop", "_pid")

    def __init__(self) -> None:
        self._pid, self._loop = os.getpid(), _running_loop()

    @classmethod
    def here(cls) -> BusOrigin:
        """Return the present process and event loop.

        Raises:
            SetupError: no asyncio event loop runs, for example under trio.
        """
        origin = cls()
        if origin._loop is None:
            raise SetupError("a bus needs asyncio's event loop", "open it in `asyncio.run`; trio is not supported")
        return origin

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child of the process."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Check the process, and the event loop if one is running. A call that does no I/O needs no event loop.

        Raises:
            OpenedElsewhere: this is another process or event loop.
        """
        if os.getpid() != self._pid:
            raise OpenedElsewhere("process")
        loop = _running_loop()
        if loop is not None and loop is not self._loop and self._loop is not None:
            raise OpenedElsewhere("event loop")

    def check_running(self) -> None:
        """Check the process, and that this call runs in the event loop.

        Raises:
            OpenedElsewhere: this is another process or event loop.
        """
        if os.getpid() != self._pid:
            raise OpenedElsewhere("process")
        if self._loop is None:
            self._loop = _running_loop()
        elif _running_loop() is not self._loop:
            raise OpenedElsewhere("event loop")

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function in the event loop soon, from any thread. A forked child, or a closed loop, does not call it.

        Garbage collection uses this: it runs in any thread, and in the middle of other functions.
        """
        if self._loop is not None and not self.is_forked:
            with suppress(RuntimeError):  # the event loop is closed, and all its tasks have ended
                self._loop.call_soon_threadsafe(function)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_descriptors: WeakKeyDictionary[object, Callable[[], int]] = WeakKeyDictionary()


def drop_in_child(owner: T, descriptor: Callable[[T], int]) -> None:
    """Take the file of a socket or a lock from every child that this process forks, as long as `owner` lives.

    The child's number of the file then is a socket that is already closed at the other end. So neither the child's copy
    of the event loop nor its garbage collection can reach the file, and no other file gets the number.

    Args:
        owner: the object that holds the file. Only a weak reference to it is kept.
        descriptor: returns the file descriptor of `owner`; -1 if the file is closed.
    """
    found = ref(owner)
    _descriptors[owner] = lambda: -1 if (owner := found()) is None else descriptor(owner)


def _drop_all() -> None:
    dead, other = socket.socketpair()
    other.close()
    with dead:
        for descriptor in tuple(_descriptors.values()):
            if (number := descriptor()) >= 0:
                os.dup2(dead.fileno(), number, inheritable=False)
    _descriptors.clear()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_drop_all)


# Async iterators that a cancelled `anext` does not end, unlike async generators.
#
# A time limit around one `anext` is how a program asks for news and then does something else. A generator that is
# cancelled is finished: it ends without an error when it is iterated again, and the entries that follow are missed.

P = ParamSpec("P")
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


_thread_limiter: RunVar[CapacityLimiter] = RunVar("lanebus_threads")


async def run_in_thread(function: Callable[[], T], *, threads: int = 16, abandon: bool = False) -> T:
    """Call a function in a thread of the bus, and return what it returns.

    A call waits for a free thread. The threads are not those of `anyio.to_thread.run_sync` and `asyncio.to_thread`,
    which a program may fill with code that blocks.

    Args:
        function: the function.
        threads: maximum number of such threads of an event loop; its first call sets it.
        abandon: whether a cancelled call leaves the thread running. By default, it waits for the thread.

    Raises:
        Exception: any error of the function.
    """
    try:
        limiter = _thread_limiter.get()
    except LookupError:
        limiter = CapacityLimiter(threads)
        _thread_limiter.set(limiter)
    return await run_sync(function, abandon_on_cancel=abandon, limiter=limiter)


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in a group and its nested groups."""
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return first_error(cast("BaseExceptionGroup[BaseException]", first))
    return first
