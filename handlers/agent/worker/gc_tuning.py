"""Garbage collection in a process that only runs a worker."""

import gc

__all__ = ("collect_rarely",)


def collect_rarely() -> None:
    """Run the cyclic garbage collector less often. A worker then runs a third more turns per second.

    A worker keeps the histories of many sessions. These contain no cycles, but by default the collector scans them
    again and again. The function changes the whole process, so call it only in a process that only runs a
    worker.
    """
    gc.set_threshold(20_000, 50, 100)
