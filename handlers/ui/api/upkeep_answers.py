"""The JSON of forks and of the upkeep of sessions, as types: the OpenAPI document has their schemas."""

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from lanebus.handlers.ui.api.answers import ForkOrigin
from lanebus.handlers.ui.api.bodies import Name

__all__ = (
    "EmptyBody",
    "ForkAnswer",
    "ForkBody",
    "ForksAnswer",
    "LettersAnswer",
    "ReasonBody",
    "RedriveAnswer",
    "TrimAnswer",
    "TrimBody",
)

_Position = Annotated[int, Field(ge=0, le=10**15)]


class ForkBody(TypedDict):
    """A fork to make."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    position: NotRequired[_Position | None]
    """last shared position; without it, the end"""
    id: NotRequired[Name | None]
    agent: NotRequired[Name | None]
    key: NotRequired[Name | None]


class TrimBody(TypedDict):
    """Entries to delete."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    before: _Position
    force: NotRequired[bool]
    dryRun: NotRequired[bool]


class ReasonBody(TypedDict):
    """Why a session is closed or reopened."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    reason: NotRequired[Name | None]
    key: NotRequired[Name | None]


class EmptyBody(TypedDict):
    """Nothing: `{}`."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class


class ForkOf(TypedDict):
    """A fork of a session."""

    session: str
    position: int
    """last position that it shares with the session"""
    agent: str
    last: int
    """its last position"""


class ForksAnswer(TypedDict):
    """The forks of a session, and what it was forked from."""

    origin: ForkOrigin | None
    forks: list[ForkOf]


class ForkAnswer(TypedDict):
    """The fork that was made."""

    session: str
    parent: str
    position: int


class LetterAnswer(TypedDict):
    """Work that workers gave up."""

    id: str
    group: str
    position: int
    attempts: int
    time: float
    reason: str


class LettersAnswer(TypedDict):
    """The dead letters of a session."""

    letters: list[LetterAnswer]


class RedriveAnswer(TypedDict):
    """How many letters were given back to the workers."""

    letters: int


class TrimAnswer(TypedDict):
    """What was deleted, or would be."""

    entries: int
    sizeBytes: int
    firstKept: int
    holders: dict[str, int]
    """who still needs entries, and from which position"""
    hiddenForks: int
    """number of forks that still need entries and that the token may not trim"""
    isDryRun: bool
