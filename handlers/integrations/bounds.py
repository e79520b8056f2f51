"""Bounds of the integrations, with their defaults. Times are in seconds. Imports no framework."""

from dataclasses import dataclass

from lanebus.integration import check_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendBounds:
    """Bounds of one store."""

    cached_sessions: int = 1_000
    """maximum number of sessions whose state is kept in memory; the state of others is folded again when needed"""
    cached_bytes: int = 256 * 1_048_576
    """maximum number of bytes of the entries from which the states in memory were folded"""
    inline_bytes: int = 65_536
    """values of more bytes go to the media store, and the entry has their SHA-256"""
    shown_characters: int = 65_536
    """longer texts are cut in the LLM lane; what the framework stored is whole"""
    reads_at_once: int = 32
    """maximum number of sessions that are read concurrently when all are listed"""
    batch_bytes: int = 1_048_576
    """one append holds at most this many bytes of values, and of messages to show. More values go to the media store,
    and more messages are appended before"""
    batch_count: int = 200
    """maximum number of messages to show in one append"""
    shown_bytes: int = 262_144
    """of a message with more bytes of JSON, without its media, only the start of its text is shown"""
    imported_bytes: int = 1_048_576
    """an imported value of more bytes is not decoded"""
    attempts: int = 1_000
    """maximum number of attempts of one append while other processes append to the same session"""
    listed_sessions: int = 100_000
    """maximum number of sessions of which the order of a list is kept in memory; others are read again"""
    listed_bytes: int = 32 * 1_048_576
    """maximum number of characters of the ids and owners of these sessions"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_BACKEND_BOUNDS = BackendBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class McpStoreBounds:
    """Bounds of one event store, or of one subscription bus."""

    kept_entries: int = 10_000
    """number of the newest entries that are kept. Older ones are trimmed whenever as many new ones were appended, so up
    to twice as many may be there"""
    deliver_seconds: float = 5.0
    """longest time that `publish` waits for the listeners of its own process, after the event is stored"""
    resume_seconds: float = 300.0
    """longest time that a resumed stream is open; then its client connects again and misses nothing"""
    first_pause_seconds: float = 0.1
    """pause before the log is followed again after the server was lost; each further pause is twice as long"""
    longest_pause_seconds: float = 5.0
    """longest pause before the log is followed again"""
    values: BackendBounds = DEFAULT_BACKEND_BOUNDS
    """size from which a stored message goes to the media store"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_MCP_STORE_BOUNDS = McpStoreBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBounds:
    """Sizes of what one append writes. Of a larger append, the items go to the media store."""

    store: BackendBounds = DEFAULT_BACKEND_BOUNDS
    """the size from which a single item goes to the media store, and the number of attempts of a change"""
    append_bytes: int = 1_500_000
    """maximum number of bytes of the items of one append that are kept in its entries, and of the messages that show
    them"""
    entry_bytes: int = 400_000
    """items of more bytes together are divided into several entries of the append"""
    shown_bytes: int = 262_144
    """maximum size of a message that shows items; of a larger message, the start of its text is shown"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_SESSION_BOUNDS = SessionBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerBounds:
    """Sizes of what a run stores."""

    store: BackendBounds = DEFAULT_BACKEND_BOUNDS
    """the size from which the state of a run that waits for a person goes to the media store"""
    answer_bytes: int = 900_000
    """maximum size of an answer's message; of a larger answer, the start of its text is stored"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_RUNNER_BOUNDS = RunnerBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class McpBounds:
    """Limits and periods of the connection to an MCP server. Times are in seconds."""

    attempts: int = 3
    """attempts to connect before a call fails"""
    first_pause_seconds: float = 0.25
    """pause before the second attempt; each further pause is four times as long as the previous one"""
    quiet_seconds: float = 5.0
    """time after the last failed attempt to connect during which calls fail at once, without a new attempt"""
    idle_seconds: float = 60.0
    """time without a call after which the connection is checked before the next call, because its loss may go
    unnoticed"""
    close_seconds: float = 5.0
    """time limit for closing a connection"""
    stream_pause_seconds: float = 5.0
    """pause before a lost stream of list changes is opened again; doubles each time, up to
    `longest_stream_pause_seconds`"""
    longest_stream_pause_seconds: float = 60.0
    """longest pause before a lost stream of list changes is opened again"""
    message_bytes: int = 4 * 1024 * 1024
    """maximum size of one message of a server, in bytes. A larger answer is not kept in memory, and its call fails.
    This does not apply to a client or session of your own"""
    result_characters: int = 200_000
    """maximum number of characters of all texts of a result; the rest is cut. A structured result, or private metadata,
    whose JSON is longer is left out"""
    description_characters: int = 8_000
    """maximum number of characters of a tool's description; the rest is cut"""
    schema_bytes: int = 100_000
    """maximum size of a tool's schema as JSON; a tool with a larger schema is left out"""
    tools: int = 1_000
    """maximum number of tools of a server; a longer list is refused"""
    pages: int = 1_000
    """maximum number of pages of a server's list of tools; a longer list counts as endless and is refused"""
    grace_seconds: float = 6.0
    """how much longer than `call_seconds` the agent waits for a call. If a server does not read, the SDK takes up to
    five seconds to send a cancellation"""
    progress_pause_seconds: float = 0.2
    """shortest time between two progress entries of a call in the log; a server may report progress a thousand times
    per second"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("quiet_seconds", "idle_seconds", "grace_seconds", "progress_pause_seconds"))


DEFAULT_MCP_BOUNDS = McpBounds()
