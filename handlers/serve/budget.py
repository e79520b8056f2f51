"""Share the memory and the work of a server among its clients, so that none of them can exhaust it."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import anyio

from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.serve.errors import ServerBusy, TooManyWaiting

# Share the memory that a server holds for its clients, so that none of them can exhaust it.
#
# It counts bodies of requests while they are read and handled, answers that are made for another part of the server,
# and responses that were not sent yet.


class Share:
    """The bytes that one request holds of a `ByteBudget`. They are taken in turn, and given back by `keep`."""

    __slots__ = ("_abort", "_budget", "_is_aborted", "_whole", "blocked_at", "held", "is_closed", "owner")

    def __init__(
        self, budget: "ByteBudget", abort: Callable[[], None], whole: "Share | None" = None, owner: str = ""
    ) -> None:
        self.held = 0
        """bytes that are held"""
        self.owner = owner
        """the principal, or the address without one; "" means that no limit of one principal counts"""
        self.blocked_at: float | None = None
        """when the client last accepted or sent data, while the server waits for it; None if nothing waits"""
        self.is_closed = False
        """whether the share was given back. It then takes nothing more"""
        self._budget, self._abort, self._is_aborted, self._whole = budget, abort, False, whole

    @property
    def is_blocked_since(self) -> float | None:
        """`blocked_at` of the response. A part is blocked while the response is."""
        return self.blocked_at if self._whole is None else self._whole.blocked_at

    @asynccontextmanager
    async def part(self) -> AsyncGenerator["Share"]:
        """Return a share of its own for a part of the response, for the length of the block."""
        async with self._budget.share(self.abort, self, owner=self.owner) as share:
            yield share

    def paid(self) -> "Share":
        """Return a share whose bytes are held by this one already, so that no wait for them can lock up the server."""
        return Share(ByteBudget(), self.abort, self, self.owner)

    async def take(self, size: int, *, seconds: float | None = None) -> None:
        """Wait until `size` bytes are free, and hold them. Bytes that are held before are given back first, so that two
        responses never wait for each other.

        Args:
            size: bytes to hold. More than the whole budget waits until nothing else is held. More than one principal
                may hold waits until the principal holds nothing else.
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
        """Hold `size` bytes if they are free and nothing else waits for them. Return whether they are held."""
        self.keep(0)
        return self._budget.grant_nowait(self, size)

    def keep(self, size: int) -> None:
        """Hold `size` bytes from now on, without waiting. Use it when the size becomes known, or with 0 at the end."""
        self._budget.change(self, size)

    def close(self) -> None:
        """Give all bytes back, for good."""
        self._budget.close(self)

    def abort(self) -> None:
        """Disconnect the client."""
        if not self._is_aborted:
            self._is_aborted = True
            self._abort()


@dataclass(slots=True, eq=False)
class _MemoryWaiter:
    owner: str
    size: int
    number: int
    turn: asyncio.Event = field(default_factory=asyncio.Event)


class ByteBudget:
    """A number of bytes that one server may hold for its clients.

    The principal that holds the fewest bytes is served first, and of its requests the one that needs the fewest. So a
    small response does not wait until many clients that do not read were disconnected one after the other. No
    principal holds more than `UiBounds.principal_bytes`.

    If a request waits for bytes, clients that have accepted or sent no data for `patience_seconds` are disconnected,
    the longest first. So clients that do not go on cannot block those that do.
    """

    def __init__(self, bounds: UiBounds = DEFAULT_UI_BOUNDS) -> None:
        self._total, self._own_total, self._patience = (
            bounds.memory_bytes,
            bounds.principal_bytes,
            bounds.patience_seconds,
        )
        self._held = 0
        self._owned = dict[str, int]()
        """principal → bytes that it holds"""
        self._shares: set[Share] = set()
        self._waiting, self._number = list[_MemoryWaiter](), 0

    @property
    def held(self) -> int:
        """Bytes that are held for all clients together."""
        return self._held

    @asynccontextmanager
    async def share(
        self, abort: Callable[[], None], whole: Share | None = None, *, owner: str = ""
    ) -> AsyncGenerator[Share]:
        """Return the share of one request. It is given back at the end of the block.

        Args:
            abort: disconnects the client at once. The block must then end soon.
            whole: the share of the response, if this is a part of it.
            owner: see `Share.owner`.
        """
        share = self.open(abort, whole, owner=owner)
        try:
            yield share
        finally:
            self.close(share)

    def open(self, abort: Callable[[], None], whole: Share | None = None, *, owner: str = "") -> Share:
        """Return a share like `share`, until `close`. It takes less memory, for responses that last."""
        share = Share(self, abort, whole, owner)
        self._shares.add(share)
        return share

    def close(self, share: Share) -> None:
        """Give a share back."""
        share.keep(0)
        share.is_closed = True
        self._shares.discard(share)

    async def grant(self, share: Share, size: int) -> None:
        """Wait until it is this request's turn and `size` bytes are free. Used by `Share`."""
        self._number += 1
        waiter = _MemoryWaiter(share.owner, size, self._number)
        self._waiting.append(waiter)
        try:
            while not ((is_next := self._next() is waiter) and self._is_free(size)):
                # One waiter of a principal acts at a time: each makes room for its own bytes.
                is_acting = is_next or (
                    self._firsts()[share.owner] is waiter and not self._is_within(share.owner, size)
                )
                with anyio.move_on_after(self._disconnect_blocked(waiter) if is_acting else None):
                    await waiter.turn.wait()
                waiter.turn.clear()
            self.change(share, size)
        finally:
            self._waiting.remove(waiter)
            self._wake()

    def grant_nowait(self, share: Share, size: int) -> bool:
        """Give `size` bytes to a request if they are free. Used by `Share`."""
        if self._next() is not None or not self._is_free(size) or not self._is_within(share.owner, size):
            return False
        self.change(share, size)
        return True

    def change(self, share: Share, size: int) -> None:
        """Set the bytes that a request holds. Used by `Share`."""
        size = 0 if share.is_closed else size
        more = size - share.held
        self._held += more
        share.held = size
        if share.owner and more:
            owned = self._owned.get(share.owner, 0) + more
            if owned:
                self._owned[share.owner] = owned
            else:
                del self._owned[share.owner]
        self._wake()

    def _next(self) -> _MemoryWaiter | None:
        """Return the waiter that is served next; None if each principal that waits holds as much as it may."""
        return min(
            (each for each in self._firsts().values() if self._is_within(each.owner, each.size)),
            key=lambda each: (self._owned.get(each.owner, 0), each.size, each.number),
            default=None,
        )

    def _firsts(self) -> dict[str, _MemoryWaiter]:
        """Return the waiter of each principal that is served before its others."""
        found = dict[str, _MemoryWaiter]()
        for each in self._waiting:
            known = found.get(each.owner)
            if known is None or (each.size, each.number) < (known.size, known.number):
                found[each.owner] = each
        return found

    def _wake(self) -> None:
        for each in self._firsts().values():
            each.turn.set()

    def _is_free(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self._total

    def _is_within(self, owner: str, size: int) -> bool:
        """Return whether a principal may hold so many bytes more."""
        owned = self._owned.get(owner, 0)
        return owned == 0 or owned + size <= self._own_total

    def _disconnect_blocked(self, waiter: _MemoryWaiter) -> float:
        """Disconnect clients that are blocked for too long, until the waiter's bytes will be free. A principal that
        holds too much waits for its own clients alone. Return the seconds until another may be blocked for too long."""
        now, size = anyio.current_time(), waiter.size
        is_own = not self._is_within(waiter.owner, size)
        missing = self._owned[waiter.owner] + size - self._own_total if is_own else self._held + size - self._total
        blocked = sorted(
            (
                (since, share)
                for share in self._shares
                if share.held and (since := share.is_blocked_since) is not None
                if not is_own or share.owner == waiter.owner
            ),
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


# Let principals take turns at work that costs, so that one with many requests does not hold up the others.


@dataclass(slots=True, eq=False)
class _WorkWaiter:
    is_rested: bool
    """whether its work has begun"""
    admitted: asyncio.Event = field(default_factory=asyncio.Event)


class WorkTurn:
    """The right of one request to work, for the length of a block."""

    __slots__ = ("_owner", "_turns", "is_held")

    def __init__(self, turns: "Turns", owner: str) -> None:
        self._turns, self._owner, self.is_held = turns, owner, True

    async def rest(self) -> None:
        """Let the other principals that wait work first. Returns at once if none does.

        Raises:
            ServerBusy: the next turn did not come in time.
        """
        if self.is_held and self._turns.has_others(self._owner):
            self.is_held = False
            self._turns.free()
            await self._turns.enter(self._owner, is_rested=True)
            self.is_held = True

    @asynccontextmanager
    async def away(self) -> AsyncGenerator[None]:
        """Let others work during the block, which waits for what is not work of the server, and then go on.

        Raises:
            ServerBusy: the next turn did not come in time.
        """
        if not self.is_held:
            yield
            return
        self.is_held = False
        self._turns.away[self._owner] += 1
        self._turns.free()
        try:
            yield
        finally:
            self._turns.away[self._owner] -= 1
        await self._turns.enter(self._owner, is_rested=True)
        self.is_held = True


TURN: ContextVar[WorkTurn | None] = ContextVar("turn", default=None)
"""the turn at folding and listing that the caller has"""


@asynccontextmanager
async def away_from_turn() -> AsyncGenerator[None]:
    """Let others work during the block, if the caller has a `TURN`; see `WorkTurn.away`."""
    turn = TURN.get()
    if turn is None:
        yield
    else:
        async with turn.away():
            yield


class Turns:
    """Turns at one kind of work. Principals go round; the requests of one wait behind each other."""

    def __init__(self, at_once: int, *, own: int, begun: int, queued: int, seconds: float) -> None:
        """
        Args:
            at_once: number of requests that work at the same time.
            own: how many of them one principal may have, also while they rest. It may have as many more that are away.
            begun: how many requests may have begun, with those that rest.
            queued: number of requests of one principal that may wait.
            seconds: longest wait for a turn.
        """
        self._at_once, self._own, self._begun = at_once, own, begun
        self._queued, self._seconds = queued, seconds
        self._working, self._active = 0, Counter[str]()
        self.away = Counter[str]()
        """principal → how many of its requests wait for what is not work of the server; set by `WorkTurn`"""
        self._waiting: dict[str, deque[_WorkWaiter]] = {}
        """principal → its requests that wait. The principal that was served longest ago comes first"""

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncGenerator[WorkTurn]:
        """Wait for a turn, and hold it for the length of the block.

        Args:
            owner: the principal, or the address of a client without one.

        Raises:
            TooManyWaiting: the principal has too many requests that wait.
            ServerBusy: the turn did not come in time.
        """
        await self.enter(owner, is_rested=False)
        turn = WorkTurn(self, owner)
        try:
            yield turn
        finally:
            self._leave(owner)
            if turn.is_held:
                self.free()

    def has_others(self, owner: str) -> bool:
        """Return whether a request of another principal waits that could work now. Used by `WorkTurn`."""
        return any(name != owner and self._may_work(name, queue[0]) for name, queue in self._waiting.items())

    def free(self) -> None:
        """Let the next request work in place of one. Used by `WorkTurn`."""
        self._working -= 1
        self._admit()

    async def enter(self, owner: str, *, is_rested: bool) -> None:
        """Wait for a turn. Used by `WorkTurn`."""
        queue = self._waiting.setdefault(owner, deque())
        if not is_rested and len(queue) >= self._queued:
            raise TooManyWaiting(self._queued)
        waiter, is_admitted = _WorkWaiter(is_rested), False
        if is_rested:
            queue.appendleft(waiter)
        else:
            queue.append(waiter)
        self._admit()
        try:
            with anyio.move_on_after(self._seconds):
                await waiter.admitted.wait()
                is_admitted = True
        finally:
            if not is_admitted:
                self._give_up(owner, waiter)
        if not is_admitted:
            raise ServerBusy

    def _give_up(self, owner: str, waiter: _WorkWaiter) -> None:
        if waiter.admitted.is_set():  # admitted in the moment of the cancellation
            if not waiter.is_rested:
                self._leave(owner)
            self.free()
        else:
            self._waiting[owner].remove(waiter)
            self._tidy(owner)
            self._admit()

    def _leave(self, owner: str) -> None:
        self._active[owner] -= 1
        if not self._active[owner]:
            del self._active[owner]

    def _may_work(self, owner: str, waiter: _WorkWaiter) -> bool:
        if waiter.is_rested:
            return True
        present = self._active[owner] - min(self.away[owner], self._own)
        return present < self._own and self._active.total() - self.away.total() < self._begun

    def _admit(self) -> None:
        while self._working < self._at_once:
            owner = next((name for name, queue in self._waiting.items() if self._may_work(name, queue[0])), None)
            if owner is None:
                return
            waiter = self._waiting[owner].popleft()
            self._waiting[owner] = self._waiting.pop(owner)  # it is served last from now on
            self._tidy(owner)
            self._working += 1
            if not waiter.is_rested:
                self._active[owner] += 1
            waiter.admitted.set()

    def _tidy(self, owner: str) -> None:
        if not self._waiting[owner]:
            del self._waiting[owner]
