"""What leaves a message for the store, and what is left in its place, is what the sample cases say."""

import base64

import pytest

from lanebus import ImageBlock, MediaRef, UserMessage
from lanebus.bus.media.store import offloaded
from lanebus.media import ObjectMedia, as_agentflow
from tests.support.vectors.cases import Case, Object, cases

CONTRADICTED = {
    "media.offload.boundary_49999": "the limit is of the exact size, and 49,999 bytes are below it",
    "media.offload.sha256_lost": "a page is kept, and the checksum is the one that the bytes have",
}

ALWAYS, NEVER = 0, 1 << 62


class Counted(ObjectMedia):
    """A store in memory that counts what is put."""

    def __init__(self) -> None:
        from obstore.store import MemoryStore

        super().__init__(MemoryStore())
        self.puts = 0

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        self.puts += 1
        return await super().put_if_absent(data, mime_type=mime_type)


async def _after(media: MediaRef, limit_bytes: int) -> tuple[MediaRef, int]:
    """The reference that a message is published with, and how many media were stored for it."""
    store = Counted()
    message = await offloaded(UserMessage.of(ImageBlock(media=media)), store, limit_bytes=limit_bytes)
    (block,) = message.content
    assert isinstance(block, ImageBlock)
    return block.media, store.puts


def _inline(size: int, **known: object) -> MediaRef:
    data = base64.b64encode(b"a" * size).decode()
    return MediaRef.model_validate({"kind": "data", "data": data, "mime_type": "image/png", **known})


@cases("media_offload", contradicted=CONTRADICTED)
async def test_media_leave_a_message_as_the_case_says(case: Case) -> None:
    found: Object
    match case.given:
        case {"policy": str(policy), "raw_len": int(size), "max_inline_bytes": int(limit)}:
            media, stored = await _after(_inline(size), {"always": ALWAYS, "never": NEVER, "threshold": limit}[policy])
            found = {"media.kind": as_agentflow(media).kind, "stored": stored}
        case {"raw_len": int(size), "max_inline_bytes": int(limit), **known}:
            media, _ = await _after(_inline(size, **known), limit)
            found = {name: getattr(media, name) for name in case.expect}
        case {"media": {"kind": "url"} as reference, "policy": "always"}:
            media, stored = await _after(MediaRef.model_validate(reference), ALWAYS)
            found = {"media": media.model_dump(exclude_none=True), "stored": stored}
        case {"media": {"kind": "data", "page": int(page)}}:  # its checksum is none, and there are no bytes to have it
            media, _ = await _after(_inline(100, page=page), ALWAYS)
            found = {"after.sha256": media.sha256, "after.page": media.page}
        case {"bytes_utf8": str(text)}:
            media, _ = await _after(MediaRef.from_bytes(text.encode()), ALWAYS)
            found = {"sha256": media.sha256, "size_bytes": media.size_bytes}
        case _:
            pytest.fail("no such case")
    assert found == case.expect
