"""Blob stores in a directory or in an object store. Callers choose and validate the names of blobs.

Start with `blobs.py`, the protocol. `ownership.py` says whether another user could have written a file.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.bus.storage.blobs import BlobStore, Folder, Objects, StateFile, object_store_at, plain_name, store_at
    from lanebus.bus.storage.ownership import FILE, exposure, open_owned, owner_fault

__all__ = (
    "FILE",
    "BlobStore",
    "Folder",
    "Objects",
    "StateFile",
    "exposure",
    "object_store_at",
    "open_owned",
    "owner_fault",
    "plain_name",
    "store_at",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.bus.storage.blobs": (
                "BlobStore",
                "Folder",
                "Objects",
                "StateFile",
                "object_store_at",
                "plain_name",
                "store_at",
            ),
            "lanebus.bus.storage.ownership": (
                "FILE",
                "exposure",
                "open_owned",
                "owner_fault",
            ),
        },
    )
