"""A publisher that records each publish. A bus without tracing uses none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from lanebus.bus.messages.json_reader import Publishable
    from lanebus.bus.publishing.encoded_publish import AppendConditions
    from lanebus.bus.tracing import Tracing
    from lanebus.bus.wire.receipt import Receipt

__all__ = ("SessionPublisher", "TracedPublisher")


class SessionPublisher(Protocol):
    """Appends to sessions; see `Publisher.publish`."""

    def publish(
        self, session: str, messages: Sequence[Publishable], conditions: AppendConditions, seconds: float, agent: str
    ) -> Awaitable[Receipt]:
        """Append messages in one step and wait for their positions."""
        ...


class TracedPublisher:
    """Adds the trace context to messages and passes the messages on to a publisher."""

    def __init__(self, publisher: SessionPublisher, tracing: Tracing) -> None:
        self._publisher, self._tracing = publisher, tracing

    def publish(
        self, session: str, messages: Sequence[Publishable], conditions: AppendConditions, seconds: float, agent: str
    ) -> Awaitable[Receipt]:
        """See `Publisher.publish`."""
        # Hot path: a coroutine of its own would take longer than all of this.
        publish = self._publish if self._tracing.is_recording() else self._publisher.publish
        return publish(session, messages, conditions, seconds, agent)

    async def _publish(
        self, session: str, messages: Sequence[Publishable], conditions: AppendConditions, seconds: float, agent: str
    ) -> Receipt:
        # No await precedes the publisher's, so publishes keep the order of the calls.
        with self._tracing.sending(session, messages) as sending:
            receipt = await self._publisher.publish(session, sending.messages, conditions, seconds, agent)
            sending.sent(receipt)
            return receipt
