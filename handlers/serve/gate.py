"""Ask the access rules for each route, and for as long as its answer is being made or its event stream is open.

A right may depend on the agent that a session belongs to. If the session is handed over meanwhile, the right is asked
for again before an entry that follows the handover is sent.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, nullcontext
from dataclasses import replace

import anyio
import anyio.lowlevel
from starlette.requests import Request
from starlette.types import Scope

from lanebus.bus import Bus, Follower, SessionHead
from lanebus.bus.messages import ExtensionMessage, Lane, UserMessage
from lanebus.bus.wire import Envelope, Notice
from lanebus.handlers.serve.access.access import Access, Refusal
from lanebus.handlers.serve.access.credentials import (
    ALL,
    AccessRequest,
    Decision,
    Identified,
    Principal,
    decide_by_rights,
)
from lanebus.handlers.serve.budget import away_from_turn
from lanebus.handlers.serve.guard import address_of, identified, require_valid
from lanebus.handlers.serve.replies import AccessDenied, RequestRefused

_RIGHTS = "lanebus.rights"
_LISTED = "lanebus.listed"
_SESSIONS_AT_ONCE = 8
"""number of sessions of one list about which a hook is asked at the same time"""

_ListedKey = tuple[str, str, str]
"""action, session, and agent of the session"""


class SessionRight:
    """The right to one session, if it depends on the session's agent or on a hook."""

    def __init__(self, access: Access, bus: Bus, asked: Iterable[AccessRequest]) -> None:
        """
        Args:
            access: the rules.
            bus: the bus of the session.
            asked: the requests about the session that were allowed: one for each lane.
        """
        self._access, self._bus, self._asked = access, bus, tuple(asked)
        self.session, self._agent = self._asked[0].session, self._asked[0].agent
        self._items: Follower | None = None
        self._refusal: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the right was open when it was last checked."""
        return self._refusal is None

    @property
    def agent(self) -> str | None:
        """The session's agent when the right was last asked for; "" if it had none."""
        return self._agent

    @property
    def is_current(self) -> bool:
        """Whether the right is open, and was asked for with the agent that the followed session belongs to now."""
        items, agent = self._items, self._agent  # hot path: asked for each frame
        return self._refusal is None and (items is None or (items.agent or agent) == agent)

    async def require(self, agent: str) -> None:
        """Ask for the right again, if the session belongs to another agent now.

        Args:
            agent: the session's agent, as of the next entry that is sent, or later.

        Raises:
            AccessDenied: the right has ended.
        """
        if agent != self._agent and self._refusal is None:
            await self._ask(agent)
        if self._refusal is not None:
            raise AccessDenied(self._refusal)

    async def confirm(self) -> None:
        """Read which agent the session belongs to now, and `require` the right. Call it after reading entries.

        Raises:
            AccessDenied: the right has ended.
        """
        self._items = None
        await self.require((await self._bus.session(self.session or "").head()).agent)

    async def guarded(self, items: Follower) -> AsyncGenerator[Envelope | Notice]:
        """Yield the items of a session that is followed, as long as the right is open.

        Raises:
            AccessDenied: the right has ended. No item was yielded since.
            BusError: the errors of `Session.subscribe`.
        """
        self._items = items
        async with aclosing(items):
            async for item in items:
                await self.require(items.agent)
                yield item

    def check(self) -> None:
        """Ask the built-in rules again, if the session that is followed belongs to another agent now."""
        if not self._access.has_hook and self.is_open and (agent := self._known_agent()) != self._agent:
            self._note(agent, [decide_by_rights(each) for each in self._asked_for(agent)])

    async def ask(self) -> None:
        """Ask the hook again."""
        if self.is_open:
            await self._ask(self._known_agent())

    async def _ask(self, agent: str | None) -> None:
        self._note(agent, [await self._access.ask(each) for each in self._asked_for(agent)])

    def _known_agent(self) -> str | None:
        return (None if self._items is None else self._items.agent) or self._agent

    def _asked_for(self, agent: str | None) -> list[AccessRequest]:
        return [replace(each, agent=agent) for each in self._asked]

    def _note(self, agent: str | None, decisions: Iterable[Decision]) -> None:
        refused = next((each for each in decisions if not each.is_allowed), None)
        if refused is None:
            self._agent = agent
        elif self._refusal is None:
            self._refusal = refused.reason
            self._access.log_end(replace(self._asked[0], agent=agent))
            if self._items is not None:
                self._items.fail(AccessDenied(refused.reason))


class StreamAccess:
    """The right to one open event stream. It ends when the token does, or the rights to all of its sessions."""

    def __init__(
        self, access: Access, known: Identified, asked: Iterable[AccessRequest], rights: Iterable[SessionRight]
    ) -> None:
        """
        Args:
            access: the rules.
            known: the principal.
            asked: the requests that were allowed when the stream began: one for each lane.
            rights: those of the requests that may end before the token does, one for each session.
        """
        self._access, self._known, self._asked = access, known, tuple(asked)
        self._rights = {each.session: each for each in rights}
        self._is_open = True

    @property
    def was_open(self) -> bool:
        """Whether the right was open when it was last checked. Checking the token costs as much as sending a frame."""
        return self._is_open

    @property
    def key(self) -> str:
        """Names the principal and its token."""
        return f"{self._known.principal.name} {self._known.principal.token_id}"

    @property
    def has_hook(self) -> bool:
        """Whether a hook decides, which `wait_ended` asks again and again."""
        return self._access.has_hook

    def right(self, session: str) -> SessionRight | None:
        """Return the right to a session; None if it lasts as long as the token."""
        return self._rights.get(session)

    def is_open(self) -> bool:
        """Return whether the next frame may be sent. The end of the right is logged once."""
        if self._is_open and not self._known.is_valid():
            self._is_open = False
            self._access.log_end(self._asked[0])
        for right in self._rights.values():
            right.check()
        if self._rights and not any(right.is_open for right in self._rights.values()):
            self._is_open = False
        return self._is_open

    async def wait_ended(self) -> None:
        """Wait until the right has ended. A hook is asked about all sessions at once, so that no answer is old."""
        while self.is_open():
            await anyio.sleep(self._access.refresh_seconds)
            if self._access.has_hook:
                async with anyio.create_task_group() as tasks:
                    for right in self._rights.values():
                        tasks.start_soon(right.ask)


async def confirm(scope: Scope) -> None:
    """Check the token and the rights of a request again, when its answer was made and nothing was sent.

    Raises:
        RequestRefused: 401; the token has ended meanwhile.
        AccessDenied: a session was handed over meanwhile, and the principal has no right to it any more.
    """
    require_valid(scope)
    rights: list[SessionRight] = scope.get(_RIGHTS, [])
    for right in rights:
        await right.confirm()
    require_valid(scope)  # a hook may have been asked again


class Gate:
    """Refuses the requests that the access rules do not allow."""

    def __init__(self, access: Access, bus: Bus) -> None:
        self._access, self._bus = access, bus

    async def require_lanes(
        self, request: Request, action: str, session: str, lanes: Iterable[Lane] | None
    ) -> tuple[frozenset[Lane], list[AccessRequest]]:
        """Return the lanes, and the requests that were allowed, if the principal may read each of them.

        Args:
            request: the HTTP request.
            action: see `AccessRequest`.
            session: id of the session.
            lanes: the lanes; None means those that the principal may read, at least one.

        Raises:
            AccessDenied: it may not.
        """
        if lanes is None:
            return await self.allowed_lanes(request, action, session)
        wanted = frozenset(lanes)
        asked = await self._asked(request, action, session, None, wanted)
        await self._decide(request, asked)
        return wanted, asked

    async def require(
        self,
        request: Request,
        action: str,
        *,
        session: str | None = None,
        agent: str | None = None,
        lanes: Iterable[Lane] = (),
    ) -> Principal:
        """Return the principal of a request, if it may do this in each of the lanes.

        Args:
            request: the HTTP request.
            action: see `AccessRequest`.
            session: id of the session.
            agent: the agent that the session will have.
            lanes: lanes that are read or written; none means that no lane is.

        Raises:
            AccessDenied: it may not.
        """
        await self.required(request, action, session=session, agent=agent, lanes=lanes)
        return identified(request.scope).principal

    def count_appended(self, request: Request, *posted: UserMessage | ExtensionMessage) -> None:
        """Count what a request appends, by messages and bytes, in the limit of its principal. Append it right after.

        Args:
            request: the HTTP request.
            posted: all that it will append.

        Raises:
            RequestRefused: 429 if the principal appends too much, 413 if the request alone does; 401 as for
                `require_valid`.
        """
        self.count_bytes(request, *(len(each.to_json()) for each in posted))

    def count_bytes(self, request: Request, *sizes: int) -> None:
        """Count what a request stores, by the bytes of each part. Errors are those of `count_appended`."""
        require_valid(request.scope)  # it may have waited: for its memory, for a turn, or for a hook
        self._allow(self._access.count_appended(identified(request.scope).principal, sizes, address_of(request.scope)))

    def count_followed(self, request: Request, sessions: int) -> None:
        """Count the sessions of an event stream in the limit of its principal. Raise RequestRefused, 429, beyond it."""
        address = address_of(request.scope)
        self._allow(self._access.count_followed(identified(request.scope).principal, sessions, address))

    @staticmethod
    def _allow(refused: Refusal | None) -> None:
        if refused is not None:
            headers = None if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
            raise RequestRefused(refused.status, refused.error, refused.message, headers)

    async def required(
        self,
        request: Request,
        action: str,
        *,
        session: str | None = None,
        agent: str | None = None,
        lanes: Iterable[Lane] = (),
    ) -> list[AccessRequest]:
        """Return the requests that were allowed, for `stream`. Arguments and errors are those of `require`."""
        questions = await self._asked(request, action, session, agent, tuple(lanes) or (None,))
        await self._decide(request, questions)
        return questions

    async def allowed_lanes(
        self, request: Request, action: str, session: str
    ) -> tuple[frozenset[Lane], list[AccessRequest]]:
        """Return the lanes that the principal may read, at least one, and the requests that were allowed.

        Raises:
            AccessDenied: it may read no lane.
        """
        address, allowed = address_of(request.scope), list[AccessRequest]()
        decisions = [
            (asked, await self._access.ask(asked))
            for asked in await self._asked(request, action, session, None, list(Lane))
        ]
        for asked, decision in decisions:
            if decision.is_allowed:
                self._access.record(asked, decision, address)
                allowed.append(asked)
        if not allowed:
            self._access.record(*decisions[0], address)
            raise AccessDenied(decisions[0][1].reason)
        require_valid(request.scope)
        self._note(request, allowed)
        return frozenset(asked.lane for asked in allowed if asked.lane is not None), allowed

    async def visible_lanes(
        self, request: Request, action: str, heads: Iterable[SessionHead]
    ) -> dict[str, frozenset[Lane]]:
        """Return the sessions in which the principal may do `action`, each with the lanes in which it may.

        Decisions are not logged. Use it to filter a list.
        """
        principal, listed = identified(request.scope).principal, tuple(heads)
        if self._access.has_hook:
            return await self._lanes_by_hook(request, action, listed)
        found, is_limited = dict[str, frozenset[Lane]](), self.is_limited(request)
        known: frozenset[Lane] | None = None
        for index, head in enumerate(listed):
            if is_limited or not index:  # without patterns, all sessions have the same answer
                known = await self._lanes_in(principal, action, head)
            if known is not None:
                found[head.session] = known
        return found

    async def _lanes_by_hook(
        self, request: Request, action: str, heads: Iterable[SessionHead]
    ) -> dict[str, frozenset[Lane]]:
        """Ask the hook about some sessions at a time, and once in a request. Meanwhile, others have the turn."""
        principal = identified(request.scope).principal
        keys: dict[_ListedKey, SessionHead] = {(action, each.session, each.agent): each for each in heads}
        answers: dict[_ListedKey, frozenset[Lane] | None] = request.scope.setdefault(_LISTED, {})
        unknown = [key for key in keys if key not in answers]
        left = iter(unknown)

        async def ask() -> None:
            for key in left:
                answers[key] = await self._lanes_in(principal, action, keys[key])
                await anyio.lowlevel.checkpoint()  # a hook may answer at once, thousands of times

        if unknown:
            async with away_from_turn(), anyio.create_task_group() as tasks:
                for _ in range(min(_SESSIONS_AT_ONCE, len(unknown))):
                    tasks.start_soon(ask)
        return {head.session: lanes for key, head in keys.items() if (lanes := answers.get(key)) is not None}

    async def _lanes_in(self, principal: Principal, action: str, head: SessionHead) -> frozenset[Lane] | None:
        lanes = set[Lane]()
        for lane in (None, *Lane):
            asked = AccessRequest(principal=principal, action=action, session=head.session, agent=head.agent, lane=lane)
            is_allowed = (await self._access.ask(asked)).is_allowed
            if lane is None and not is_allowed:
                return None
            if lane is not None and is_allowed:
                lanes.add(lane)
        return frozenset(lanes)

    def is_limited(self, request: Request) -> bool:
        """Return whether the principal may do less in some sessions than in others."""
        principal = identified(request.scope).principal
        return self._access.has_hook or principal.sessions != ALL or principal.agents != ALL

    async def may(self, request: Request, action: str, session: str) -> bool:
        """Return whether the principal may do `action` in a session, in any lane. The decision is not logged."""
        asked = await self._asked(request, action, session, None, (None,))
        async with away_from_turn() if self._access.has_hook else nullcontext():
            return all([(await self._access.ask(each)).is_allowed for each in asked])

    def stream(self, request: Request, allowed: Iterable[AccessRequest]) -> StreamAccess:
        """Return the permission for an event stream, made of the requests that `allowed_lanes` allowed."""
        allowed, known = tuple(allowed), identified(request.scope)
        return StreamAccess(self._access, known, allowed, self._rights(known.principal, allowed))

    def right(self, request: Request, session: str) -> SessionRight | None:
        """Return the right to a session about which a request was allowed; None if it lasts as long as the token."""
        rights: list[SessionRight] = request.scope.get(_RIGHTS, [])
        return next((each for each in rights if each.session == session), None)

    def decided_agent(self, request: Request, session: str) -> str | None:
        """Return the agent with which a right to a session was asked for, for a change that another agent's session
        has to refuse; None if any agent's may take it. Call it right before the change.

        Raises:
            RequestRefused: 401 as for `require_valid`.
        """
        require_valid(request.scope)  # it may have waited for a hook
        right = self.right(request, session)
        return None if right is None else right.agent or None

    def _rights(self, principal: Principal, allowed: Iterable[AccessRequest]) -> list[SessionRight]:
        """Return the rights of allowed requests, one for each session, if they may end before the token does."""
        if not self._access.needs_agent(principal):
            return []
        by_session: dict[str | None, list[AccessRequest]] = {}
        for each in allowed:
            by_session.setdefault(each.session, []).append(each)
        return [SessionRight(self._access, self._bus, asked) for asked in by_session.values()]

    def _note(self, request: Request, allowed: Iterable[AccessRequest]) -> None:
        """Note what was allowed, for `confirm`."""
        rights = self._rights(identified(request.scope).principal, (each for each in allowed if each.session))
        request.scope.setdefault(_RIGHTS, []).extend(rights)

    async def _decide(self, request: Request, asked: Iterable[AccessRequest]) -> None:
        asked = tuple(asked)
        for each in asked:
            decision = await self._access.decide(each, address_of(request.scope))
            if not decision.is_allowed:
                raise AccessDenied(decision.reason)
        require_valid(request.scope)  # a hook may have taken its time
        self._note(request, asked)

    async def _asked(
        self, request: Request, action: str, session: str | None, agent: str | None, lanes: Iterable[Lane | None]
    ) -> list[AccessRequest]:
        """Return one question for each lane and agent, first those of the session's agent: `decided_agent` returns it.
        A session's agent is read only if a decision depends on it."""
        principal, agents = identified(request.scope).principal, list[str | None]()
        if session is not None and self._access.needs_agent(principal):
            head = await self._bus.session(session).head()
            if head.position or agent is None:  # a new session gets the agent that its first message names
                agents.append(head.agent)
        if agent is not None or not agents:
            agents.append(agent)
        return [
            AccessRequest(principal=principal, action=action, session=session, agent=each, lane=lane)
            for each in dict.fromkeys(agents)
            for lane in lanes
        ]
