"""Read reasoning items of the Responses API as thinking, and write them back without loss.

A reasoning item has an id, readable summaries, and encrypted content that only OpenAI reads. The item becomes one of
two blocks:

- A `ThinkingBlock` if the item has readable text. `text` is the summaries with blank lines between them, or the
  reasoning itself, which open models return. `details` is the list of summaries, `signature` the rest of the item.
- A `RedactedThinkingBlock` if the item has no readable text. `data` is the rest of the item.

The rest of the item is JSON text of an object with all keys except the type and the summaries. It includes the id,
because the API refuses encrypted content without the id. An id alone is valid only while the provider stores the
answer. A signature in another form comes from another API and is not sent.
"""

import json

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import RedactedThinkingBlock, ThinkingBlock
from lanebus.bus.messages.json_parser import parse_json
from lanebus.handlers.json_fields import as_object
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.openai.shared.fields import list_at, text_at

__all__ = ("reasoning_item", "thinking_block")

_APART = ("type", "summary")
_STATUS = (None, "in_progress", "completed", "incomplete")


def thinking_block(item: Json, path: str) -> ThinkingBlock | RedactedThinkingBlock:
    """Return the thinking of a reasoning item.

    Raises:
        DecodeError: `item` is not a reasoning item.
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
    """Return the reasoning item that the thinking was read from; None if it was not read from a reasoning item."""
    signature = block.signature if isinstance(block, ThinkingBlock) else block.data
    try:
        rest = as_object(parse_json(signature or ""), "")
        # pi stores the whole item as the signature, including the summaries.
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
