"""Share the memory for responses among all clients, so that clients that accept no data cannot exhaust it."""

import asyncio
from bisect import insort
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.errors import ServerBusy

__all__ = ("ByteBudget", "Share")


class Share:
    """The bytes that one response holds of a `ByteBudget`. Bytes are taken in turn and given back by `keep`."""

    __slots__ = ("_abort", "_budget", "_is_aborted", "_whole", "blocked_at", "held")

    def __init__(self, budget: "ByteBudget", abort: Callable[[], None], whole: "Share | None" = None) -> None:
        self.held = 0
        """bytes that the response holds"""
        self.blocked_at: float | None = None
        """when the client last accepted data, while a send waits for it; None if no send waits"""
        self._budget, self._abort, self._is_aborted, self._whole = budget, abort, False, whole

    @property
    def is_blocked_since(self) -> float | None:
        """`blocked_at` of the response. A part is blocked while the response is."""
        return self.blocked_at if self._whole is None else self._whole.blocked_at

    @asynccontextmanager
    async def part(self) -> AsyncGenerator["Share"]:
        """Return a share of its own for a part of the response, for the length of the block."""
        async with self._budget.share(self.abort, self) as share:
            yield share

    async def take(self, size: int, *, seconds: float | None = None) -> None:
        """Wait until `size` bytes are free, and hold them. Bytes that are held before are given back first, so that two
        responses never wait for each other.

        Args:
            size: bytes to hold. More than the whole budget waits until nothing else is held.
            seconds: longest wait; None means unlimited.

        Raises:
            ServerBusy: the bytes were not free in time.
        """
        self.keep(0)
        with anyio.move_on_after(seconds) as timeout:
            await self._budget.grant(self, size)
        if timeout.cancelled_caught:
            raise ServerBusy

    def take_nowait(self, size: int) -> bool:
        """Hold `size` bytes if they are free and no other response waits. Return whether they are held."""
        self.keep(0)
        return self._budget.grant_nowait(self, size)

    def keep(self, size: int) -> None:
        """Hold `size` bytes from now on, without waiting. Use it when the size becomes known, or with 0 at the end."""
        self._budget.change(self, size)

    def abort(self) -> None:
        """Disconnect the client."""
        if not self._is_aborted:
            self._is_aborted = True
            self._abort()


@dataclass(slots=True, order=True)
class _Waiter:
    size: int
    number: int
    turn: asyncio.Event = field(default_factory=asyncio.Event, compare=False)


class ByteBudget:
    """A number of bytes that the responses of one server may hold together.

    The response that needs the fewest bytes is served first. So a small response does not wait until many clients that
    do not read were disconnected one after the other.

    If a response waits for bytes, clients that have accepted no data for `patience_seconds` are disconnected, the
    longest first. So clients that do not read cannot block those that do.
    """

    def __init__(self, bounds: UiBounds = DEFAULT_UI_BOUNDS) -> None:
        self._total, self._patience = bounds.memory_bytes, bounds.patience_seconds
        self._held = 0
        self._shares: set[Share] = set()
        self._waiting, self._number = list[_Waiter](), 0
        """the responses that wait, in the order in which they are served"""

    @property
    def held(self) -> int:
        """Bytes that all responses hold together."""
        return self._held

    @asynccontextmanager
    async def share(self, abort: Callable[[], None], whole: Share | None = None) -> AsyncGenerator[Share]:
        """Return the share of one response. It is given back at the end of the block.

        Args:
            abort: disconnects the client at once. The block must then end soon.
            whole: the share of the response, if this is a part of it.
        """
        share = self.open(abort, whole)
        try:
            yield share
        finally:
            self.close(share)

    def open(self, abort: Callable[[], None], whole: Share | None = None) -> Share:
        """Return a share like `share`, until `close`. It takes less memory, for responses that last."""
        share = Share(self, abort, whole)
        self._shares.add(share)
        return share

    def close(self, share: Share) -> None:
        """Give a share back."""
        share.keep(0)
        self._shares.discard(share)

    async def grant(self, share: Share, size: int) -> None:
        """Wait until it is this response's turn and `size` bytes are free. Used by `Share`."""
        self._number += 1
        waiter = _Waiter(size, self._number)
        insort(self._waiting, waiter)
        try:
            while not (is_next := self._waiting[0] is waiter) or not self._is_free(size):
                with anyio.move_on_after(self._disconnect_blocked(size) if is_next else None):
                    await waiter.turn.wait()
                waiter.turn.clear()
            self.change(share, size)
        finally:
            self._waiting.remove(waiter)
            self._wake()

    def grant_nowait(self, share: Share, size: int) -> bool:
        """Give `size` bytes to a response if they are free. Used by `Share`."""
        if self._waiting or not self._is_free(size):
            return False
        self.change(share, size)
        return True

    def change(self, share: Share, size: int) -> None:
        """Set the bytes that a response holds. Used by `Share`."""
        self._held += size - share.held
        share.held = size
        self._wake()

    def _wake(self) -> None:
        if self._waiting:
            self._waiting[0].turn.set()

    def _is_free(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self._total

    def _disconnect_blocked(self, size: int) -> float:
        """Disconnect clients that are blocked for too long, until `size` bytes will be free. Return the seconds until
        another client may be blocked for too long."""
        now, missing = anyio.current_time(), self._held + size - self._total
        blocked = sorted(
            ((since, share) for share in self._shares if share.held and (since := share.is_blocked_since) is not None),
            key=lambda pair: pair[0],
        )
        for since, share in blocked:
            if missing <= 0:
                break
            if now - since < self._patience:
                return max(self._patience - (now - since), 0.001)
            share.abort()
            missing -= share.held
        return self._patience
