"""A connection's requests and their answers, which come in the order of the requests.

Reading answers by callback saves a task switch for each of them. Every wait has one bound, so no caller can forget it:
a connection on which an answer is due and no byte moves for a request's `seconds` is broken.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from socket import SHUT_RDWR
from typing import cast

import hiredis

from lanebus.bus.errors import AnswerLost, Refused, Unavailable
from lanebus.bus.servers.replies import Reply, refusal_of

__all__ = ("Done", "Pipeline", "Request")

Done = Callable[[list[Reply | Refused] | Unavailable], None]
"""Is given the answers, one a command, or why there are none."""


@dataclass(slots=True, eq=False)
class Request:
    """Commands that were sent together, and the answers to them so far."""

    count: int
    """commands, each of which gets an answer"""
    done: Done
    seconds: float
    """without a byte in either direction, after which the connection counts as dead"""
    replies: list[Reply | Refused]


class Pipeline(asyncio.Protocol):
    """Writes requests to a transport, and hands out its answers in the order of the requests."""

    def __init__(self, transport: asyncio.Transport, refused: Callable[[Refused], None]) -> None:
        """Takes the transport over; `refused` is called with each error among the answers, before its request ends."""
        self.transport, self._refused = transport, refused
        transport.set_protocol(self)
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._due: deque[Request] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._moved_at = 0.0
        self._unsent = 0
        self.fault: Unavailable | None = None
        """why nothing more comes; None as long as it works"""

    def submit(self, data: Sequence[bytes], request: Request) -> None:
        """Write a request. Raises Unavailable if the connection broke before any of it was sent."""
        was_empty = not self.transport.get_write_buffer_size()
        if not self._due:
            self._moved_at = self._loop.time()
        self.transport.writelines(data)
        if self.transport.is_closing():  # it broke as it was written to
            fault = Unavailable("server: the connection broke")
            if not was_empty:
                self._due.append(request)
            self.fail(fault)
            if was_empty:
                raise fault
            return
        self._due.append(request)
        when = self._moved_at + self._due[0].seconds
        if self._timer is None or self._timer.when() > when:
            self._arm(when)

    def data_received(self, data: bytes) -> None:
        self._moved_at = self._loop.time()
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                self._take(reply)
        except hiredis.HiredisError:
            self.fail(Unavailable("server: an answer that is none"))

    def _take(self, reply: object) -> None:
        if not self._due:  # nobody asked: a server that says why it hangs up
            return
        due = self._due[0]
        if isinstance(reply, hiredis.ReplyError):
            refusal = refusal_of(str(reply))
            self._refused(refusal)
            due.replies.append(refusal)
        else:
            due.replies.append(cast("Reply", reply))
        if len(due.replies) == due.count:
            self._due.popleft()
            due.done(due.replies)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(AnswerLost(f"server: {type(exc).__name__ if exc else 'it closed the connection'}"))

    def fail(self, fault: Unavailable) -> None:
        """Wait for nothing more. What was written may have been carried out."""
        if self.fault is not None:
            return
        self.fault = fault
        # At once, not in the next turn of the event loop: a read that blocks there would be given what comes meanwhile.
        with suppress(OSError):
            self.transport.get_extra_info("socket").shutdown(SHUT_RDWR)
        self.transport.abort()  # not `close`, which waits until a dead connection has taken all that was written
        if self._timer is not None:
            self._timer.cancel()
        gone, self._due = self._due, deque()
        for due in gone:
            due.done(fault)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """See whether anything has moved. One timer serves many requests: most are answered long before it is due."""
        self._timer = None
        if not self._due:
            return
        unsent, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if self._unsent < unsent:
            self._moved_at = self._loop.time()
        seconds = self._due[0].seconds
        if self._moved_at + seconds > self._loop.time():
            self._arm(self._moved_at + seconds)
        else:
            self.fail(Unavailable(f"server: no answer within {seconds:g} s"))
