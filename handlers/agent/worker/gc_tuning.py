"""The garbage collector of a process that does nothing but work."""

import gc

__all__ = ("collect_rarely",)


def collect_rarely() -> None:
    """Look for cycles more rarely. A worker keeps the histories of many sessions, which are in no cycle, and by default
    they are gone through again and again: a third more turns a second without. For a process of one's own only, as it
    concerns all that runs in it.
    """
    gc.set_threshold(20_000, 50, 100)
