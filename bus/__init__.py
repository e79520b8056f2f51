"""An event-sourced message bus for agent loops, on Redis streams."""

from bus.bus import Bus, DurabilityWarning
from bus.consumer import Consumer, Work
from bus.envelope import START, Cursor, Envelope, Unreadable
from bus.erasure import Erased
from bus.errors import (
    BusError,
    Closed,
    Conflict,
    CursorTrimmed,
    DecodeError,
    EraseRefused,
    Fenced,
    ForgedEntry,
    InvalidCursor,
    InvalidName,
    InvalidSessionId,
    LogRolledBack,
    MediaDamaged,
    MediaMissing,
    MediaRefused,
    MediaTooLarge,
    MessageError,
    MessageTooLarge,
    OutcomeUnknown,
    OverLimit,
    SessionClosed,
    SessionErased,
    SetupError,
    StreamError,
    TrimRefused,
    Unavailable,
    UnknownKind,
    UnknownRole,
    UnknownVersion,
)
from bus.head import Incarnation, SessionHead
from bus.limits import Limits
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
from bus.receipt import Outcome, Receipt
from bus.retention import Trimmed
from bus.session import ALL_LANES, Session, new_session_id

__all__ = (
    # writing
    "Bus",
    "Consumer",
    "DirectoryMedia",
    "DurabilityWarning",
    "Erased",
    "Lease",
    "Limits",
    "MediaStore",
    "ObjectMedia",
    "Outcome",
    "Receipt",
    "Session",
    "SigningStore",
    "Trimmed",
    "Work",
    "media_from_file",
    "media_store_at",
    "new_session_id",
    # reading
    "ALL_LANES",
    "START",
    "Checkpoint",
    "Cursor",
    "Envelope",
    "Incarnation",
    "Lane",
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
    "BusError",
    "Closed",
    "Conflict",
    "CursorTrimmed",
    "DecodeError",
    "EraseRefused",
    "Fenced",
    "ForgedEntry",
    "InvalidCursor",
    "InvalidName",
    "InvalidSessionId",
    "LogRolledBack",
    "MediaDamaged",
    "MediaMissing",
    "MediaRefused",
    "MediaTooLarge",
    "MessageError",
    "MessageTooLarge",
    "OutcomeUnknown",
    "OverLimit",
    "SessionClosed",
    "SessionErased",
    "SetupError",
    "StreamError",
    "TrimRefused",
    "Unavailable",
    "UnknownKind",
    "UnknownRole",
    "UnknownVersion",
)
