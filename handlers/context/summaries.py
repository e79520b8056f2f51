"""Convert summaries to the user messages that a model reads. They exist only in a context and are never published."""

from lanebus.bus.messages.content import TextBlock
from lanebus.bus.messages.context_entry import BranchSummary, Compaction, Prune
from lanebus.bus.messages.message import UserMessage

__all__ = ("EXPLORED", "branch_message", "compaction_message", "prune_message")

_COMPACTION = "The conversation history before this point was compacted into the following summary:\n\n<summary>\n"
_BRANCH = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n"

EXPLORED = "The user explored a different conversation branch before returning here.\nSummary of that exploration:\n\n"
"""Start of a branch summary that a model was asked to write. Source: pi."""


def compaction_message(compaction: Compaction) -> UserMessage | None:
    """Return the message that the model reads in place of compacted entries; None if the summary is blank.

    Source: the text is pi's.
    """
    if not compaction.summary.strip():
        return None
    return _user(f"{_COMPACTION}{compaction.summary}\n</summary>", compaction.timestamp)


def branch_message(summary: BranchSummary) -> UserMessage | None:
    """Return the message that the model reads about a branch that the session left; None if the summary is blank.

    Source: the text is pi's. Unlike the text for compactions, it has no newline before the closing tag.
    """
    return _user(f"{_BRANCH}{summary.summary}</summary>", summary.timestamp) if summary.summary.strip() else None


def prune_message(prune: Prune) -> UserMessage | None:
    """Return the message that the model reads in place of pruned entries; None if the prune has no memo."""
    if prune.memo is None or not prune.memo.strip():
        return None
    return _user(f"[Pruned context summary: {prune.memo}]", prune.timestamp)


def _user(text: str, timestamp: int | None) -> UserMessage:
    return UserMessage(content=(TextBlock(text=text),), timestamp=timestamp)
