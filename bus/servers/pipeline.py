"""Send requests on a connection and match the replies, which arrive in the order of the requests.

Replies are handled in a callback, which saves a task switch for each reply. Every request has a time limit, which
callers cannot omit: if no byte moves for the `seconds` of the oldest request, the connection is broken.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from socket import SHUT_RDWR, socket
from typing import cast

import hiredis

from lanebus.bus.errors import AnswerLost, Refused, Unavailable
from lanebus.bus.servers.replies import Reply, refusal_of

__all__ = ("Done", "Pipeline", "Request")

Done = Callable[[list[Reply | Refused] | Unavailable], None]
"""A function that is called with one reply for each command, or with the error if the replies did not arrive."""


@dataclass(slots=True, eq=False)
class Request:
    """Commands that were sent together, and the replies so far."""

    count: int
    """number of commands, each of which gets one reply"""
    done: Done
    seconds: float
    """time without a byte in either direction after which the connection is broken"""
    replies: list[Reply | Refused]


class Pipeline(asyncio.Protocol):
    """Writes requests to a transport, and passes the replies to each request to its `Request.done`."""

    def __init__(self, transport: asyncio.Transport, refused: Callable[[Refused], None]) -> None:
        """
        Args:
            transport: the connected transport, which this object takes over.
            refused: called with each error reply, before `Request.done` of the request.
        """
        self.transport, self._refused = transport, refused
        transport.set_protocol(self)
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._requests: deque[Request] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_byte_at = 0.0
        self._unsent = 0
        self.fault: Unavailable | None = None
        """the error that broke the connection; None while the connection works"""

    def submit(self, data: Sequence[bytes], request: Request) -> None:
        """Write a request.

        Raises:
            Unavailable: the connection broke before any byte of the request was sent.
        """
        was_empty = not self.transport.get_write_buffer_size()
        if not self._requests:
            self._last_byte_at = self._loop.time()
        self.transport.writelines(data)
        if self.transport.is_closing():  # the connection broke during this write
            fault = Unavailable("server: the connection broke")
            if not was_empty:
                self._requests.append(request)
            self.fail(fault)
            if was_empty:
                raise fault
            return
        self._requests.append(request)
        when = self._last_byte_at + self._requests[0].seconds
        if self._timer is None or self._timer.when() > when:
            self._set_timer(when)

    def data_received(self, data: bytes) -> None:
        self._last_byte_at = self._loop.time()
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                self._take(reply)
        except hiredis.HiredisError:
            self.fail(Unavailable("server: the reply is not RESP", "check that the URL names a Redis or Valkey server"))

    def _take(self, reply: object) -> None:
        if not self._requests:  # a reply without a request: the server says why it closes the connection
            return
        request = self._requests[0]
        if isinstance(reply, hiredis.ReplyError):
            refusal = refusal_of(str(reply))
            self._refused(refusal)
            request.replies.append(refusal)
        else:
            request.replies.append(cast("Reply", reply))
        if len(request.replies) == request.count:
            self._requests.popleft()
            request.done(request.replies)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(AnswerLost(f"server: {type(exc).__name__ if exc else 'it closed the connection'}"))

    def fail(self, fault: Unavailable) -> None:
        """Break the connection and fail all requests. The server may still execute commands that were written."""
        if self.fault is not None:
            return
        self.fault = fault
        # Shut down now, not in the next turn of the event loop: a blocking read on the server could still take entries.
        # A copy is shut down, because uvloop's transports do not lend their sockets.
        with suppress(OSError), socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno())) as copy:
            copy.shutdown(SHUT_RDWR)
        self.transport.abort()  # not `close`, which would wait until the dead connection has accepted all bytes
        if self._timer is not None:
            self._timer.cancel()
        requests, self._requests = self._requests, deque()
        for request in requests:
            request.done(fault)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        """Break the connection if no byte has moved for too long.

        One timer serves all requests, because most requests are answered long before it fires.
        """
        self._timer = None
        if not self._requests:
            return
        unsent, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if self._unsent < unsent:
            self._last_byte_at = self._loop.time()
        seconds = self._requests[0].seconds
        if self._last_byte_at + seconds > self._loop.time():
            self._set_timer(self._last_byte_at + seconds)
        else:
            self.fail(Unavailable(f"server: no answer within {seconds:g} s"))
