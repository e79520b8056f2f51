"""Read session files of Claude Code: join the lines of each message, and convert the messages."""

from lanebus.handlers.transcripts.claude_code.format import CLAUDE_CODE

__all__ = ("CLAUDE_CODE",)
