"""The session files of pi: their lines, and the messages in them."""

from lanebus.handlers.transcripts.pi.format import PI, pi

__all__ = ("PI", "pi")
