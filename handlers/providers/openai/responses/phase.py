"""The phase of a message item, which the model that wrote it wants to see again: commentary or the final answer.

It is kept as the signature of the message's texts: the text of a JSON object with the key `phase`.
"""

import json

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import TextBlock
from lanebus.bus.messages.json_reader import parse_json
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.openai.shared.fields import text_at

__all__ = ("phase_of", "phase_signature")

_PHASES = frozenset({"commentary", "final_answer"})
"""The API takes no other. Source: `ResponseOutputMessageParam` of its Python SDK (3.52)."""


def phase_signature(item: Json, path: str) -> str | None:
    """The signature of the texts of a message item; None where it tells no phase.

    Raises:
        DecodeError: its phase is no text.
    """
    phase = text_at(item, "phase", path)
    return json.dumps({"phase": phase}) if phase else None


def phase_of(block: TextBlock) -> str | None:
    """The phase that the text was said in; None where none was told, or none that the API takes."""
    try:
        kept = parse_json(block.signature or "")
    except DecodeError:
        return None
    phase = kept.get("phase") if isinstance(kept, dict) else None
    return phase if isinstance(phase, str) and phase in _PHASES else None
