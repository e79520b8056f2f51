"""Session files of Claude Code: join the lines of each message, and read the messages."""

from lanebus.handlers.transcripts.claude_code.format import CLAUDE_CODE

__all__ = ("CLAUDE_CODE",)
