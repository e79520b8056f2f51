"""Reasoning items of the Responses API as thinking, and back without loss.

An item has an id, which the API requires when it is sent back, readable summaries, and encrypted content that only
OpenAI reads. It becomes one of two blocks:

- A `ThinkingBlock` if there is something to read. `text` is the summaries with blank lines between them, or the
  reasoning itself, which open models return. `details` is the summaries one by one, `signature` the rest of the item.
- A `RedactedThinkingBlock` if there is nothing to read. `data` is the rest of the item.

The rest is JSON text of an object with the id, encrypted_content and everything else but the type and the summaries.
Encrypted content alone does not suffice: the item cannot be sent back without its id. An id alone is valid only while
the provider stores the answer. A signature in another form was made by another API and is not sent.
"""

import json

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import RedactedThinkingBlock, ThinkingBlock
from lanebus.bus.messages.json_reader import parse_json
from lanebus.handlers.json_fields import as_object
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.openai.shared.fields import list_at, text_at

__all__ = ("reasoning_item", "thinking_block")

_APART = ("type", "summary")
_STATUS = (None, "in_progress", "completed", "incomplete")


def thinking_block(item: Json, path: str) -> ThinkingBlock | RedactedThinkingBlock:
    """Return the thinking of a reasoning item.

    Raises:
        DecodeError: it is not a reasoning item.
    """
    summaries = _texts(item, "summary", path)
    texts = summaries or _texts(item, "content", path)
    text_at(item, "id", path, required=True)
    text_at(item, "encrypted_content", path)
    rest = {name: value for name, value in item.items() if name not in _APART and value is not None}
    signature = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
    if not texts:
        return RedactedThinkingBlock(data=signature)
    return ThinkingBlock(text="\n\n".join(texts), details=tuple(summaries) or None, signature=signature)


def reasoning_item(block: ThinkingBlock | RedactedThinkingBlock) -> Json | None:
    """Return the reasoning item that the thinking came from; None if it did not come from one."""
    signature = block.signature if isinstance(block, ThinkingBlock) else block.data
    try:
        rest = as_object(parse_json(signature or ""), "")
        # Source: pi stores the whole item as the signature, with its summaries.
        kept = _texts(rest, "summary", "")
        thinking_block(rest, "")
    except DecodeError:
        return None
    if rest.get("status") not in _STATUS:
        return None
    details = block.details if isinstance(block, ThinkingBlock) else None
    summary: list[JsonValue] = [{"type": "summary_text", "text": text} for text in details or kept]
    return {
        "type": "reasoning",
        **{name: value for name, value in rest.items() if name not in _APART and value is not None},
        "summary": summary,
    }


def _texts(item: Json, name: str, path: str) -> list[str]:
    place = f"{path}.{name}"
    parts = enumerate(list_at(item, name, path))
    return [text_at(as_object(part, f"{place}.{at}"), "text", f"{place}.{at}", required=True) for at, part in parts]
