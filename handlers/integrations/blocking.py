"""A bus for programs without an event loop, and calls that wait for the bus's loop from other threads."""

import asyncio
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from anyio.from_thread import start_blocking_portal

from lanebus import Bus, Closed, SetupError

T = TypeVar("T")


class WouldBlock(SetupError):
    """A method that blocks was called in the thread of the bus's event loop, which it would wait for.

    Fields: `method`, such as "put".
    """

    def __init__(self, method: str) -> None:
        super().__init__(
            f"`{method}` would block the event loop that it waits for",
            f"await `a{method}` instead, and `ainvoke` of a graph; or call it in another thread",
        )
        self.method = method


class BusInThread(NamedTuple):
    """A bus whose event loop runs in a thread of its own."""

    bus: Bus
    loop: asyncio.AbstractEventLoop


@contextmanager
def bus_in_thread(url: str | None = None, *, namespace: str = "lanebus") -> Generator[BusInThread]:
    """Open a bus for a program without an event loop, for the length of a `with` block.

        with bus_in_thread("redis://localhost") as bus:
            graph = builder.compile(checkpointer=LanebusSaver(bus))
            graph.invoke(question, config)

    Args:
        url: the server, as for `Bus.open`; None means `$LANEBUS_URL`, or else the embedded server.
        namespace: prefix of every key, as for `Bus.open`.

    Raises:
        SetupError: a setting cannot work; the error names the setting.
        Unavailable: the server cannot be reached, or the embedded server did not start.
    """
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Bus.open(url, namespace=namespace)) as bus,
    ):
        yield BusInThread(bus, portal.call(asyncio.get_running_loop))


class BusLoop:
    """Runs coroutines on the loop of a bus, whichever thread or loop they are called from."""

    def __init__(self, bus: Bus | BusInThread) -> None:
        """
        Args:
            bus: a bus that was opened on the running loop, or the result of `bus_in_thread`.

        Raises:
            RuntimeError: `bus` is a `Bus` and no event loop is running.
        """
        self.bus, self._loop = bus if isinstance(bus, BusInThread) else (bus, asyncio.get_running_loop())

    async def run(self, call: Coroutine[object, object, T]) -> T:
        """Return the result of a coroutine. If this call is cancelled, so is the coroutine.

        Raises:
            Closed: the loop of the bus has ended.
        """
        if asyncio.get_running_loop() is self._loop:
            return await call
        return await asyncio.wrap_future(self._submit(call))

    def wait(self, method: str, call: Coroutine[object, object, T], *, seconds: float = 1.0) -> T:
        """Return the result of a coroutine, in a thread that may block.

        Args:
            method: name of the method that was called, for the error.
            call: the coroutine. Its own waits are bounded.
            seconds: how often to check that the loop still runs.

        Raises:
            WouldBlock: the current thread runs the loop of the bus. Nothing was done.
            Closed: the loop of the bus has ended.
        """
        try:
            is_own = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_own = False
        if is_own:
            call.close()
            raise WouldBlock(method)
        future = self._submit(call)
        while True:
            try:
                return future.result(seconds)
            except TimeoutError:
                if future.done():  # the coroutine itself raised it
                    raise
                if not self._loop.is_running():
                    raise Closed("the event loop of the bus") from None
            except BaseException:
                future.cancel()
                raise

    def _submit(self, call: Coroutine[object, object, T]) -> "Future[T]":
        if not self._loop.is_running():
            call.close()
            raise Closed("the event loop of the bus")
        return asyncio.run_coroutine_threadsafe(call, self._loop)
