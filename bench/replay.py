"""`python -m bench.replay URL SESSION`: reads a session once, and prints how many entries it has and by how many MB the
process grew behind the first 10,000 of them. A process of its own, as a process does not say what it has given back."""

import sys
from pathlib import Path

import anyio

from lanebus import Bus

__all__ = ("replay_growth",)


async def replay_growth(data_dir: str, session: str) -> tuple[int, float]:
    """Have another process read a session of an embedded server's directory; gives what it prints."""
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
    """The most this process ever had in memory. Not by getrusage: that counts what its parent had before it, too."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    _, data_dir, session = sys.argv
    anyio.run(_read, data_dir, session)
