"""Ask the access rules for each route, and for as long as an event stream is open."""

from collections.abc import Iterable

import anyio
from starlette.requests import Request

from lanebus.bus.bus import Bus
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import UserMessage
from lanebus.handlers.access.access import Access
from lanebus.handlers.access.credentials import Identified
from lanebus.handlers.access.principal import ALL, Principal
from lanebus.handlers.access.request import AccessRequest
from lanebus.handlers.ui.auth import address_of, identified
from lanebus.handlers.ui.replies import AccessDenied, RequestRefused

__all__ = ("Gate", "StreamAccess")


class StreamAccess:
    """The right to one open event stream. It ends when the token or the rights do."""

    def __init__(self, access: Access, known: Identified, asked: Iterable[AccessRequest]) -> None:
        """
        Args:
            access: the rules.
            known: the principal.
            asked: the requests that were allowed when the stream began: one for each lane.
        """
        self._access, self._known, self._asked = access, known, tuple(asked)
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

    def is_open(self) -> bool:
        """Return whether the next frame may be sent. The end of the right is logged once."""
        if self._is_open and not self._known.is_valid():
            self._end()
        return self._is_open

    async def wait_ended(self) -> None:
        """Wait until the right has ended."""
        while self.is_open():
            await anyio.sleep(self._access.refresh_seconds)
            if self._access.has_hook and not all([(await self._access.ask(each)).is_allowed for each in self._asked]):
                self._end()

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._access.log_end(self._asked[0])


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
        """Count what a request appends, by messages and bytes, in the limit of its principal.

        Args:
            request: the HTTP request.
            posted: all that it will append.

        Raises:
            RequestRefused: 429 if the principal appends too much, 413 if the request alone does.
        """
        sizes = [len(each.to_json()) for each in posted]
        refused = self._access.count_appended(identified(request.scope).principal, sizes, address_of(request.scope))
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
        return frozenset(asked.lane for asked in allowed if asked.lane is not None), allowed

    async def visible_lanes(
        self, request: Request, action: str, heads: Iterable[SessionHead]
    ) -> dict[str, frozenset[Lane]]:
        """Return the sessions in which the principal may do `action`, each with the lanes in which it may.

        Decisions are not logged. Use it to filter a list.
        """
        principal, found = identified(request.scope).principal, dict[str, frozenset[Lane]]()
        is_same = not self._access.has_hook and principal.sessions == ALL and principal.agents == ALL
        known: frozenset[Lane] | None = None
        for index, head in enumerate(heads):
            if not is_same or not index:  # without patterns or a hook, all sessions have the same answer
                known = await self._lanes_in(principal, action, head)
            if known is not None:
                found[head.session] = known
        return found

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

    async def may_list(self, request: Request, session: str) -> bool:
        """Return whether the principal may see a session in the list of sessions. The decision is not logged."""
        asked = await self._asked(request, "read.sessions", session, None, (None,))
        return all([(await self._access.ask(each)).is_allowed for each in asked])

    def stream(self, request: Request, allowed: Iterable[AccessRequest]) -> StreamAccess:
        """Return the permission for an event stream, made of the requests that `allowed_lanes` allowed."""
        return StreamAccess(self._access, identified(request.scope), allowed)

    async def _decide(self, request: Request, asked: Iterable[AccessRequest]) -> None:
        for each in asked:
            decision = await self._access.decide(each, address_of(request.scope))
            if not decision.is_allowed:
                raise AccessDenied(decision.reason)

    async def _asked(
        self, request: Request, action: str, session: str | None, agent: str | None, lanes: Iterable[Lane | None]
    ) -> list[AccessRequest]:
        """Return one question for each lane and agent. A session's agent is read only if a decision depends on it."""
        principal, agents = identified(request.scope).principal, {agent}
        if session is not None and self._access.needs_agent(principal):
            head = await self._bus.session(session).head()
            if head.position or agent is None:  # a new session gets the agent that its first message names
                agents.add(head.agent)
        if len(agents) > 1:
            agents.discard(None)
        return [
            AccessRequest(principal=principal, action=action, session=session, agent=each, lane=lane)
            for each in agents
            for lane in lanes
        ]
