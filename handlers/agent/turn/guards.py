"""Guards: what looks at the words of users before a model is shown them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from lanebus.bus.messages.message import UserMessage

__all__ = ("Guard", "GuardVerdict", "Reject", "Warn", "ask_guards")


class Reject(NamedTuple):
    """The words are not for the model: they are taken out of its context, and the loop ends."""

    reason: str


class Warn(NamedTuple):
    """The model is told so, right behind the words."""

    text: str


Guard = Callable[[Sequence[UserMessage]], Awaitable[Reject | Warn | None]]
"""Looks at what users said since a model was last asked. After a crash it may be asked the same again."""


class GuardVerdict(NamedTuple):
    """What the guards say together."""

    rejection: str | None
    warnings: tuple[str, ...]


async def ask_guards(guards: Sequence[Guard], prompts: Sequence[UserMessage]) -> GuardVerdict:
    """Ask one after the other, and none any more once one rejects.

    Raises:
        Exception: whatever a guard raises.
    """
    warnings: list[str] = []
    for guard in guards if prompts else ():
        match await guard(prompts):
            case Reject(reason=reason):
                return GuardVerdict(reason, ())
            case Warn(text=text):
                warnings.append(text)
            case None:
                pass
    return GuardVerdict(None, tuple(warnings))
