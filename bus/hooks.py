"""The hooks of `Bus.open`: `redact=` changes messages before they are stored, `tracing=` records operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from traceback import extract_tb
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, cast

from lanebus.bus.errors import InvalidArgument, RedactionFailed
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.message import ContextEntry, Delta, LlmMessage
from lanebus.bus.text import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from lanebus.bus.wire.codec import Receipt


Redactable = Publishable | Delta
"""What a `Redact` function gets: a message of either lane, a context entry, or a live delta."""

Redact = Callable[[Redactable], Redactable]
"""A plain function that returns a message as it may be stored. `Bus.open` documents it."""

ERROR_TEXT = "error.text"
"""Kind of the extension message in which the function gets an error's text that is part of no message, for a dead
letter or a retry. Its data is `{"text": …}`. It is not published."""

_KEPT = ("id", "turn_id", "kind", "tool_call_id", "message_id", "block", "is_snapshot", "stop_reason", "is_error")
_ADVICE = "pass a plain function that takes a message and returns a message"
_WITHHELD = "the text is withheld, because the `redact` function failed"

M = TypeVar("M", bound=Redactable)


class Redaction:
    """Applies a `Redact` function. Without a function, messages stay as they are."""

    def __init__(self, function: Redact | None = None) -> None:
        """
        Args:
            function: the function; None changes nothing.

        Raises:
            InvalidArgument: `function` cannot be called, is async, or is a class.
        """
        if function is not None and not _is_plain(function):
            raise InvalidArgument("redact", function, _ADVICE)
        self._function = function

    @property
    def is_active(self) -> bool:
        """Whether there is a function."""
        return self._function is not None

    def message(self, message: M) -> M:
        """Return a message as it may be stored. What is no message is returned unchanged.

        Raises:
            RedactionFailed: the function raised an error, or returned something else than such a message.
        """
        given = cast("object", message)  # a caller may pass anything
        if self._function is None or not isinstance(given, LlmMessage | ContextEntry | ExtensionMessage | Delta):
            return message
        role = str(getattr(message, "role", ""))
        try:
            result: object = self._function(message)
        except Exception as error:  # noqa: BLE001  # whatever the function raises
            raise RedactionFailed(role, f"raised {type(error).__name__}{_place(error)}") from None
        if type(result) is not type(message):
            if inspect.iscoroutine(result):
                result.close()
            raise RedactionFailed(role, f"returned {type(result).__name__}, not {type(message).__name__}")
        for field in _KEPT:
            if getattr(message, field, None) != getattr(result, field, None):
                raise RedactionFailed(role, f"changed {field!r}")
        return result

    def error_text(self, text: str) -> str:
        """Return the text of an error as it may be stored: without credentials, and as the function returns it."""
        text = without_secrets(text)
        if self._function is None or not text:
            return text
        try:
            shown = self.message(ExtensionMessage.of(ERROR_TEXT, {"text": text})).data
        except RedactionFailed:
            return _WITHHELD
        found = shown.get("text") if isinstance(shown, dict) else None
        return found if isinstance(found, str) else _WITHHELD


NO_REDACTION = Redaction()
"""Changes no message."""


def _is_plain(function: object) -> bool:
    """Return whether an object can be called and is neither async nor a class."""
    if isinstance(function, type) or not callable(function):
        return False
    kinds = inspect.iscoroutinefunction, inspect.isasyncgenfunction
    return not any(is_async(each) for each in (function, type(function).__call__) for is_async in kinds)


def _place(error: Exception) -> str:
    """Return where an error was raised. Its text may quote the message, so it is left out."""
    frames = extract_tb(error.__traceback__)[1:]
    return f" at line {frames[-1].lineno} of {frames[-1].name}()" if frames else ""


# The seam for traces: the bus names its operations here, and a tracing library records them.
#
# The bus depends on no such library. `lanebus.telemetry` has an implementation for OpenTelemetry. By default nothing is
# recorded, and a publish calls nothing here.

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
