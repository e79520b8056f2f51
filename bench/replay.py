"""Measure the memory growth of a process that reads a session once.

`python -m bench.replay DIR SESSION` prints the number of entries, and the MB by which the process grew after the first
10,000 entries. The read runs in a separate process because the peak memory of a process never falls.
"""

import sys
from pathlib import Path

import anyio

from lanebus import Bus

__all__ = ("replay_growth",)


async def replay_growth(data_dir: str, session: str) -> tuple[int, float]:
    """Read a session in another process. Return the number of entries and the growth in MB.

    Args:
        data_dir: the directory of an embedded server.
        session: the session's id.
    """
    done = await anyio.run_process([sys.executable, "-m", "bench.replay", data_dir, session])
    count, growth = done.stdout.split()
    return int(count), float(growth)


async def _read(data_dir: str, session: str) -> None:
    count, base = 0, 0.0
    async with Bus.open(data_dir=Path(data_dir)) as bus:
        async for _ in bus.session(session).read():
            count += 1
            if count == 10_000:
                base = _resident_mb()
    print(count, _resident_mb() - base)


def _resident_mb() -> float:
    """Return the peak memory of this process in MB. `getrusage` would include the peak of the parent process before the
    fork."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    _, data_dir, session = sys.argv
    anyio.run(_read, data_dir, session)
