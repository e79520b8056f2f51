"""Export files of this bus: write and read their lines, map positions to new ones, and put media inline."""

from lanebus.handlers.transcripts.lanebus_export.format import OWN, entry_line, header_line

__all__ = ("OWN", "entry_line", "header_line")
