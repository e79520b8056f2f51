"""An event-sourced message bus for agent loops, on Redis streams."""

from bus.activity import Activity
from bus.archive import (
    Archived,
    ArchiveProblem,
    ArchiveStore,
    DirectoryArchive,
    ObjectArchive,
    archive_store_at,
)
from bus.bounds import Bounds
from bus.bus import Bus, DurabilityWarning
from bus.connection_bounds import ConnectionBounds
from bus.consumer import Consumer, Work
from bus.dead_letters import DeadLetter, DeadLetters
from bus.envelope import START, Cursor, Envelope, Unreadable
from bus.erasure import Erased
from bus.errors import (
    ArchiveDamaged,
    BusError,
    Closed,
    Conflict,
    CursorTrimmed,
    DecodeError,
    EraseRefused,
    Fenced,
    ForgedEntry,
    GroupInUse,
    InvalidCursor,
    InvalidLetterId,
    InvalidName,
    InvalidSessionId,
    KeyTooLong,
    LoginRefused,
    LogRolledBack,
    MediaDamaged,
    MediaMissing,
    MediaRefused,
    MediaTooLarge,
    MessageError,
    MessageTooLarge,
    NoArchive,
    NoSuchPosition,
    OutcomeUnknown,
    OverLimit,
    ParentErased,
    PreviewFull,
    SessionClosed,
    SessionErased,
    SessionExists,
    SetupError,
    StreamError,
    TrimRefused,
    Unavailable,
    UnknownKind,
    UnknownRole,
    UnknownVersion,
)
from bus.groups import ConsumerStatus, GroupStatus
from bus.head import Incarnation, Origin, SessionHead
from bus.lease_status import LeaseStatus
from bus.limits import Limits
from bus.live import OpenMessage
from bus.log import Checkpoint, Lease
from bus.media import (
    DirectoryMedia,
    MediaStore,
    ObjectMedia,
    SigningStore,
    media_from_file,
    media_store_at,
    resolve_media,
)
from bus.messages.compaction_block import CompactionBlock
from bus.messages.content import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    VideoBlock,
)
from bus.messages.context_entry import (
    BranchSummary,
    Compaction,
    ContextEntry,
    Label,
    LeafMove,
    LoopCompaction,
    ModelChange,
    Prune,
    ThinkingLevelChange,
)
from bus.messages.delta import Delta
from bus.messages.extension import ExtensionMessage
from bus.messages.lanes import Lane
from bus.messages.media import MediaRef
from bus.messages.message import (
    AssistantMessage,
    DeveloperMessage,
    LlmMessage,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from bus.messages.reading import AgentMessage, Publishable, read_message
from bus.messages.turn import TurnId
from bus.messages.usage import Cost, Rates, Usage
from bus.notice import Notice
from bus.publish import PublishBounds
from bus.receipt import Outcome, Receipt
from bus.retention import Trimmed
from bus.retry_policy import GiveUp, Jitter, Retry, RetryPolicy
from bus.session import ALL_LANES, Session, new_session_id

__all__ = (
    # writing
    "ArchiveStore",
    "Archived",
    "Bounds",
    "ConnectionBounds",
    "PublishBounds",
    "Bus",
    "Consumer",
    "DeadLetter",
    "DeadLetters",
    "DirectoryArchive",
    "DirectoryMedia",
    "DurabilityWarning",
    "Erased",
    "GiveUp",
    "Jitter",
    "Lease",
    "Limits",
    "MediaStore",
    "ObjectArchive",
    "ObjectMedia",
    "Outcome",
    "Receipt",
    "Retry",
    "RetryPolicy",
    "Session",
    "SigningStore",
    "Trimmed",
    "Work",
    "archive_store_at",
    "media_from_file",
    "media_store_at",
    "new_session_id",
    # reading
    "ALL_LANES",
    "START",
    "Activity",
    "ArchiveProblem",
    "Checkpoint",
    "ConsumerStatus",
    "Cursor",
    "Envelope",
    "GroupStatus",
    "Incarnation",
    "Lane",
    "LeaseStatus",
    "Notice",
    "OpenMessage",
    "Origin",
    "SessionHead",
    "Unreadable",
    "resolve_media",
    # messages
    "AgentMessage",
    "AssistantMessage",
    "AudioBlock",
    "Block",
    "BranchSummary",
    "Compaction",
    "CompactionBlock",
    "ContextEntry",
    "Cost",
    "Delta",
    "DeveloperMessage",
    "DocumentBlock",
    "ExtensionMessage",
    "ImageBlock",
    "Label",
    "LeafMove",
    "LlmMessage",
    "LoopCompaction",
    "MediaRef",
    "ModelChange",
    "Prune",
    "Publishable",
    "Rates",
    "SystemMessage",
    "TextBlock",
    "ThinkingBlock",
    "ThinkingLevelChange",
    "ToolCallBlock",
    "ToolResultBlock",
    "ToolResultMessage",
    "TurnId",
    "Usage",
    "UserMessage",
    "VideoBlock",
    "read_message",
    # errors
    "ArchiveDamaged",
    "BusError",
    "Closed",
    "Conflict",
    "CursorTrimmed",
    "DecodeError",
    "EraseRefused",
    "Fenced",
    "ForgedEntry",
    "GroupInUse",
    "InvalidCursor",
    "InvalidLetterId",
    "InvalidName",
    "InvalidSessionId",
    "KeyTooLong",
    "LoginRefused",
    "LogRolledBack",
    "MediaDamaged",
    "MediaMissing",
    "MediaRefused",
    "MediaTooLarge",
    "MessageError",
    "MessageTooLarge",
    "NoArchive",
    "NoSuchPosition",
    "OutcomeUnknown",
    "OverLimit",
    "PreviewFull",
    "ParentErased",
    "SessionClosed",
    "SessionErased",
    "SessionExists",
    "SetupError",
    "StreamError",
    "TrimRefused",
    "Unavailable",
    "UnknownKind",
    "UnknownRole",
    "UnknownVersion",
)
