"""Seed 001: the JSON of its messages, exactly, and its events as a view of the log."""

from handlers.codecs.c001.codec import C001, C001_CAMEL
from handlers.codecs.c001.event_reading import EventReader
from handlers.codecs.c001.event_writing import EventWriter
from handlers.codecs.c001.seen import Seen

__all__ = ("C001", "C001_CAMEL", "EventReader", "EventWriter", "Seen")
