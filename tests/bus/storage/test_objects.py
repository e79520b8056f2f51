"""Blobs in an object store, without a server of one."""

import pytest

from lanebus.bus.storage import Objects

__all__ = ()


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("image/png", "image/png"),
        ("text/plain; charset=utf-8", "text/plain; charset=utf-8"),
        *(
            (told, "application/octet-stream")
            for told in ("image/png\r\nX-Evil: 1", "text/plain\n", "é/x", "", None, "a" * 10_000, " text/plain")
        ),
    ],
)
async def test_a_type_that_can_be_no_header_is_not_sent_to_the_store(told: str | None, kept: str) -> None:
    from obstore.store import MemoryStore

    objects = Objects(MemoryStore(), "media store")
    await objects.put_if_absent("a", b"x", content_type=told)
    head = await objects.head("a")
    assert head is not None
    assert head.content_type == kept
