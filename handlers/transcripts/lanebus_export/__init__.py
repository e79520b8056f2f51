"""Exports of this bus: their lines written and read, positions relocated, media taken along inline."""

from lanebus.handlers.transcripts.lanebus_export.format import OWN, entry_line, header_line

__all__ = ("OWN", "entry_line", "header_line")
