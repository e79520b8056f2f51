"""Export files of lanebus: write and read the lines, map old positions to new positions, and put media inline."""

from lanebus.handlers.transcripts.lanebus_export.format import OWN, entry_line, header_line

__all__ = ("OWN", "entry_line", "header_line")
