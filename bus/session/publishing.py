"""Methods of `Session` that write: publish messages, close and reopen the session, and preview open messages."""

from collections.abc import Sequence
from contextlib import suppress

from lanebus.bus.errors import (
    BusError,
    Conflict,
    DecodeError,
    HeadMissing,
    LogRolledBack,
    require_epoch,
    require_flag,
    require_seconds,
    require_text,
)
from lanebus.bus.log.lineage import common_position
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.message import Delta
from lanebus.bus.publishing.encoding import UNCONDITIONAL, AppendConditions
from lanebus.bus.session.resources import HasResources, SessionResources
from lanebus.bus.wire.envelope import CLOSED, REFUSALS, REOPENED, Expected, Outcome, Receipt, check_key, cursor_of
from lanebus.bus.wire.keys import check_agent

PUBLISH_SECONDS = 10.0
"""The default time limit of a publish, in seconds."""


async def publish(
    self: HasResources,
    *messages: Publishable,
    key: str | None = None,
    expected: Expected | None = None,
    epoch: int | None = None,
    wake: bool | None = None,
    agent: str | None = None,
    imported: bool = False,
    seconds: float = PUBLISH_SECONDS,
) -> Receipt:
    """Append messages and wait for the server's acknowledgement.

    Either all messages are appended in one step, or none. They are appended in the order of the arguments, at
    consecutive positions. Each message goes to the lane of its type. Publishes of one process to one session are
    appended in the order of the calls.

    The embedded server acknowledges once the messages are on disk. Your own server acknowledges according to its
    `appendfsync` setting.

    A publish without an answer is sent again under the same number, so the messages are never appended twice.

    If the call is cancelled before the publish was sent, nothing is appended. If the publish was sent, the messages
    may be in the log.

    Inline media of 50,000 bytes and more (`inline_limit_bytes` of `Bus.open`) go to the media store first. If the
    publish fails, the media stay in the store, which is harmless.

    Args:
        *messages: one or more messages, for either lane.
        key: your own name for this publish, at most 1,024 bytes in UTF-8. It may not begin with `lanebus:`. A repeat
            with the same key appends nothing, as long as the session exists. Keys are compared, and not messages: give
            each publish, close and handover of the session a key of its own. None means that a repeat appends the
            messages again.
        expected: append only if the session still ends where the caller saw its end: a cursor, its text, or the
            receipt of the last publish; `START` for an empty session. A plain position is safe only while the log keeps
            its incarnation: after a rollback, other entries may have the same positions. None means any end.
        epoch: append only while the lease with this epoch is the newest. None means no lease is needed.
        wake: whether to wake the workers. None wakes them if one of the messages is from a user or is a command.
        agent: append only if the session belongs to this agent. A first publish gives the session to this agent. None
            means any agent; a first publish then uses the agent that was passed to `Bus.session`.
        imported: mark the entries as imported, see `Envelope.is_imported`. Only code that imports a transcript passes
            True: no worker answers an imported message, obeys an imported command or runs an imported tool call. With
            True, None as `wake` wakes no worker.
        seconds: time limit in seconds for the whole call, including retries and the wait for room in the queue.

    Returns:
        One position per message. For a repeated `key`, the positions of the first publish.

    Raises:
        NotAMessage: an argument is not a message but, for example, a dict or a string. Nothing was appended.
        DecodeError: there are no messages.
        MessageTooLarge: a message is too large. Nothing was appended.
        RedactionFailed: the `redact` function of the bus failed. Nothing was appended.
        KeyTooLong: the key is too long. Nothing was appended.
        KeyReserved: the key begins with `lanebus:`. Nothing was appended.
        MediaDamaged: media do not have the SHA-256 that their message gives. Nothing was appended.
        MediaTooLarge: media of a message are over the store's limit. Nothing was appended.
        OverLimit: the session or the namespace is full. Nothing was appended.
        Conflict: the session does not end at the position of `expected`. If it has grown past it, the log may have lost
            the entry of `expected` too. Nothing was appended.
        HeadMissing: the session has entries, but another client of the server deleted its head. Nothing was appended.
        Fenced: the lease of `epoch` is lost. Nothing was appended.
        WrongAgent: the session belongs to another agent than `agent`. Nothing was appended.
        InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`. Nothing was appended.
        SessionClosed: the session is closed. Nothing was appended.
        SessionErased: the session was erased. Nothing was appended.
        LogRolledBack: the log lost entries at its end, perhaps also acknowledged entries, or it ends before the entry
            of `expected` or with another entry at its position. Nothing was appended.
        OutcomeUnknown: the publish was sent, but not acknowledged in time. A repeat with the same `key` is safe.
        Unavailable: the publish was not sent in time, or the server refused it for all of `seconds`. Nothing was
            appended.
        Closed: the bus is closed.
    """
    if not messages:
        raise DecodeError("", "no messages to publish: pass at least one")
    conditions = UNCONDITIONAL
    if imported is not False:
        require_flag("imported", imported)
        wake = False if wake is None else wake
    if key is not None or expected is not None or epoch is not None or wake is not None or agent is not None:
        named = None if agent is None else check_agent(agent)
        end = cursor_of(expected)
        conditions = checked(AppendConditions(key, end, epoch, wake, agent=named, is_imported=imported))
    if seconds is not PUBLISH_SECONDS:  # hot path: the default needs no check
        require_seconds("seconds", seconds)
    return await append(self, messages, conditions, seconds)


async def append(
    self: HasResources,
    messages: Sequence[Publishable],
    conditions: AppendConditions,
    seconds: float = PUBLISH_SECONDS,
) -> Receipt:
    """Append messages under conditions. Only modules of this package call this. Returns and raises the same as
    `publish`."""
    resources = self.resources
    if resources.redaction.is_active:  # before tracing and before media are stored
        messages = [resources.redaction.message(message) for message in messages]
    try:
        return await resources.publisher.publish(resources.id, messages, conditions, seconds, resources.agent)
    except Conflict as conflict:
        if not conflict.found:
            await _require_head(resources)
        raise
    except LogRolledBack as error:
        if conditions.expected is None or not error.of_expected:
            raise
        if not error.found:
            await _require_head(resources)
        found = error.found
        with suppress(BusError):  # only says more about the refusal
            head = await resources.log.head(resources.id)
            found = await common_position(resources.log, head, conditions.expected, resources.archive)
        raise LogRolledBack(resources.id, error.seen, min(found, error.seen - 1), of_expected=True) from None


async def _require_head(resources: SessionResources) -> None:
    """Raise HeadMissing if the session looks empty because its head is gone."""
    try:
        await resources.log.head(resources.id)
    except HeadMissing:
        raise
    except BusError:
        pass  # the refusal says enough


async def try_publish(
    self: HasResources,
    *messages: Publishable,
    key: str | None = None,
    expected: Expected | None = None,
    epoch: int | None = None,
    wake: bool | None = None,
    agent: str | None = None,
    seconds: float = PUBLISH_SECONDS,
) -> Outcome:
    """Publish like `publish`, but if the log refuses the messages, return the error instead of raising it.

    The arguments are the same as for `publish`.

    Returns:
        The receipt, or the error. `Outcome` lists the types of errors that are returned.

    Raises:
        MessageError: as for `publish`. `MessageTooLarge` is returned.
        OutcomeUnknown: as for `publish`.
        Unavailable: as for `publish`.
        Closed: as for `publish`.
    """
    try:
        return await publish(
            self, *messages, key=key, expected=expected, epoch=epoch, wake=wake, agent=agent, seconds=seconds
        )
    except REFUSALS as refusal:
        return refusal


async def close(
    self: HasResources,
    *messages: Publishable,
    reason: str = "",
    key: str | None = None,
    expected: Expected | None = None,
    epoch: int | None = None,
    agent: str | None = None,
) -> Receipt:
    """Append the session's last messages and close the session, in one step. Later publishes are refused.

    An extension message `session.closed` with the data `{"reason": reason}` is appended after the last message, so
    every reader sees the end. `reopen` opens the session again.

    Args:
        *messages: the last messages; may be empty.
        reason: why the session is closed, in words for people.
        key: as for `publish`.
        expected: as for `publish`.
        epoch: as for `publish`.
        agent: close only if the session belongs to this agent. None means any agent.

    Returns:
        The positions of the messages and of `session.closed`.

    Raises:
        SessionClosed: the session was closed before. Nothing was appended.
        BusError: the other errors of `publish`. The session stays open, except perhaps after `OutcomeUnknown`.
    """
    require_text("reason", reason)
    note = ExtensionMessage.of(CLOSED, {"reason": reason})
    named = None if agent is None else check_agent(agent)
    conditions = checked(AppendConditions(key, cursor_of(expected), epoch, agent=named, state="closed"))
    return await append(self, (*messages, note), conditions)


async def reopen(
    self: HasResources,
    *messages: Publishable,
    reason: str = "",
    key: str | None = None,
    agent: str | None = None,
) -> Receipt:
    """Reopen the session and append its first messages, in one step.

    An extension message `session.reopened` with the data `{"reason": reason}` is appended before the messages. All are
    also appended if the session is already open.

    Args:
        *messages: the first messages; may be empty.
        reason: why the session is reopened, in words for people.
        key: as for `publish`.
        agent: reopen only if the session belongs to this agent. None means any agent.

    Returns:
        The positions of `session.reopened` and of the messages.

    Raises:
        BusError: the errors of `publish`. The session stays closed, except perhaps after `OutcomeUnknown`.
    """
    require_text("reason", reason)
    note = ExtensionMessage.of(REOPENED, {"reason": reason})
    # Wake the workers: the close may have interrupted an answer, and no worker has continued it since.
    named = None if agent is None else check_agent(agent)
    conditions = checked(AppendConditions(key, wake=True, agent=named, state="open"))
    return await append(self, (note, *messages), conditions)


async def preview(
    self: HasResources, *deltas: Delta, epoch: int | None = None, seconds: float = PUBLISH_SECONDS
) -> None:
    """Show live deltas of an unfinished message to followers with `live=True`. Deltas are in no lane.

    Deltas of one process are shown in the order of the calls. A session keeps at most 8 MiB of deltas as JSON
    (`LogBounds.live_bytes`), until one hour after its last delta (`LogBounds.live_seconds`). If space is needed, deltas
    of ended messages are removed. Deltas of unfinished messages are kept.

    If the call is cancelled, the deltas may have been shown.

    Args:
        *deltas: the next pieces of one or more messages. A delta of kind `cut` ends the message.
        epoch: show the deltas only while the lease with this epoch is the newest. None means no lease is needed.
        seconds: time limit in seconds for the whole call, including retries.

    Raises:
        DecodeError: a delta is a snapshot. Nothing was shown.
        MessageTooLarge: a delta is too large. Nothing was shown.
        RedactionFailed: the `redact` function of the bus failed. Nothing was shown.
        Fenced: the lease of `epoch` is lost. Nothing was shown.
        SessionErased: the session was erased. Nothing was shown.
        SessionClosed: the session is closed. Nothing was shown. Cuts are still accepted.
        PreviewFull: unfinished messages use all the space. Nothing was shown. Cuts are still accepted.
        LogRolledBack: the server lost the previous preview. Nothing was shown. Stop previewing this message.
        Unavailable: no answer in time. The deltas may have been shown. Stop previewing this message: a later delta
            could leave a gap in the message's text.
    """
    require_epoch(epoch)
    require_seconds("seconds", seconds)
    redacted = [self.resources.redaction.message(delta) for delta in deltas]
    await self.resources.preview_writer.preview(self.resources.id, redacted, epoch=epoch, seconds=seconds)


def checked(conditions: AppendConditions) -> AppendConditions:
    """Return the conditions after checking their types. Raise InvalidArgument if a type is wrong."""
    require_text("key", conditions.key, is_optional=True, is_filled=True)
    check_key(conditions.key)
    require_epoch(conditions.epoch)
    require_flag("wake", conditions.wake, is_optional=True)
    return conditions
