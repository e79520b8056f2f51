"""The JSON of answers, as types: the OpenAPI document has their schemas."""

from typing import Literal, NotRequired

from pydantic import JsonValue
from typing_extensions import TypedDict

from lanebus.bus.messages import AnyContextEntry, Delta, Message, TurnId
from lanebus.handlers.projections import CardState, Doing


class ProblemAnswer(TypedDict):
    """An error (RFC 9457)."""

    type: Literal["about:blank"]
    title: str
    """the HTTP status in words"""
    status: int
    detail: str
    """text for people; it may change"""
    error: str
    """name of the error, such as `session_closed`"""


class AccessAnswer(TypedDict):
    """What a token allows."""

    name: str
    canWrite: bool
    actions: list[str]
    lanes: list[Literal["llm", "extension"]]
    sessions: list[str]
    """patterns of session ids"""
    expires: float | None
    """Unix time in seconds"""


class ForkOrigin(TypedDict):
    """Where a fork began."""

    session: str
    position: int


class SessionAnswer(TypedDict):
    """The head of a session."""

    id: str
    agent: str | None
    hasWorker: bool
    position: int
    """position of the last entry; 0 if there is none"""
    created: float | None
    updated: float | None
    sizeBytes: int
    trimmed: int
    """position of the last trimmed entry"""
    firstKept: int
    archived: int
    isClosed: bool
    origin: ForkOrigin | None


class Failure(TypedDict):
    """Work of a session that was given up or is tried again."""

    group: str
    """the consumer group"""
    attempts: int
    """number of attempts that failed"""
    reason: str
    """why the last attempt failed"""
    since: float | None
    """when workers gave it up; null while they try again"""


class CallDecision(TypedDict):
    """The approval or denial of a call that no worker has applied yet."""

    decision: Literal["approve", "deny"]
    by: str | None
    position: int
    """position of the command"""


class ListedSession(SessionAnswer):
    """A session of the list. A field is null where the token does not allow it, or the entries were not read yet."""

    title: str | None
    state: CardState | None
    failure: Failure | None
    """why it is dead or tried again; null otherwise, and for a token that may not read its dead letters"""
    cost: float | None
    turns: int | None
    waiting: int | None
    """number of calls that nobody has approved or denied"""
    isRead: bool


class ReadProgress(TypedDict):
    """How far the server has read the sessions, after its start or after new entries."""

    sessions: int
    """number of sessions that the token allows"""
    read: int
    """how many of them were read to their end"""


class SessionsAnswer(TypedDict):
    """A page of the sessions that match."""

    count: int
    """number of all that match"""
    sessions: list[ListedSession]
    cursor: str | None
    """value of `cursor` for the next page; null on the last one"""
    states: dict[CardState, int]
    """by state, the number of sessions that match if only the filter by state is changed to it"""
    agents: dict[str, int]
    """by agent, the same for the filter by agent. At most 100 agents, those with the most sessions"""
    isComplete: bool
    """whether all entries that the choice depends on were read: repeat the request until it is true"""
    progress: ReadProgress


class WaitingPlace(TypedDict):
    """A tool call that waits for a person, with its session."""

    session: str
    title: str | None
    agent: str
    turnId: TurnId
    toolCallId: str
    toolName: str
    why: str
    since: float | None
    position: int | None
    decision: CallDecision | None
    """null until somebody approves or denies the call"""


class WaitingAnswer(TypedDict):
    """The calls of all sessions that wait for a person, the longest wait first."""

    count: int
    waiting: list[WaitingPlace]
    isComplete: bool
    """whether all sessions were read: until then, calls may be missing"""
    progress: ReadProgress


class InlineImage(TypedDict):
    """An image with nothing but inline data."""

    type: Literal["image"]
    data: str
    """base64"""
    mimeType: str


class ExtensionEntry(TypedDict):
    """A message of the extension lane: an event, a command or any other notice."""

    role: Literal["extension"]
    kind: str
    data: JsonValue


class Unreadable(TypedDict):
    """An entry that cannot be decoded."""

    role: Literal["unreadable"]
    error: str
    raw: str


class Entry(TypedDict):
    """A stored message with its place."""

    position: int
    delta: int
    """0, except for a live delta"""
    cursor: str
    lane: Literal["llm", "extension"]
    time: float
    """time of the append, in Unix seconds"""
    producer: str
    isImported: NotRequired[Literal[True]]
    message: Message | AnyContextEntry | ExtensionEntry | Unreadable


class ChatMessagesAnswer(TypedDict):
    """A conversation as a client of the AI SDK shows it."""

    messages: list[dict[str, JsonValue]]
    """each a `UIMessage` of the AI SDK"""
    after: int | None
    """position for `?after=` of the stream that resumes the open answer; null if no answer is open"""


class LiveDelta(TypedDict):
    """A piece of a message that a model is writing, as in the `delta` frames of an event stream."""

    position: int
    delta: int
    cursor: str
    lane: Literal["llm"]
    time: float
    producer: str
    message: Delta


class EntriesAnswer(TypedDict):
    """Entries in the order of their positions."""

    entries: list[Entry]
    cursor: str
    """cursor after the last position that was read"""
    more: bool
    """whether the range has more positions: request them with `after` and this cursor"""
    previous: int | None
    """value of `before` that reads the positions before this answer; null if there are none"""


class Published(TypedDict):
    """What was appended."""

    positions: list[int]
    duplicate: bool
    """whether an earlier request with the same key appended it"""
    agent: NotRequired[str]
    """the agent that the session belongs to now; only if the request names one. After a repeat, it may be another"""
    hasWorker: NotRequired[bool]
    """whether a live worker serves `agent`; only if the request names one"""


class CallAwaited(TypedDict):
    """A tool call that waits for a person."""

    turnId: TurnId
    toolCallId: str
    toolName: str
    why: str | None
    decision: CallDecision | None
    """null until somebody approves or denies the call"""


class CurrentLoop(TypedDict):
    """The newest loop."""

    loopId: str
    turnIndex: int | None
    started: float
    ended: float | None


class OpenCommand(TypedDict):
    """A command without an answer."""

    position: int
    kind: str


class StatusAnswer(TypedDict):
    """What the agent does."""

    position: int
    state: CardState
    """what the session does, as in the list of sessions"""
    failure: Failure | None
    doing: Doing
    loop: CurrentLoop | None
    waiting: list[CallAwaited]
    commands: list[OpenCommand]


class CallAnswer(TypedDict):
    """A tool call of the newest loop."""

    toolCallId: str
    toolName: str
    position: int
    text: str
    """the arguments as JSON for people, or as the provider sent them"""
    callHash: str


class CostAnswer(TypedDict):
    """Exact amounts in US dollars, each as decimal text."""

    input: str
    output: str
    cache_read: str
    cache_write: str
    total: str
    source: NotRequired[str]


class TokensAnswer(TypedDict):
    """Tokens and cost."""

    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_write: int
    total_tokens: int
    cost: CostAnswer | None


class UsageAnswer(TokensAnswer):
    """Tokens and cost of a session."""

    calls: int
    calls_of_unknown_cost: int
    countedFrom: int | None


class UploadAnswer(TypedDict):
    """An upload."""

    session: str
    sha256: str
    sizeBytes: int
    mimeType: str | None
    """what the client said; when the upload is complete, what its first bytes show, if they show a type"""
    filename: str | None
    offset: int
    """number of bytes that have arrived: send those that follow"""
    isComplete: bool
    """whether all bytes have arrived, with the right SHA-256"""
    pieceBytes: int
    """maximum number of bytes of one piece"""
