"""An archive store by what one can say of it on a command line."""

from pathlib import Path

from bus.archive.directory import DirectoryArchive
from bus.archive.object_archive import ObjectArchive
from bus.archive.store import ArchiveStore

__all__ = ("archive_store_at",)


def archive_store_at(place: str) -> ArchiveStore:
    """The store at a URL such as `s3://bucket/prefix`, or in a directory. Nothing connects and nothing is made yet.

    Raises:
        MissingExtra: a URL needs the package `obstore`, which is not installed.
        SetupError: the URL is none that it knows.
    """
    return ObjectArchive.from_url(place) if "://" in place else DirectoryArchive(Path(place))
