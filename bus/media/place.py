"""A media store by what one can say of it on a command line."""

from pathlib import Path

from bus.media.directory import DirectoryMedia
from bus.media.object_media import ObjectMedia
from bus.media.store import MediaStore

__all__ = ("media_store_at",)


def media_store_at(place: str) -> MediaStore:
    """The store at a URL such as `s3://bucket/prefix`, or in a directory. Nothing connects and nothing is made yet.

    Raises:
        MissingExtra: a URL needs the package `obstore`, which is not installed.
        SetupError: the URL is none that it knows.
    """
    return ObjectMedia.from_url(place) if "://" in place else DirectoryMedia(Path(place))
