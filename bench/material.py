"""What is published: the messages of a real session where it lies beside the repository, else of a made one."""

from pathlib import Path

from bus import AssistantMessage, LlmMessage, TextBlock, ToolCallBlock, ToolResultMessage, Usage, UserMessage
from handlers.transcripts.pi import PiReader

__all__ = ("messages",)

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "pi-session.jsonl"

_MADE_TURNS = 300


def messages() -> tuple[str, list[LlmMessage]]:
    """Where they are from, and the messages in their order."""
    return ("a real coding session", _real()) if REAL.exists() else ("a made session", _made())
