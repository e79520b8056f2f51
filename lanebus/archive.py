"""Archives: old entries of sessions in immutable files, and the results of archiving, trimming and erasing."""

from lanebus.bus.archive.archive import Archive, Archived, ArchiveProblem, archive_session, check_chain
from lanebus.bus.archive.segment import ArchiveStore, DirectoryArchive, ObjectArchive, archive_store_at
from lanebus.bus.retention import Erased, Trimmed

__all__ = (
    "Archive",
    "ArchiveProblem",
    "ArchiveStore",
    "Archived",
    "DirectoryArchive",
    "Erased",
    "ObjectArchive",
    "Trimmed",
    "archive_session",
    "archive_store_at",
    "check_chain",
)
