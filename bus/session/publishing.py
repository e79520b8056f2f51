"""What `Session` publishes: messages, the end and a new beginning, and live deltas. Each function is a method of it."""

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.publishing.encoded_publish import UNCONDITIONAL, AppendConditions
from lanebus.bus.session.resources import HasResources
from lanebus.bus.wire.notice import CLOSED, REOPENED
from lanebus.bus.wire.receipt import REFUSALS, Outcome, Receipt

__all__ = ("close", "preview", "publish", "reopen", "try_publish")

PUBLISH_SECONDS = 10.0
"""How long a publish waits for the server by default."""


async def publish(
    self: HasResources,
    *messages: Publishable,
    key: str | None = None,
    expected: int | None = None,
    epoch: int | None = None,
    wake: bool | None = None,
    seconds: float = PUBLISH_SECONDS,
) -> Receipt:
    """Append messages to both lanes in one step, all or none, and wait until the server has them on disk.

    Inline media of 50,000 bytes and more, unless `Bus.open` sets another limit, go into the media store first. If
    the publish is then refused they stay there, which harms nothing.

    Args:
        key: your own name for this publish, remembered for the life of the session: a repeat adds nothing.
        expected: the session's last position; if it has moved on, nothing is added.
        epoch: of the lease this publish belongs to; once the lease is lost, nothing is added.
        wake: wake the workers. None wakes them if a message is a user's or a command.
        seconds: how long to wait for a server that does not answer.

    Returns:
        The positions, one a message; those of the first publish with this key if it is a repeat.

    Raises:
        MessageTooLarge, OverLimit, Conflict, Fenced, SessionClosed, SessionErased: refused; nothing was added.
        MediaDamaged, MediaTooLarge: the same, for the media of a message.
        LogRolledBack: the server lost its log's end; what was acknowledged before may be gone.
        OutcomeUnknown: no answer in time; it may be in the log. With the same `key` it is safe to repeat.
        Unavailable: the server could not be reached, or refused all that time; nothing was added.
    """
    if not messages:
        raise DecodeError("", "a publish needs a message")
    conditions = UNCONDITIONAL
    if key is not None or expected is not None or epoch is not None or wake is not None:
        conditions = AppendConditions(key, expected, epoch, wake)
    return await self.resources.publisher.publish(self.resources.id, messages, conditions, seconds)


async def try_publish(
    self: HasResources,
    *messages: Publishable,
    key: str | None = None,
    expected: int | None = None,
    epoch: int | None = None,
    wake: bool | None = None,
    seconds: float = PUBLISH_SECONDS,
) -> Outcome:
    """Publish, and return a refusal of the log as a value to match on. Other errors are raised as by `publish`."""
    try:
        return await publish(self, *messages, key=key, expected=expected, epoch=epoch, wake=wake, seconds=seconds)
    except REFUSALS as refusal:
        return refusal


async def close(
    self: HasResources,
    *messages: Publishable,
    reason: str = "",
    key: str | None = None,
    expected: int | None = None,
    epoch: int | None = None,
) -> Receipt:
    """Accept no further messages, in one step with the last ones and an extension `session.closed` {reason} after
    them. Readers find both, however late they come. Errors leave the session open.

    Raises:
        SessionClosed: it was closed before, and nothing was added.
        Others: as `publish` does.
    """
    note = ExtensionMessage.of(CLOSED, {"reason": reason})
    conditions = AppendConditions(key, expected, epoch, state="closed")
    return await self.resources.publisher.publish(self.resources.id, (*messages, note), conditions, PUBLISH_SECONDS)


async def reopen(self: HasResources, *messages: Publishable, reason: str = "", key: str | None = None) -> Receipt:
    """Accept messages again, with an extension `session.reopened` {reason} before the first ones. An open session
    gets them too, and stays open. Raises what `publish` does, and the session stays closed."""
    note = ExtensionMessage.of(REOPENED, {"reason": reason})
    # It wakes the workers: the close may have cut off an answer, which no worker has continued since.
    conditions = AppendConditions(key, wake=True, state="open")
    return await self.resources.publisher.publish(self.resources.id, (note, *messages), conditions, PUBLISH_SECONDS)


async def preview(
    self: HasResources, *deltas: Delta, epoch: int | None = None, seconds: float = PUBLISH_SECONDS
) -> None:
    """Show pieces of a message that is still being spoken to live followers. They are in no lane.

    Calls of one process are shown in order. A session keeps at most 8 MiB of pieces, as JSON, for an hour after the
    last one. Pieces of ended messages go first; those of an open message stay for that hour.

    Args:
        epoch: of the lease the message is spoken under; once the lease is lost, nothing is shown.
        seconds: how long to retry if the server does not answer.

    Raises:
        DecodeError, MessageTooLarge: a delta cannot be shown; nothing was.
        Fenced, SessionErased, SessionClosed, PreviewFull: refused; nothing was shown. The last two refuse no cut.
        LogRolledBack: the server lost the previous preview; nothing was shown. Stop previewing this message.
        Unavailable: no answer in time; it may have been shown. Stop previewing this message, or it gets a gap.
    """
    await self.resources.preview_writer.preview(self.resources.id, deltas, epoch=epoch, seconds=seconds)
