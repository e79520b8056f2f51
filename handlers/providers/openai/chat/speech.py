"""Join audio from a model of Chat Completions. A stream sends the audio in pieces; each piece is separate base64."""

import binascii

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import AudioBlock, Block, TextBlock
from lanebus.bus.messages.media import MediaRef

__all__ = ("Speech",)


class Speech:
    """The audio that has arrived so far."""

    def __init__(self) -> None:
        self._data: list[bytes] = []

    def add(self, data: str, path: str) -> None:
        """Append a piece.

        Raises:
            DecodeError: the piece is not base64.
        """
        try:
            self._data.append(binascii.a2b_base64(data, strict_mode=True))
        except binascii.Error as error:
            raise DecodeError(path, f"not base64: {error}") from None

    def block(self, transcript: str) -> Block | None:
        """Return the audio with its transcript. Without audio, return the transcript as text, or None if it is empty.

        The API does not name the format of the audio. The format is detected from the first bytes, or stays unknown.
        """
        data = b"".join(self._data)
        if not data:
            return TextBlock(text=transcript) if transcript else None
        return AudioBlock(media=MediaRef.from_bytes(data), transcript=transcript or None)
