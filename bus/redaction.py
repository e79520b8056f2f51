"""The hook that changes messages before they are published, previewed or recorded: `Bus.open(redact=…)`."""

import inspect
from collections.abc import Callable
from traceback import extract_tb
from typing import TypeVar, cast

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import InvalidArgument, RedactionFailed
from lanebus.bus.messages.context_entry import ContextEntry
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage

__all__ = ("ERROR_TEXT", "NO_REDACTION", "Redact", "Redactable", "Redaction")

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
