"""Read session files of pi: the lines and their messages."""

from lanebus.handlers.transcripts.pi.format import PI, pi

__all__ = ("PI", "pi")
