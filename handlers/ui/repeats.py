"""Check that a publish with a repeated key repeats the first one: a key names one content.

The log compares keys and not contents. Without this check, a client that uses a key twice would lose its second text.
"""

import base64
from collections.abc import Callable, Mapping
from contextlib import aclosing
from hashlib import sha256

from lanebus.bus.errors import CursorTrimmed
from lanebus.bus.messages.content import AudioBlock, Block, DocumentBlock, ImageBlock, VideoBlock
from lanebus.bus.messages.events import SessionAssigned
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
    session: Session,
    receipt: Receipt,
    key: str | None,
    *posted: UserMessage | ExtensionMessage,
    shown: Callable[[UserMessage], UserMessage] | None = None,
) -> None:
    """Check that a receipt is of the posted messages. Read the log only if the receipt is of a repeat.

    Entries that were trimmed or cannot be read are not compared.

    Args:
        session: the session.
        receipt: what the publish returned.
        key: the key of the publish, or the client's id that the key was made of. The error names it.
        posted: the messages that were to be published, in order.
        shown: returns a stored user message as clients of a protocol get it. Such a client may send it back in this
            form, which is a repeat too. None means that clients get messages as they are stored.

    Raises:
        KeyReused: the messages that the first publish with this key has stored are others.
        BusError: the log could not be read.
    """
    if not receipt.is_duplicate or key is None or not receipt.position:  # 0: the handover was not needed
        return
    stored = dict[int, object]()
    try:
        entries = session.read(after=Cursor(receipt.positions[0] - 1), until=receipt.position)
        async with aclosing(entries):
            async for entry in entries:
                stored[entry.position] = entry.message
    except CursorTrimmed:
        return
    redact = session.resources.redaction.message
    if len(posted) != len(receipt.positions) or not all(
        _are_same(stored.get(position), redact(each))
        or (shown is not None and _is_shown(stored[position], each, shown))
        for position, each in zip(receipt.positions, posted, strict=True)
    ):
        raise KeyReused(session.id, key, receipt.positions)


def _are_same(found: object, posted: object) -> bool:
    return found is None or isinstance(found, DecodeFailure) or _content_of(found) == _content_of(posted)


def _is_shown(found: object, posted: object, shown: Callable[[UserMessage], UserMessage]) -> bool:
    return isinstance(found, UserMessage) and _content_of(shown(found)) == _content_of(posted)


def _content_of(message: object) -> object:
    """Return what a client has said with a message; None for a message of another kind."""
    match message:
        case UserMessage(content=content):
            return [_without_place(block) for block in content]
        case ExtensionMessage(kind=SessionAssigned.KIND as kind, data=Mapping() as data):
            # A handover that was not needed is answered with an earlier one, which may have another reason.
            return kind, data.get("agent")
        case ExtensionMessage(kind=kind, data=Mapping() as data):
            return kind, {name: value for name, value in data.items() if name not in _BY_SERVER}
        case _:
            return None


def _without_place(block: Block) -> object:
    """Return a block, with the SHA-256 or the address of its media: the bus moves large inline media to the media
    store."""
    match block:
        case ImageBlock(media=media) | AudioBlock(media=media) | VideoBlock(media=media) | DocumentBlock(media=media):
            return block.type, media.sha256 or _digest(media) or media.url
        case _:
            return block


def _digest(media: MediaRef) -> str | None:
    return None if media.data is None else sha256(base64.b64decode(media.data)).hexdigest()
