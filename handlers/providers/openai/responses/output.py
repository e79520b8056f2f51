"""Read the output items of a response as blocks of a message."""

from collections.abc import Mapping

from lanebus.bus.messages.content import Block, TextBlock, UnknownBlock
from lanebus.handlers.json_fields import as_object
from lanebus.handlers.providers.common.answer import read_call
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.openai.responses.phase import phase_signature
from lanebus.handlers.providers.openai.responses.reasoning import thinking_block
from lanebus.handlers.providers.openai.shared.fields import list_at, refs_of, text_at

__all__ = ("output_blocks", "refuses")


def output_blocks(item: Json, path: str, names: Mapping[str, str]) -> list[Block]:
    """Return the blocks of one item: a message's texts, thinking, or a call. Other items are kept whole.

    Args:
        item: the item's JSON.
        path: path of the item, for errors.
        names: see `ProviderRequest.tool_names`.

    Raises:
        DecodeError: the item does not have the form of its type.
    """
    match item.get("type"):
        case "message":
            signature = phase_signature(item, path)
            places = ((f"{path}.content.{at}", part) for at, part in enumerate(list_at(item, "content", path)))
            return [_text_block(as_object(part, place), place, signature) for place, part in places]
        case "reasoning":
            return [thinking_block(item, path)]
        case "function_call":
            call, name = text_at(item, "call_id", path, required=True), text_at(item, "name", path, required=True)
            return [read_call(call, name, text_at(item, "arguments", path), names)]
        case _:
            text_at(item, "type", path, required=True)
            return [UnknownBlock(raw=item)]


def refuses(item: Json) -> bool:
    """Return whether the item is a message in which the model refuses to answer."""
    content = item.get("content")
    parts = content if item.get("type") == "message" and isinstance(content, list) else []
    return any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)


def _text_block(part: Json, path: str, signature: str | None) -> Block:
    match part.get("type"):
        case "output_text":
            refs = refs_of(list_at(part, "annotations", path))
            text = text_at(part, "text", path, required=True)
            return TextBlock(text=text, annotations=refs or None, signature=signature)
        case "refusal":
            return TextBlock(text=text_at(part, "refusal", path, required=True), signature=signature)
        case _:
            text_at(part, "type", path, required=True)
            return UnknownBlock(raw=part)
