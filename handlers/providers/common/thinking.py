"""Thinking that cannot go back as what it is: told as text, or left out."""

from collections.abc import Sequence

from lanebus.bus.messages.content import RedactedThinkingBlock, ThinkingBlock
from lanebus.handlers.providers.common.target import Target

__all__ = ("as_text", "thinking_left_out")


def as_text(block: ThinkingBlock | RedactedThinkingBlock, target: Target) -> str | None:
    """The thinking as a text, if that is what the caller wants of it; None leaves it out. Redacted thinking is never
    a text.

    Source: seed 001, whose word it is.
    """
    if isinstance(block, RedactedThinkingBlock) or target.foreign_thinking == "drop" or not block.text.strip():
        return None
    return f"[Reasoning] {block.text}"


def thinking_left_out(places: Sequence[str]) -> tuple[str, ...]:
    """One warning for all thinking that was left out: in a long session there is some in every other message.

    Strict mode does not refuse it, as what becomes of it is what `foreign_thinking` says.
    """
    if not places:
        return ()
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return (f"{places[0]}{more}: thinking left out: it cannot go back as thinking, and is not told as text",)
