"""Store the phase of a message item: commentary or final answer. The model expects its phases back in later requests.

The phase is stored as the signature of the message's texts: JSON text of an object with the key `phase`.
"""

import json

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import TextBlock
from lanebus.bus.messages.json_parser import parse_json
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.openai.shared.fields import text_at

__all__ = ("phase_of", "phase_signature")

_PHASES = frozenset({"commentary", "final_answer"})
"""The phases that the API accepts. Source: `ResponseOutputMessageParam` of the API's Python SDK (3.52)."""


def phase_signature(item: Json, path: str) -> str | None:
    """Return the signature that stores a message item's phase, such as "commentary"; None if the item has no phase.

    Raises:
        DecodeError: the item's phase is not text.
    """
    phase = text_at(item, "phase", path)
    return json.dumps({"phase": phase}) if phase else None


def phase_of(block: TextBlock) -> str | None:
    """Return the phase that a text's signature stores, such as "commentary"; None if the API accepts no such phase."""
    try:
        kept = parse_json(block.signature or "")
    except DecodeError:
        return None
    phase = kept.get("phase") if isinstance(kept, dict) else None
    return phase if isinstance(phase, str) and phase in _PHASES else None
