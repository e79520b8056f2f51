"""Whether an entry of the log may decide anything for a framework. Every reader of what frameworks store asks here."""

from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.wire.envelope import DecodeFailure, Envelope

__all__ = ("imported_message", "own_message")


def own_message(envelope: Envelope) -> Publishable | None:
    """Return the message of an entry that a process of this bus appended. None for an imported or unreadable entry.

    The author of an imported file is another party. What the file says was stored, approved or scheduled decides
    nothing here.
    """
    return None if envelope.is_imported else _message(envelope)


def imported_message(envelope: Envelope) -> Publishable | None:
    """Return the message of an imported entry, to be shown as data. None for other entries and for unreadable ones.

    Read it as plain JSON: no serializer of a framework, and no class that the entry names, may see it.
    """
    return _message(envelope) if envelope.is_imported else None


def _message(envelope: Envelope) -> Publishable | None:
    return None if isinstance(envelope.message, DecodeFailure | Delta) else envelope.message
