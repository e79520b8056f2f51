"""Bounds of a connection to an editor, with their defaults. Times are in seconds."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("DEFAULT_EDITOR_BOUNDS", "EditorBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorBounds:
    """Bounds of one connection."""

    line_bytes: int = 50 * 1_048_576
    """maximum number of bytes of one message of the editor; a longer one is answered with an error"""
    sessions: int = 100
    """maximum number of sessions that the editor has open. A further one is refused until one is closed"""
    cancel_seconds: float = 10.0
    """After a cancelled prompt, the longest wait until a worker has aborted the loop."""
    media_bytes: int = 16 * 1_048_576
    """maximum number of decoded bytes of stored media that are sent with one message or tool result"""
    page: int = 50
    """sessions of one page of `session/list`"""
    fault_characters: int = 2_000
    """maximum number of characters that are shown of the reason of a failure"""
    end_seconds: float = 5.0
    """longest wait, at the end, until what was sent has left the process"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_EDITOR_BOUNDS = EditorBounds()
