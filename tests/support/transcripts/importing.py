"""Import a file until killed.

    python -m tests.support.transcripts.importing DATA_DIR FILE SESSION        from the repository's root

It prints a line at each step of progress and continues when it reads a line. A kill in between hits it at work.
"""

import asyncio
import sys
from pathlib import Path

from lanebus.bus import Bus
from lanebus.handlers.formats import ImportProgress, import_transcript

__all__ = ()


def tell(progress: ImportProgress) -> None:
    print(progress.entries, flush=True)
    sys.stdin.readline()


async def main(data_dir: str, file: str, session: str) -> None:
    async with Bus.open(data_dir=Path(data_dir)) as bus:
        await import_transcript(bus.session(session), Path(file), on_progress=tell)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
