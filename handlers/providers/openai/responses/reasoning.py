"""Reasoning items of the Responses API as thinking, and back without a loss.

An item has an id, which the API wants to see again, summaries that may be read, and encrypted content that only OpenAI
reads. It becomes

- a `ThinkingBlock` where there is something to read: `text` is the summaries with a blank line between them (or the
  reasoning itself, which open models tell), `details` the summaries one by one, `signature` the rest of the item;
- a `RedactedThinkingBlock` where there is nothing to read: `data` is the rest of the item.

The rest is the text of a JSON object: id, encrypted_content and all else but the type and the summaries. Encrypted
content alone would not do as a signature: without its id the item cannot be sent back, and without the content an id is
good only while the provider stores the answer. A signature that is no such text was made by another API: it stays here.
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
    """The thinking that a reasoning item is.

    Raises:
        DecodeError: it has not the shape of one.
    """
    summaries = _texts(item, "summary", path)
    told = summaries or _texts(item, "content", path)
    text_at(item, "id", path, required=True)
    text_at(item, "encrypted_content", path)
    rest = {name: value for name, value in item.items() if name not in _APART and value is not None}
    signature = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
    if not told:
        return RedactedThinkingBlock(data=signature)
    return ThinkingBlock(text="\n\n".join(told), details=tuple(summaries) or None, signature=signature)


def reasoning_item(block: ThinkingBlock | RedactedThinkingBlock) -> Json | None:
    """The item that the thinking was; None if it was none."""
    signature = block.signature if isinstance(block, ThinkingBlock) else block.data
    try:
        rest = as_object(parse_json(signature or ""), "")
        # Source: pi keeps the whole item as the signature, its summaries too.
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
