"""Publish a large image. The image is stored once, by its SHA-256; the log refers to it, and requests contain it.

    python examples/05_media.py

prints
    published: an image of 60,008 bytes
    in the log: an entry of less than 400 bytes, which names the image by its SHA-256
    in the request: an image of 60,008 bytes
    published again: the store has it already, the log grew by less than 400 bytes
"""

import base64
import os

import anyio

from lanebus import Bus, ImageBlock, MediaRef, Session, UserMessage, new_session_id
from lanebus.context import build_context
from lanebus.media import resolve_media
from lanebus.providers import to_anthropic

PICTURE = b"\x89PNG\r\n\x1a\n" + b"a" * 60_000  # starts like a PNG; `media_from_file` reads a real image


async def small(session: Session, before: int) -> str:
    """Return in words how much the session's log has grown since `before` bytes."""
    size_bytes = (await session.head()).size_bytes
    return "less than 400 bytes" if size_bytes - before < 400 else f"{size_bytes - before} bytes"


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus:
        session = bus.session(new_session_id())
        question = UserMessage.of("What is it?", ImageBlock(media=MediaRef.from_bytes(PICTURE, filename="cat.png")))
        await session.publish(question)
        print(f"published: an image of {len(PICTURE):,} bytes")
        print(f"in the log: an entry of {await small(session, 0)}, which names the image by its SHA-256")

        context = await build_context(session)
        media = await resolve_media(context.messages, session.media)
        request = to_anthropic(context, model="claude-sonnet-4-5", media=media)
        match request.body["messages"]:
            case [{"content": [_, {"source": {"data": str(data)}}]}]:
                print(f"in the request: an image of {len(base64.b64decode(data)):,} bytes")
            case _:
                print(request.warnings)

        await session.publish(question)
        print(f"published again: the store has it already, the log grew by {await small(session, 400)}")


if __name__ == "__main__":
    anyio.run(main)
