"""Guards check user messages before the model reads them."""

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import NamedTuple

from lanebus.bus.errors import InvalidArgument
from lanebus.bus.messages.message import UserMessage

__all__ = ("Guard", "GuardVerdict", "Reject", "Warn", "ask_guards")


class Reject(NamedTuple):
    """Result of a guard: remove the messages from the context, and end the loop for this reason."""

    reason: str


class Warn(NamedTuple):
    """Result of a guard: accept the messages, and append this text after them as a note to the model."""

    text: str


Guard = Callable[[Sequence[UserMessage]], Awaitable[Reject | Warn | None]]
"""An async function that checks the user messages that no model has read yet. The guard returns None to accept the
messages. After a crash the guard may be called with the same messages again."""


class GuardVerdict(NamedTuple):
    """The combined verdict of all guards."""

    rejection: str | None
    """reason of the first rejection"""
    warnings: tuple[str, ...]


async def ask_guards(guards: Sequence[Guard], prompts: Sequence[UserMessage]) -> GuardVerdict:
    """Call the guards in order, up to the first one that rejects.

    Raises:
        InvalidArgument: a guard is not async, or returned something else than a verdict.
        Exception: any error that a guard raises.
    """
    warnings: list[str] = []
    for guard in guards if prompts else ():
        answer: object = guard(prompts)
        if not isawaitable(answer):
            raise InvalidArgument("guards", guard, "make the guard an `async def`")
        verdict: object = await answer
        match verdict:
            case Reject(reason=str() as reason):
                return GuardVerdict(reason, ())
            case Warn(text=str() as text):
                warnings.append(text)
            case None:
                pass
            case _:  # not taken for None: the guard may have meant to reject
                name = f"{getattr(guard, '__name__', type(guard).__name__)}(…)"
                raise InvalidArgument(name, verdict, "a guard returns Reject(reason), Warn(text) or None")
    return GuardVerdict(None, tuple(warnings))
