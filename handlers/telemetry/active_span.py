"""A span for the length of a `with` block."""

from asyncio import CancelledError
from contextvars import Token
from types import TracebackType
from typing import Generic, TypeVar

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from lanebus.handlers.telemetry.names import CANCELLED, ERROR_TYPE

__all__ = ("ActiveSpan", "note_error")

V = TypeVar("V")


class ActiveSpan(Generic[V]):
    """Makes a span the current span during the block, and ends the span after the block.

    Only the type of an error that leaves the block is recorded, because the error's text may quote a message. A
    cancellation does not count as an error.
    """

    __slots__ = ("_context", "_span", "_token", "_value")

    def __init__(self, span: Span, value: V, context: Context | None = None) -> None:
        """
        Args:
            span: a span that has begun.
            value: the value that the `with` statement gets.
            context: values that the block sees beside the span; None means the values of the current context.
        """
        self._span, self._value, self._context = span, value, context
        self._token: Token[Context] | None = None

    def __enter__(self) -> V:
        self._token = attach(set_span_in_context(self._span, self._context))
        return self._value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            detach(self._token)
        if isinstance(error, CancelledError):
            self._span.set_attribute(CANCELLED, True)
        elif isinstance(error, Exception):
            note_error(self._span, _type_of(error))
        self._span.end()


def note_error(span: Span, kind: str) -> None:
    """Record that an operation failed.

    Args:
        span: the operation's span.
        kind: value of `error.type`.
    """
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR))


def _type_of(error: Exception) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
