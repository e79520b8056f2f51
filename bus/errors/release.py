"""What releases the entries that a holder keeps from a trim, in words and as a command."""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ("Release", "releases_of")


class Release(NamedTuple):
    """What releases the entries of one kind of holder."""

    words: str
    command: str
    """the same on the command line, without `lanebus`"""


_RELEASES = {
    "a": Release("archive the entries", "archive SESSION"),
    "f": Release("erase the fork", "erase FORK"),
    "g": Release("remove the group", "groups remove GROUP"),
    "p": Release("remove the stored projection", "projections remove SESSION NAME@VERSION"),
}
"""by the letter with which the holder's name begins"""


def releases_of(holders: Iterable[str]) -> list[Release]:
    """Return what releases the entries of holders, once for each kind. A reader (`r:…`) has to read on by itself.

    Args:
        holders: names of holders, as in `TrimRefused.holders`.
    """
    return [_RELEASES[kind] for kind in sorted({name.partition(":")[0] for name in holders} & _RELEASES.keys())]
