"""Handle thinking that an API does not accept back: it is sent as text, or left out."""

from collections.abc import Sequence

from lanebus.bus.messages.content import RedactedThinkingBlock, ThinkingBlock
from lanebus.handlers.providers.common.target import Target

__all__ = ("as_text", "thinking_left_out")


def as_text(block: ThinkingBlock | RedactedThinkingBlock, target: Target) -> str | None:
    """Return the thinking as text with a prefix; None means that the thinking is left out.

    Thinking becomes text only if `foreign_thinking` is "text". Redacted and empty thinking never becomes text.

    Source: the prefix is from the `two-lane-agent` system.
    """
    if isinstance(block, RedactedThinkingBlock) or target.foreign_thinking == "drop" or not block.text.strip():
        return None
    return f"[Reasoning] {block.text}"


def thinking_left_out(places: Sequence[str]) -> tuple[str, ...]:
    """Return one warning for all thinking that was left out; nothing if `places` is empty.

    There is no warning per message, because a long session has thinking in most answers. Strict mode does not refuse
    this loss, because `foreign_thinking` decides about it.

    Args:
        places: for each message whose thinking was left out, its place, such as "messages.3".
    """
    if not places:
        return ()
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return (f"{places[0]}{more}: thinking left out: it cannot go back as thinking, and is not told as text",)
