"""Blob stores in a directory or in an object store. Callers choose and validate the names of blobs.

Start with `blobs.py`, the protocol.
"""

from lanebus.bus.storage.blobs import BlobHead, BlobStore, plain_name, store_at
from lanebus.bus.storage.folder import Folder
from lanebus.bus.storage.objects import Objects, object_store_at

__all__ = ("BlobHead", "BlobStore", "Folder", "Objects", "object_store_at", "plain_name", "store_at")
