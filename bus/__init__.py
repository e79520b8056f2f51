"""The bus: sessions as logs on Redis streams. Users import `lanebus`.

Each session is one gap-free numbered sequence. A publish is applied once or refused with a reason. Readers miss
nothing. Start with `session.py`, the user's view of a session, and `bus.py`, the class `Bus`;
`opening.py` opens a bus.

Each package imports only those listed before it: errors, storage, messages, wire, servers, embedded, log, media,
publishing, following, archive, groups, retention, session.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.bus.archive.archive import Archived
    from lanebus.bus.archive.segment import archive_store_at
    from lanebus.bus.bus import Bus
    from lanebus.bus.concurrency import first_error, resumable, run_in_thread
    from lanebus.bus.embedded.data_dir import DataDir, default_data_dir, default_state_dir
    from lanebus.bus.embedded.server import ServerStatus, open_server, server_status, stop_server
    from lanebus.bus.following.follower import Follower
    from lanebus.bus.groups.consumer import Consumer
    from lanebus.bus.groups.failed_work import DeadLetter, DeadLetters, FailedWork, FailedWorks, Retry, RetryPolicy
    from lanebus.bus.groups.group_log import Start, Work, finish_recorded
    from lanebus.bus.groups.status import (
        Activity,
        AgentStatus,
        AgentWork,
        ConsumerStatus,
        GroupStatus,
        LeaseStatus,
        read_leases,
        read_live_workers,
    )
    from lanebus.bus.hooks import NO_TRACING, Redact, Redaction, Sending, Settlement, Tracing
    from lanebus.bus.log.lease import Lease, LeaseAnswer, Leases
    from lanebus.bus.log.lineage import Checkpoint, check_name, checkpoints, common_position
    from lanebus.bus.log.log import FirstPage, Incarnation, Log, LogBounds, SessionHead, batched, start_of
    from lanebus.bus.log.namespace import (
        BEGINS,
        CatalogCursor,
        CatalogPage,
        LogLoss,
        NamespaceLog,
        SessionState,
        moment_of,
    )
    from lanebus.bus.log.reading import Page
    from lanebus.bus.media.resolve import media_of, resolve_media
    from lanebus.bus.media.store import REDIS_MEDIA_LIMIT_BYTES, MediaStore, check_sha256, media_store_at
    from lanebus.bus.opening import Bounds, BusCounts, Inspector, PrimaryStatus, check_stored_form
    from lanebus.bus.previews import OpenMessage
    from lanebus.bus.publishing.publisher import Histogram
    from lanebus.bus.retention import Trimmed
    from lanebus.bus.session import ALL_LANES, OpenSession, Session, new_session_id
    from lanebus.bus.session_upkeep import SessionLease

__all__ = (
    "ALL_LANES",
    "Activity",
    "AgentStatus",
    "AgentWork",
    "Archived",
    "BEGINS",
    "Bounds",
    "Bus",
    "BusCounts",
    "CatalogCursor",
    "CatalogPage",
    "Checkpoint",
    "Consumer",
    "ConsumerStatus",
    "DataDir",
    "DeadLetter",
    "DeadLetters",
    "FailedWork",
    "FailedWorks",
    "FirstPage",
    "Follower",
    "GroupStatus",
    "Histogram",
    "Incarnation",
    "Inspector",
    "Lease",
    "LeaseAnswer",
    "LeaseStatus",
    "Leases",
    "Log",
    "LogBounds",
    "LogLoss",
    "MediaStore",
    "NO_TRACING",
    "NamespaceLog",
    "OpenMessage",
    "OpenSession",
    "Page",
    "PrimaryStatus",
    "REDIS_MEDIA_LIMIT_BYTES",
    "Redact",
    "Redaction",
    "Retry",
    "RetryPolicy",
    "Sending",
    "ServerStatus",
    "Session",
    "SessionHead",
    "SessionLease",
    "SessionState",
    "Settlement",
    "Start",
    "Tracing",
    "Trimmed",
    "Work",
    "archive_store_at",
    "batched",
    "check_name",
    "check_sha256",
    "check_stored_form",
    "checkpoints",
    "common_position",
    "default_data_dir",
    "default_state_dir",
    "finish_recorded",
    "first_error",
    "media_of",
    "media_store_at",
    "moment_of",
    "new_session_id",
    "open_server",
    "read_leases",
    "read_live_workers",
    "resolve_media",
    "resumable",
    "run_in_thread",
    "server_status",
    "start_of",
    "stop_server",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.bus.archive.archive": ("Archived",),
            "lanebus.bus.archive.segment": ("archive_store_at",),
            "lanebus.bus.bus": ("Bus",),
            "lanebus.bus.concurrency": (
                "first_error",
                "resumable",
                "run_in_thread",
            ),
            "lanebus.bus.embedded.data_dir": (
                "DataDir",
                "default_data_dir",
                "default_state_dir",
            ),
            "lanebus.bus.embedded.server": (
                "ServerStatus",
                "open_server",
                "server_status",
                "stop_server",
            ),
            "lanebus.bus.following.follower": ("Follower",),
            "lanebus.bus.groups.consumer": ("Consumer",),
            "lanebus.bus.groups.failed_work": (
                "DeadLetter",
                "DeadLetters",
                "FailedWork",
                "FailedWorks",
                "Retry",
                "RetryPolicy",
            ),
            "lanebus.bus.groups.group_log": (
                "Start",
                "Work",
                "finish_recorded",
            ),
            "lanebus.bus.groups.status": (
                "Activity",
                "AgentStatus",
                "AgentWork",
                "ConsumerStatus",
                "GroupStatus",
                "LeaseStatus",
                "read_leases",
                "read_live_workers",
            ),
            "lanebus.bus.hooks": (
                "NO_TRACING",
                "Redact",
                "Redaction",
                "Sending",
                "Settlement",
                "Tracing",
            ),
            "lanebus.bus.log.lease": (
                "Lease",
                "LeaseAnswer",
                "Leases",
            ),
            "lanebus.bus.log.lineage": (
                "Checkpoint",
                "check_name",
                "checkpoints",
                "common_position",
            ),
            "lanebus.bus.log.log": (
                "FirstPage",
                "Incarnation",
                "Log",
                "LogBounds",
                "SessionHead",
                "batched",
                "start_of",
            ),
            "lanebus.bus.log.namespace": (
                "BEGINS",
                "CatalogCursor",
                "CatalogPage",
                "LogLoss",
                "NamespaceLog",
                "SessionState",
                "moment_of",
            ),
            "lanebus.bus.log.reading": ("Page",),
            "lanebus.bus.media.resolve": (
                "media_of",
                "resolve_media",
            ),
            "lanebus.bus.media.store": (
                "MediaStore",
                "REDIS_MEDIA_LIMIT_BYTES",
                "check_sha256",
                "media_store_at",
            ),
            "lanebus.bus.opening": (
                "Bounds",
                "BusCounts",
                "Inspector",
                "PrimaryStatus",
                "check_stored_form",
            ),
            "lanebus.bus.previews": ("OpenMessage",),
            "lanebus.bus.publishing.publisher": ("Histogram",),
            "lanebus.bus.retention": ("Trimmed",),
            "lanebus.bus.session": (
                "ALL_LANES",
                "OpenSession",
                "Session",
                "new_session_id",
            ),
            "lanebus.bus.session_upkeep": ("SessionLease",),
        },
    )


if __name__ == "bus":  # imported from a checkout by its folder's name
    from lanebus.checkout import alias

    alias("bus")
