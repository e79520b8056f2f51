"""Where bytes are kept by name: a directory, or an object store. What the names are is for those who keep them here."""

from bus.storage.folder import Folder
from bus.storage.objects import Objects

__all__ = ("Folder", "Objects")
