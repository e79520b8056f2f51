"""Check that a publish with a repeated key repeats the first one: a key names one content.

The log compares keys and not contents. Without this check, a client that uses a key twice would lose its second text.
"""

import base64
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256

from lanebus.bus.errors import CursorTrimmed
from lanebus.bus.messages.content import AudioBlock, Block, DocumentBlock, ImageBlock, VideoBlock
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, DecodeFailure
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.ui.errors import KeyReused

__all__ = ("check_repeat",)

_BY_SERVER = frozenset({"by", "position"})
"""fields of a command that the server writes. Another principal may repeat a command"""


async def check_repeat(
    session: Session, receipt: Receipt, key: str | None, *posted: UserMessage | ExtensionMessage
) -> None:
    """Check that a receipt is of the posted messages. Read the log only if the receipt is of a repeat.

    Entries that were trimmed or cannot be read are not compared.

    Args:
        session: the session.
        receipt: what the publish returned.
        key: the key of the publish.
        posted: the messages that were to be published, in order.

    Raises:
        KeyReused: the messages that the first publish with this key has stored are others.
        BusError: the log could not be read.
    """
    if not receipt.is_duplicate or key is None:
        return
    stored = dict[int, object]()
    try:
        entries = session.read(after=Cursor(receipt.positions[0] - 1), until=receipt.position)
        async with aclosing(entries):
            async for entry in entries:
                stored[entry.position] = entry.message
    except CursorTrimmed:
        return
    redacted = [session.resources.redaction.message(each) for each in posted]
    if not _are_same([stored.get(position) for position in receipt.positions], redacted):
        raise KeyReused(session.id, key, receipt.positions)


def _are_same(stored: Sequence[object], posted: Sequence[UserMessage | ExtensionMessage]) -> bool:
    return len(stored) == len(posted) and all(
        found is None or isinstance(found, DecodeFailure) or _content_of(found) == _content_of(each)
        for found, each in zip(stored, posted, strict=True)
    )


def _content_of(message: object) -> object:
    """Return what a client has said with a message; None for a message of another kind."""
    match message:
        case UserMessage(content=content):
            return [_without_place(block) for block in content]
        case ExtensionMessage(kind=kind, data=Mapping() as data):
            return kind, {name: value for name, value in data.items() if name not in _BY_SERVER}
        case _:
            return None


def _without_place(block: Block) -> object:
    """Return a block, with the SHA-256 of its media: the bus moves large inline media to the media store."""
    match block:
        case ImageBlock(media=media) | AudioBlock(media=media) | VideoBlock(media=media) | DocumentBlock(media=media):
            return block.type, media.sha256 or _digest(media)
        case _:
            return block


def _digest(media: MediaRef) -> str | None:
    return None if media.data is None else sha256(base64.b64decode(media.data)).hexdigest()
