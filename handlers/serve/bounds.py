"""Bounds, periods and limits of the page and its API, with their defaults. Times are in seconds."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds
from lanebus.handlers.context import DEFAULT_PAST_BOUNDS, PastBounds
from lanebus.handlers.projections import DEFAULT_VIEW_BOUNDS, ViewBounds
from lanebus.handlers.protocols import DEFAULT_CONTENT_RULES
from lanebus.handlers.serve.access.credentials import DEFAULT_ACCESS_BOUNDS, AccessBounds
from lanebus.handlers.serve.session_index import DEFAULT_INDEX_BOUNDS, IndexBounds
from lanebus.handlers.serve.uploads import DEFAULT_UPLOAD_BOUNDS, UploadBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBounds:
    """Bounds of the connections to one HTTP server."""

    connections: int = 900
    """maximum number of open connections; further clients get 503. A process may often open only 1,024 files"""
    address_connections: int = 450
    """maximum number of open connections of one address, see `address_key`; further ones get 429. Trusted proxies and
    unix sockets have no such limit"""
    report_seconds: float = 10.0
    """shortest pause between two events `connections.refused`, each of which counts the connections since the last"""
    headers: int = 100
    """maximum number of headers of a request; more are refused with 431"""
    head_bytes: int = 32_768
    """maximum number of bytes of a request's path, query and headers together; more are refused with 431"""
    head_piece_bytes: int = 4_096
    """bytes of a request's head that are read at once; by so much a head may be larger before it is refused unread"""
    header_seconds: float = 10.0
    """longest time from the connection, or from the first byte of a later request, to the end of its header"""
    send_seconds: float = 30.0
    """A client that accepts no data for this time is disconnected, also if its response was already handed over."""
    buffered_bytes: int = 16_384
    """bytes that wait for a client before its response is paused"""
    received_bytes: int = 16_384
    """bytes of a client that are read at once. No more are read until the server has used these"""
    pieces: int = 1_000
    """number of pieces of a request's body, such as chunks, from which on they must have `piece_bytes` on average"""
    piece_bytes: int = 64
    """number of bytes of such a piece; a request with smaller ones is refused with 400"""
    kernel_bytes: int = 131_072
    """bytes that the kernel takes for a client before it has sent the previous ones; Linux and macOS only"""
    last_send_seconds: float = 1.0
    """When the server ends, a client that accepts no data for this time is disconnected."""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.http")


DEFAULT_HTTP_BOUNDS = HttpBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class UiBounds:
    """Bounds of one application."""

    heartbeat_seconds: float = 15.0
    """pause between two heartbeats on an event stream"""
    send_seconds: float = 30.0
    """A client that accepts no data for this time is disconnected, and resumes after its last event id."""
    memory_bytes: int = 16 * 1_048_576
    """Maximum number of bytes that the server holds for clients: answers that it makes of others, and responses that
    were not sent yet. Bodies of requests have half as much beside it. A further request waits."""
    principal_bytes: int = 12 * 1_048_576
    """maximum part of `memory_bytes` that one principal holds, whatever the number of its requests"""
    patience_seconds: float = 1.0
    """If a request waits for memory, clients that have accepted or sent no data for this time are disconnected."""
    wait_seconds: float = 30.0
    """longest wait of a request for memory, or for its turn; it is then answered with 503"""
    stream_wait_seconds: float = 300.0
    """longest wait of an event stream for memory; it then ends, and its client connects again"""
    small_bytes: int = 16_384
    """Bodies, responses and frames up to this size take no part of `memory_bytes`."""
    shared_bytes: int = 262_144
    """bytes of frames of new entries that are kept, so that a frame is encoded once for all subscribers"""
    piece_bytes: int = 32_768
    """bytes that are handed over at once. A client that accepts less than this in `send_seconds` is disconnected"""
    read_bytes: int = 1_048_576
    """bytes of entries that a response reads before it sends them; a single entry may be larger"""
    envelope_bytes: int = 300
    """estimate of what an entry adds to the size of its message in a response"""
    read_entries: int = 16
    """maximum number of entries that a response reads at once, if the session is larger than a share of `memory_bytes`.
    Entries after small ones may be large"""
    reads: int = 2
    """number of reads of entries at the same time. Principals take turns"""
    folds: int = 16
    """number of principals for whom sessions are folded. They take turns, and one fold works at a time"""
    queued: int = 900
    """Number of requests of one principal that wait for its turn; a further one is refused with 429. As many as the
    connections: after a restart, all streams of a shared token come at once, and a browser does not repeat a refused
    one"""
    answer_bytes: int = 8 * 1_048_576
    """After this many bytes of entries, a response of `GET …/entries` ends, with `more` and a cursor."""
    body_seconds: float = 30.0
    """longest time that a request's body may take"""
    preflight_seconds: int = 600
    """time for which a browser may remember the answer to a preflight of an allowed origin"""
    retry_seconds: float = 2.0
    """time that a browser waits before it reconnects a lost event stream"""
    last_frame_seconds: float = 1.0
    """longest time that sending the last frame of a stream may take"""
    grace_seconds: int = 3
    """longest wait for running requests when the server ends; event streams end at once"""
    body_bytes: int = 1_000_000
    """maximum number of bytes of a request's body"""
    dropped_bytes: int = 16_000_000
    """A body over `body_bytes` that announces at most this many bytes is read to its end, so that the client gets the
    response."""
    page_entries: int = 1_000
    """maximum number of entries in one response of `GET …/entries`"""
    media_bytes: int = 16_777_216
    """maximum number of bytes of stored media in one response; larger media are refused"""
    skipped_entries: int = 100
    """after this many entries that a stream leaves out, it sends a frame that only moves the client's cursor"""
    sessions: int = 500
    """maximum number of sessions in one response, which has the most recently active sessions"""
    agents: int = 100
    """maximum number of agents that one response counts sessions of: those with the most"""
    streamed_sessions: int = 50
    """maximum number of sessions of one event stream"""
    changes_seconds: float = 0.5
    """pause between two readings of the change notices, while a client reads `/api/changes`"""
    changes_kept: int = 20
    """number of readings with changes that are kept for slow clients. A client that misses one lists all anew"""
    turns: int = 200
    """maximum number of turns in one response, which has the newest turns. A long session has thousands of turns, and
    the page requests them whenever a turn ends."""
    run_entries: int = 2_000
    """number of the newest entries that a run of AG-UI reads for the conversation so far"""
    run_messages: int = 500
    """maximum number of messages of the conversation that a run of AG-UI begins with; older ones are left out"""
    run_bytes: int = 524_288
    """maximum number of characters of these messages; the newest message may be longer"""
    http: HttpBounds = DEFAULT_HTTP_BOUNDS
    """bounds of the connections"""
    views: ViewBounds = DEFAULT_VIEW_BOUNDS
    """bounds of the projection states that are kept in memory, so that a request reads only new entries"""
    contexts: PastBounds = DEFAULT_PAST_BOUNDS
    """bounds of the contexts of past positions that are kept in memory, for clients that go back in a session"""
    index: IndexBounds = DEFAULT_INDEX_BOUNDS
    """bounds of the index of all sessions, for lists and searches"""
    state_seconds: float = 0.25
    """shortest pause between two states of a projection on its event stream"""
    commands: int = 200
    """number of commands of a session that wait for a worker; a further one is refused, as each status holds all"""
    letters: int = 100
    """maximum number of dead letters in one response"""
    message_blocks: int = DEFAULT_CONTENT_RULES.blocks
    """maximum number of blocks of a posted message"""
    inline_bytes: int = DEFAULT_CONTENT_RULES.inline_bytes
    """maximum number of bytes of the inline media of a posted message together; larger ones are uploaded"""
    uploads: UploadBounds = DEFAULT_UPLOAD_BOUNDS
    """bounds of uploads"""
    request_bytes: int = 8 * 1_048_576
    """maximum number of bytes of a request to a model that is shown; larger ones are refused"""
    access: AccessBounds = DEFAULT_ACCESS_BOUNDS
    """bounds of the access rules: requests of a principal, wrong tokens, and how soon a revocation counts"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("grace_seconds", "dropped_bytes"))


DEFAULT_UI_BOUNDS = UiBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerBounds:
    """Bounds of one server for MCP clients."""

    answer_bytes: int = 60_000
    """maximum number of bytes of an answer. Long texts of a larger one are cut, and then older messages are left out"""
    read_bytes: int = 16 * 1_048_576
    """maximum number of bytes of an answer before it is cut; a larger one is refused"""
    small_bytes: int = 65_536
    """Over HTTP, an answer that is larger before it is cut is read again once the memory for it is held."""
    calls: int = 8
    """number of requests over HTTP that are answered at the same time; further ones wait for their turn"""
    shortest_text: int = 200
    """number of characters to which a text may be cut"""
    page: int = 20
    """number of sessions, entries or turns of an answer, if the client asks for no other number"""
    complete_seconds: float = 5.0
    """longest time for which a list of sessions is asked for again until it is complete"""
    line_bytes: int = 4 * 1_048_576
    """maximum number of bytes of a client's message over stdin; a longer one is refused. Over HTTP,
    `UiBounds.body_bytes` counts too"""
    request_seconds: float = 60.0
    """longest time in which a request over HTTP is read and answered"""
    end_seconds: float = 5.0
    """longest wait at the end, until the last answer has left"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_MCP_SERVER_BOUNDS = McpServerBounds()
