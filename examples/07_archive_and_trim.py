"""Archive old entries and trim them from the server. Reads cover both; a trim is refused while readers need the
entries.

    python examples/07_archive_and_trim.py

prints
    refused: still needed by r:mirror
    archived up to position 6, in 1 segment
    trimmed 4 entries, the server keeps 5 and what follows
    read from the first one: line 1, line 2, line 3, line 4, line 5, line 6
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from lanebus import Bus, Cursor, ExtensionMessage, TrimRefused, new_session_id
from lanebus.archive import DirectoryArchive


async def main() -> None:
    with TemporaryDirectory() as files:
        async with Bus.open(os.environ.get("LANEBUS_URL"), archive=DirectoryArchive(Path(files))) as bus:
            session = bus.session(new_session_id())
            for number in range(1, 7):
                await session.publish(ExtensionMessage.of("line", f"line {number}"))
            await session.save_checkpoint("mirror", Cursor(2))  # a reader that still needs entry 3

            try:
                await session.trim(before=5)
            except TrimRefused as refused:
                print(f"refused: still needed by {', '.join(refused.holders)}")

            archived = await session.archive()
            print(f"archived up to position {archived.position}, in {len(archived.segments)} segment")
            trimmed = await session.trim(before=5)  # the archive has the entries that the reader needs
            print(f"trimmed {trimmed.entries} entries, the server keeps {trimmed.first_kept} and what follows")

            messages = [envelope.message async for envelope in session.read()]
            lines = [str(message.data) for message in messages if isinstance(message, ExtensionMessage)]
            print(f"read from the first one: {', '.join(lines)}")


if __name__ == "__main__":
    anyio.run(main)
