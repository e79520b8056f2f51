"""The session files of Claude Code: their lines are gathered to messages, and the messages read."""

from lanebus.handlers.transcripts.claude_code.format import CLAUDE_CODE

__all__ = ("CLAUDE_CODE",)
