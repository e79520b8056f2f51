"""The process and the event loop in which a bus was opened. A bus works nowhere else.

A forked child inherits the parent's sockets, and the number that names its producer: a publish of the child would pass
for one of the parent. In another event loop, a publish is sent but its answer is never heard. So such calls are refused
before anything is sent, and a forked child loses its copies of the sockets at once.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakKeyDictionary, ref

from lanebus.bus.errors import OpenedElsewhere, SetupError

__all__ = ("BusOrigin", "drop_in_child")

T = TypeVar("T")


class BusOrigin:
    """Remembers the running event loop and the process, and refuses calls from others."""

    __slots__ = ("_loop", "_pid")

    def __init__(self) -> None:
        self._pid, self._loop = os.getpid(), _running_loop()

    @classmethod
    def here(cls) -> "BusOrigin":
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
