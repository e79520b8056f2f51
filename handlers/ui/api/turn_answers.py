"""The JSON of turns, timelines and requests, as types: the OpenAPI document has their schemas."""

from typing import Literal

from pydantic import JsonValue
from typing_extensions import TypedDict

from lanebus.handlers.ui.api.answers import TokensAnswer

__all__ = ("ContextAnswer", "TimelineAnswer", "TurnRequestAnswer", "TurnsAnswer")


class ModelCallAnswer(TypedDict):
    """A call of the model."""

    position: int | None
    started: float | None
    """null if nobody recorded it, as in imported history"""
    ended: float | None
    message: int | None
    """position of the answer"""
    messageId: str | None
    stopReason: str | None


class WaitAnswer(TypedDict):
    """A wait of a tool call for a person."""

    position: int | None
    why: Literal["approval", "unknown"]
    since: float
    until: float | None
    decision: Literal["approve", "deny"] | None
    command: int | None
    """position of the decision's command"""
    by: str | None


class ToolAnswer(TypedDict):
    """A tool call of a turn."""

    id: str
    name: str
    isError: bool | None
    outcome: str | None
    result: int | None
    """position of the result"""
    started: float | None
    ended: float | None
    startedPosition: int | None
    endedPosition: int | None
    attempts: int
    waits: list[WaitAnswer]
    childLoop: str | None
    childSession: str | None
    childAgent: str | None


class TurnAnswer(TypedDict):
    """One turn: calls of the model with its tools."""

    index: int
    turnId: str | None
    loopId: str | None
    turnIndex: int | None
    trigger: str | None
    status: Literal["running", "completed", "failed", "aborted"]
    stopReason: str | None
    isRetry: bool
    provider: str | None
    model: str | None
    prompts: list[int]
    """positions of the user's messages"""
    message: int | None
    """position of the model's answer"""
    calls: list[ModelCallAnswer]
    tools: list[ToolAnswer]
    usage: TokensAnswer | None
    started: float
    ended: float | None
    startedPosition: int | None
    endedPosition: int | None
    lastPosition: int
    entries: int


class TurnsAnswer(TypedDict):
    """A window of the turns, oldest first."""

    count: int
    """number of all turns"""
    countedFrom: int | None
    """first counted position, if earlier entries were trimmed before they were counted"""
    turns: list[TurnAnswer]


class LoopAnswer(TypedDict):
    """A loop of a timeline."""

    loopId: str
    agent: str | None
    parent: str | None
    continuation: str | None
    status: str
    stopReason: str | None
    isSelected: bool | None
    usage: TokensAnswer | None
    started: float | None
    ended: float | None
    startedPosition: int | None
    endedPosition: int | None


class CompactionAnswer(TypedDict):
    """A compaction of a timeline."""

    loopId: str | None
    status: str
    tokensBefore: int | None
    tokensAfter: int | None
    started: float | None
    ended: float | None
    startedPosition: int | None
    endedPosition: int | None


class TimelineAnswer(TurnsAnswer):
    """A window of the turns with its loops and compactions, and the bounds of the session."""

    position: int
    first: int
    """index of the first turn of the window"""
    started: float | None
    ended: float | None
    usage: TokensAnswer
    loops: list[LoopAnswer]
    compactions: list[CompactionAnswer]


class RequestPart(TypedDict):
    """A message of a request."""

    index: int
    role: str
    position: int | None
    """position of its entry; null if it was made of several"""
    isMadeUp: bool
    """whether the log has no result of this tool call, and the model gets a placeholder"""


class ContextAnswer(TypedDict):
    """A request to a model, and where its messages come from."""

    position: int
    provider: str
    model: str | None
    system: list[RequestPart]
    messages: list[RequestPart]
    warnings: list[str]
    request: JsonValue
    """body of the request in the form of the provider"""


class TurnRequestAnswer(ContextAnswer):
    """The recorded request of a turn."""

    turnId: str
    isExact: bool
    """whether `request` is the body that was sent"""
    hasDefinition: bool
