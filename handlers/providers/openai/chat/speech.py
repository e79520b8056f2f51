"""What a model of Chat Completions speaks, as a block. A stream tells it in pieces, each of them base64 by itself."""

import binascii

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import AudioBlock, Block, TextBlock
from lanebus.bus.messages.media import MediaRef

__all__ = ("Speech",)


class Speech:
    """The sound so far."""

    def __init__(self) -> None:
        self._data: list[bytes] = []

    def add(self, data: str, path: str) -> None:
        """Append a piece.

        Raises:
            DecodeError: it is not base64.
        """
        try:
            self._data.append(binascii.a2b_base64(data, strict_mode=True))
        except binascii.Error as error:
            raise DecodeError(path, f"not base64: {error}") from None

    def block(self, transcript: str) -> Block | None:
        """The sound with its transcript; the transcript alone where no sound was told, None where neither was.

        The API does not say the format, as the caller asked for it: the first bytes show it, or it is not known.
        """
        data = b"".join(self._data)
        if not data:
            return TextBlock(text=transcript) if transcript else None
        return AudioBlock(media=MediaRef.from_bytes(data), transcript=transcript or None)
