"""The seam for traces: the bus names its operations here, and a tracing library records them.

The bus depends on no such library. `lanebus.telemetry` has an implementation for OpenTelemetry. By default nothing is
recorded, and a publish does not even call this module.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from lanebus.bus.messages.json_reader import Publishable
    from lanebus.bus.wire.receipt import Receipt

__all__ = ("NO_TRACING", "NoTracing", "Sending", "Settlement", "Tracing")

Settlement = Literal["ack", "nack", "dead_letter"]
"""How a consumer ends a work item."""


class Sending(Protocol):
    """A publish that is being recorded."""

    @property
    def messages(self) -> Sequence[Publishable]:
        """The messages to append, which carry the trace context in their private metadata."""
        ...

    def sent(self, receipt: Receipt) -> None:
        """Record the positions of the messages."""
        ...


class Tracing(Protocol):
    """Records the operations of a bus. One object may serve several buses and tasks.

    Each context manager is entered and left by one task. An error that leaves the block is recorded and raised.
    A trace context is text as in the header `traceparent` of W3C Trace Context; "" means that there is none.
    """

    def is_recording(self) -> bool:
        """Return whether `sending` records anything now. Called for each publish, so it must take less than 1 µs."""
        ...

    def sending(self, session: str, messages: Sequence[Publishable]) -> AbstractContextManager[Sending]:
        """Record a publish for the length of the block.

        Args:
            session: id of the session.
            messages: the messages, in order. A message that already carries a trace context keeps it.
        """
        ...

    def received(self, group: str, consumer: str, sessions: Sequence[str], began_ns: int) -> None:
        """Record a fetch that has just ended.

        Args:
            group: name of the consumer group.
            consumer: name of the consumer.
            sessions: ids of the sessions that were fetched.
            began_ns: when the fetch began, nanoseconds since 1970 UTC.
        """
        ...

    def processing(
        self, session: str, messages: Sequence[Publishable], *, group: str, attempt: int
    ) -> AbstractContextManager[str]:
        """Record the work on messages. The caller does the work in the returned block.

        Args:
            session: id of the session.
            messages: the messages. The work continues the trace of the first message, and is linked to the traces of
                all messages.
            group: name of the consumer group; "" means none.
            attempt: number of times that the work was delivered, including this delivery.

        Returns:
            A context manager. Its value is the trace context of the work, for `settling`.
        """
        ...

    def settling(
        self, settlement: Settlement, group: str, sessions: Sequence[str], traces: Mapping[str, str]
    ) -> AbstractContextManager[None]:
        """Return a context manager that records the ack, nack or dead-lettering that the caller does within it.

        Args:
            settlement: how the work items end.
            group: name of the consumer group.
            sessions: ids of the work items' sessions.
            traces: session id → the value of the session's `processing` block; need not have every session.
        """
        ...


class _NotRecorded:
    """A publish that is not recorded."""

    def __init__(self, messages: Sequence[Publishable]) -> None:
        self.messages = messages

    def sent(self, receipt: Receipt) -> None:
        del receipt


class NoTracing:
    """Records nothing: the default of `Bus.open`."""

    def is_recording(self) -> bool:
        """See `Tracing.is_recording`."""
        return False

    def sending(self, session: str, messages: Sequence[Publishable]) -> AbstractContextManager[Sending]:
        """See `Tracing.sending`."""
        del session
        return nullcontext(_NotRecorded(messages))

    def received(self, group: str, consumer: str, sessions: Sequence[str], began_ns: int) -> None:
        """See `Tracing.received`."""

    def processing(
        self, session: str, messages: Sequence[Publishable], *, group: str, attempt: int
    ) -> AbstractContextManager[str]:
        """See `Tracing.processing`."""
        del session, messages, group, attempt
        return nullcontext("")

    def settling(
        self, settlement: Settlement, group: str, sessions: Sequence[str], traces: Mapping[str, str]
    ) -> AbstractContextManager[None]:
        """See `Tracing.settling`."""
        del settlement, group, sessions, traces
        return nullcontext()


NO_TRACING: Tracing = NoTracing()
