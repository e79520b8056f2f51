"""Forks and the upkeep of a session: dead letters, trims, closing and reopening."""

import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing
from typing import Annotated, NamedTuple, NotRequired

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from lanebus.bus import Session, checkpoints
from lanebus.bus.errors import DecodeError, SessionClosed, SessionErased, TrimRefused
from lanebus.bus.messages import ExtensionMessage, Lane
from lanebus.bus.wire import CLOSED, REOPENED, Outcome, Receipt
from lanebus.handlers.projections import trim_session
from lanebus.handlers.serve.api.bodies import ForkOrigin, Name, Published, check_fields, check_key
from lanebus.handlers.serve.api.commands import check_repeat
from lanebus.handlers.serve.api.endpoint import ApiContext, ApiEndpoint, Handler
from lanebus.handlers.serve.api.sessions import origin_json
from lanebus.handlers.serve.guard import owner_of
from lanebus.handlers.serve.replies import AccessDenied, RequestRefused, answer

# The JSON of forks and of the upkeep of sessions, as types: the OpenAPI document has their schemas.

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
    more: bool
    """whether it has more forks than one answer holds"""


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


_ID_LIMIT = 64
_ID_DIGITS = 12


async def forks(api: ApiContext, request: Request) -> Response:
    """Return `{"origin": {"session": …, "position": …}, "forks": […]}`: where a session was forked from, and its forks.

    `origin` is null if the session is no fork, or if the token does not allow the other session. Forks that the token
    does not allow are left out. Of very many, the first ones by name are returned, and `more` is true.
    """
    session = api.session(request)
    await api.gate.require(request, "read.forks", session=session.id)

    async def listed() -> object:
        head, holders = await session.head(), await session.checkpoints()
        if head.is_erased:
            raise SessionErased(session.id)
        names = sorted(name[2:] for name in holders if name.startswith("f:"))
        shown = names[: api.bounds.sessions]
        heads = [each for each in await api.bus.log.heads(shown) if not each.is_erased]
        visible = await api.gate.visible_lanes(request, "read.forks", heads)
        return {
            "origin": await origin_json(api, request, "read.forks", head),
            "forks": [
                {
                    "session": each.session,
                    "position": each.origin.position,
                    "agent": each.agent,
                    "last": each.position,
                }
                for each in heads
                if each.origin is not None and each.session in visible
            ],
            "more": len(shown) < len(names),
        }

    return api.listed(listed)


async def post_fork(api: ApiContext, request: Request) -> Response:
    """Fork a session with `{"position"?: …, "id"?: …, "agent"?: …, "key"?: …}`. 201 with the fork's `session`.

    The fork shares the entries up to `position`; without it, all. The token must also allow the session that is made.
    Without `id`, its id begins with that of the session. A repeat with the same `position`, and the same `id` or `key`,
    is answered with 200.
    """
    session, posted = api.session(request), read_fork(await api.body(request))
    await api.gate.require(request, "fork", session=session.id, lanes=Lane)
    name = posted.id or _fork_id(session.id, posted.key)
    decided = api.gate.decided_agent(request, session.id)
    agent = posted.agent or decided or (await session.head()).agent
    await api.gate.require(request, "fork", session=name, agent=agent or None, lanes=Lane)
    is_new = (await api.bus.session(name).head()).origin is None
    async with api.history.reads.turn(owner_of(request.scope)):  # the entry at the position may be in the archive
        decided = api.gate.decided_agent(request, session.id)  # asks the token again
        fork = await session.fork(posted.position, id=name, agent=posted.agent, belongs_to=decided)
    origin = (await fork.head()).origin
    shared = 0 if origin is None else origin.position
    return answer({"session": fork.id, "parent": session.id, "position": shared}, 201 if is_new else 200)


async def dead_letters(api: ApiContext, request: Request) -> Response:
    """Return `{"letters": [{"id", "group", "position", "attempts", "time", "reason"}, …]}`: work that workers gave up.

    At most `UiBounds.letters` are returned.
    """
    session = api.session(request)
    await api.gate.require(request, "read.dead_letters", session=session.id, lanes=Lane)

    async def listed() -> object:
        found: list[JsonValue] = []
        for group in await api.bus.groups():
            async with aclosing(api.bus.dead_letters(group).read(session.id)) as letters:
                async for letter in letters:
                    if len(found) == api.bounds.letters:
                        return {"letters": found}
                    found.append(
                        {
                            "id": letter.id,
                            "group": group,
                            "position": letter.position,
                            "attempts": letter.attempts,
                            "time": letter.time,
                            "reason": letter.reason,
                        }
                    )
        return {"letters": found}

    return api.listed(listed)


async def post_redrive(api: ApiContext, request: Request) -> Response:
    """Give the dead letters of a session back to the workers, with `{}`. The answer is `{"letters": <number>}`.

    Nothing is appended to the session. A repeat gives back only letters that were added since.
    """
    session = api.session(request)
    read_empty(await api.body(request))
    await api.gate.require(request, "redrive", session=session.id)

    async def redrive() -> int:
        letters = [api.bus.dead_letters(group) for group in await api.bus.groups()]
        decided = api.gate.decided_agent(request, session.id)
        return sum([await each.redrive_all(session.id, agent=decided) for each in letters])

    return answer({"letters": await api.folded(owner_of(request.scope), redrive)})


async def post_trim(api: ApiContext, request: Request) -> Response:
    """Delete the entries before a position with `{"before": …, "force"?: …, "dryRun"?: …}`.

    The answer has `entries`, `sizeBytes`, `firstKept`, and the `holders` that still need these entries. 409 if there
    are holders, unless `force` is true. With `dryRun`, nothing is deleted. Forks that the token may not trim are not
    named: `hiddenForks` is their number, and `force` is refused because of them (403).
    """
    session, posted = api.session(request), read_trim(await api.body(request))
    await api.gate.require(request, "trim", session=session.id, lanes=Lane)
    return await api.folded(owner_of(request.scope), lambda: _trim(api, request, session, posted))


async def _trim(api: ApiContext, request: Request, session: Session, posted: "PostedTrim") -> Response:
    known: Collection[str] | None = None
    if posted.force and api.gate.is_limited(request):
        decided = api.gate.decided_agent(request, session.id)
        planned = await trim_session(session, posted.before, dry_run=True, agent=decided)
        await _require_forks(api, request, await _hidden_forks(api, request, planned.holders))
        known = planned.holders  # a fork that is made meanwhile was not asked about
    decided = api.gate.decided_agent(request, session.id)
    try:
        trimmed = await trim_session(
            session, posted.before, force=posted.force, dry_run=posted.is_dry_run, agent=decided, known=known
        )
    except TrimRefused as refused:
        if hidden := await _hidden_forks(api, request, refused.holders):
            raise RequestRefused(409, "trim_refused", _refusal(refused, hidden)) from None
        raise
    hidden = await _hidden_forks(api, request, trimmed.holders)
    return answer(
        {
            "entries": trimmed.entries,
            "sizeBytes": trimmed.size_bytes,
            "firstKept": trimmed.first_kept,
            "holders": _shown(trimmed.holders, hidden),
            "hiddenForks": len(hidden),
            "isDryRun": posted.is_dry_run,
        }
    )


async def _hidden_forks(api: ApiContext, request: Request, holders: Iterable[str]) -> set[str]:
    """Return the forks among the holders of entries, and the forks of these, that the principal may not trim."""
    found, level, seen = set[str](), _forks_of(holders), set[str]()
    while level and api.gate.is_limited(request):
        seen |= level
        if len(seen) > api.bounds.sessions:
            what = f"the session has more than {api.bounds.sessions} forks, and each has to be asked for"
            raise RequestRefused(409, "trim_refused", f"{what}: trim it with a token that allows all sessions")
        heads = await api.bus.log.heads(sorted(level))
        lanes = await api.gate.visible_lanes(request, "trim", heads)
        found |= {name for name in level if len(lanes.get(name, ())) < len(Lane)}
        level = await _forks_of_each(api, level) - seen or await _forks_of_each(api, seen) - seen  # made meanwhile
    return found


async def _forks_of_each(api: ApiContext, sessions: Collection[str]) -> set[str]:
    return set[str]().union(*map(_forks_of, await checkpoints(api.bus.log, sorted(sessions))))


def _forks_of(holders: Iterable[str]) -> set[str]:
    return {name.removeprefix("f:") for name in holders if name.startswith("f:")}


async def _require_forks(api: ApiContext, request: Request, hidden: Collection[str]) -> None:
    """Refuse a trim by force that would delete the entries of these forks. The audit log names the first of them."""
    for name in sorted(hidden):
        try:
            await api.gate.require(request, "trim", session=name, lanes=Lane)
        except AccessDenied:
            what = f"{_number(hidden)} that this token may not trim: trim less, or use a token that allows them"
            raise AccessDenied(f"the entries are shared with {what}") from None


def _refusal(refused: TrimRefused, hidden: Collection[str]) -> str:
    shown = [f"{name} at {position}" for name, position in sorted(_shown(refused.holders, hidden).items())]
    needed_by = ", ".join([*shown, f"{_number(hidden)} that this token may not trim"])
    return f"entries of this session before position {refused.before} are still needed by {needed_by}: trim less"


def _shown(holders: Mapping[str, int], hidden: Collection[str]) -> dict[str, int]:
    return {name: position for name, position in holders.items() if name.removeprefix("f:") not in hidden}


def _number(forks: Collection[str]) -> str:
    return f"{len(forks)} fork{'s' if len(forks) > 1 else ''}"


async def post_close(api: ApiContext, request: Request) -> Response:
    """Close a session with `{"reason"?: …, "key"?: …}`: it takes no more messages. 201 with the event's position.

    A repeat with the same key adds nothing, also after the session was reopened, and its status is 200. If the session
    is closed already, nothing is published, the key is not kept, and the status is 200. 404 if it has no entries, 409
    if the key belongs to other content.
    """
    session, posted = api.session(request), read_reason(await api.body(request))
    await api.gate.require(request, "close", session=session.id, lanes=(Lane.EXTENSION,))
    await api.require_entries(session)
    decided = api.gate.decided_agent(request, session.id)
    try:
        receipt = await session.close(reason=posted.reason, key=posted.key, agent=decided)
    except SessionClosed:
        return _published(None)
    await check_repeat(session, receipt, posted.key, ExtensionMessage.of(CLOSED, {"reason": posted.reason}))
    return _published(receipt)


async def post_reopen(api: ApiContext, request: Request) -> Response:
    """Reopen a closed session with `{"reason"?: …, "key"?: …}`. 201 with the event's position.

    A repeat with the same key adds nothing, also after the session was closed again, and its status is 200. If the
    session is open, nothing is published, the key is not kept, and the status is 200. 409 if the key belongs to other
    content.
    """
    session, posted = api.session(request), read_reason(await api.body(request))
    await api.gate.require(request, "reopen", session=session.id, lanes=(Lane.EXTENSION,))
    head, note = await session.head(), ExtensionMessage.of(REOPENED, {"reason": posted.reason})
    if head.is_erased:
        raise SessionErased(session.id)
    decided = api.gate.decided_agent(request, session.id)
    receipt: Outcome | None = None
    if head.is_closed:
        receipt = await session.reopen(reason=posted.reason, key=posted.key, agent=decided)
    elif posted.key is not None and head.position:  # only a repeat is answered: the session has entries
        receipt = await session.try_publish(note, key=posted.key, expected=0)
    if not isinstance(receipt, Receipt):
        return _published(None)
    await check_repeat(session, receipt, posted.key, note)
    return _published(receipt)


def _published(receipt: Receipt | None) -> Response:
    """Return the answer to a change of state; None means that the session was in the state already."""
    if receipt is None:
        return answer({"positions": [], "duplicate": True})
    return answer(
        {"positions": list(receipt.positions), "duplicate": receipt.is_duplicate}, 200 if receipt.is_duplicate else 201
    )


def _fork_id(session: str, key: str | None) -> str:
    """Return the id of a fork: the session's id, so that the same patterns of a token match it, and digits."""
    drawn = secrets.token_hex(_ID_DIGITS) if key is None else hashlib.sha256(f"{session} {key}".encode()).hexdigest()
    return f"{session[: _ID_LIMIT - _ID_DIGITS - 1]}-{drawn[:_ID_DIGITS]}"


_SESSION = "/api/sessions/{session}"


def _changes_state(name: str, handler: Handler) -> ApiEndpoint:
    return ApiEndpoint(
        method="POST",
        path=f"{_SESSION}/{name}",
        handler=handler,
        body=ReasonBody,
        answer=Published,
        statuses=(200, 201),
        is_traced=True,
    )


ENDPOINTS = (
    ApiEndpoint(path=f"{_SESSION}/forks", handler=forks, answer=ForksAnswer),
    ApiEndpoint(
        method="POST",
        path=f"{_SESSION}/forks",
        handler=post_fork,
        body=ForkBody,
        answer=ForkAnswer,
        statuses=(200, 201),
    ),
    ApiEndpoint(path=f"{_SESSION}/dead-letters", handler=dead_letters, answer=LettersAnswer),
    ApiEndpoint(method="POST", path=f"{_SESSION}/redrive", handler=post_redrive, body=EmptyBody, answer=RedriveAnswer),
    ApiEndpoint(method="POST", path=f"{_SESSION}/trim", handler=post_trim, body=TrimBody, answer=TrimAnswer),
    _changes_state("close", post_close),
    _changes_state("reopen", post_reopen),
)


# Decode the requests that fork, trim, close and reopen a session.

_FURTHEST = 10**15
"""a position that no session reaches"""


class PostedFork(NamedTuple):
    """A client's request to fork a session."""

    position: int | None
    """last shared position; None means the end"""
    id: str | None
    agent: str | None
    key: str | None


class PostedTrim(NamedTuple):
    """A client's request to delete a session's oldest entries."""

    before: int
    force: bool
    is_dry_run: bool


class PostedReason(NamedTuple):
    """A client's request to close or reopen a session."""

    reason: str
    key: str | None


def read_fork(body: JsonValue) -> PostedFork:
    """Decode a fork `{"position"?: …, "id"?: …, "agent"?: …, "key"?: …}`.

    Raises:
        DecodeError: the body is not a fork, has other fields, or a field's value is not allowed.
    """
    fields = _posted_fields(
        body, ("position", "id", "agent", "key"), 'fork with {"position": …}, "id", "agent" and "key"'
    )
    position = None if fields.get("position") is None else _posted_position(fields, "position")
    name, agent, key = (check_key(fields.get(field), field) for field in ("id", "agent", "key"))
    if name is not None and key is not None:
        raise DecodeError("key", "leave it out: an id with a position makes a repeat safe too")
    if key is not None and position is None:
        raise DecodeError("position", "name it, so that a repeat with the same key is of the same fork")
    return PostedFork(position, name, agent, key)


def read_trim(body: JsonValue) -> PostedTrim:
    """Decode a trim `{"before": …, "force"?: …, "dryRun"?: …}`.

    Raises:
        DecodeError: the body is not a trim, has other fields, or a field's value is not allowed.
    """
    fields = _posted_fields(body, ("before", "force", "dryRun"), 'trim with {"before": …}, "force" and "dryRun"')
    return PostedTrim(_posted_position(fields, "before"), _posted_flag(fields, "force"), _posted_flag(fields, "dryRun"))


def read_reason(body: JsonValue) -> PostedReason:
    """Decode `{"reason"?: …, "key"?: …}`.

    Raises:
        DecodeError: the body has other fields, or a field's value is not allowed.
    """
    fields = _posted_fields(body, ("reason", "key"), 'give {"reason": …} and "key", or {}')
    return PostedReason(check_key(fields.get("reason"), "reason") or "", check_key(fields.get("key"), "key"))


def read_empty(body: JsonValue) -> None:
    """Check that the body is `{}`. Raises DecodeError if it is not."""
    if body != {}:
        raise DecodeError("", "post {}")


def _posted_fields(body: JsonValue, allowed: tuple[str, ...], advice: str) -> dict[str, JsonValue]:
    if not isinstance(body, dict):
        raise DecodeError("", advice)
    check_fields(body, allowed)
    return body


def _posted_position(fields: dict[str, JsonValue], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _FURTHEST:
        raise DecodeError(name, "must be a position: a whole number from 0")
    return value


def _posted_flag(fields: dict[str, JsonValue], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise DecodeError(name, "must be true or false")
    return value
