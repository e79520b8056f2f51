"""A session whose users, commands and kills come at places drawn from a seed: during an answer, a tool or a guard,
around any append, and while nothing runs."""

from contextlib import nullcontext
from random import Random
from typing import cast

import anyio

from lanebus import ExtensionMessage, Receipt, Session, UserMessage
from lanebus.agent import RunBounds, TryAgain
from lanebus.bus import Lease
from lanebus.bus.messages import Publishable
from lanebus.handlers.agent import Agent, Run, commands
from lanebus.handlers.agent.session_cache import CachedSession, SessionCache
from lanebus.handlers.projections import STATUS
from lanebus.projections import project

__all__ = ("BOUNDS", "CANARY", "Killed", "Life", "Stuck")

CANARY = "canary-e51b"
"""part of the reasons in commands, which only readers of the log may see"""

BOUNDS = RunBounds(watch_after_seconds=0.002)
"""an interrupt is noticed even during a short call"""

MOST_APPENDS, MOST_ROUNDS = 600, 60

_DEEDS = (
    *("say", "say", "follow", "steer", "steer now", "abort", "abort turn", "abort loop", "pause", "resume"),
    *("handoff", "compact", "approve", "approve", "deny", "sing"),
)


class Killed(BaseException):
    """The worker's process was killed."""


class Stuck(BaseException):
    """The session would never come to rest."""


class Life:
    """The life of one session."""

    def __init__(
        self,
        session: Session,
        random: Random,
        *,
        kills: bool,
        warm: SessionCache | None = None,
        bounds: RunBounds = BOUNDS,
    ) -> None:
        """Create a life.

        Args:
            session: the session to disturb.
            random: source of all random choices.
            kills: whether workers are killed.
            warm: keeps the session in memory between its workers' runs; None keeps nothing.
            bounds: of its workers' runs.
        """
        self.session, self.random, self.kills, self._warm = session, random, kills, warm
        self.bounds = bounds
        """bounds of its workers' runs"""
        self.is_quiet = self.is_dead = False
        self.fuse = -1
        """number of appends until the worker dies; below 0 it does not"""
        self.appends = self.words = self.workers = 0
        self.story: list[str] = []

    async def say(self) -> None:
        """Publish a user's message with a new word."""
        await self.session.publish(self._word())

    async def disturb(self, chance: float = 0.35) -> None:
        """Perhaps disturb the session, and perhaps give the worker time to notice."""
        if self.is_quiet:
            return
        is_done = False
        while self.random.random() < chance:
            await self.deed()
            is_done = True
        if is_done:
            await anyio.sleep(self.random.choice([0, 0.03]))  # gives the worker time to listen, or not
        if self.kills and self.random.random() < 0.03:
            self.story.append("killed")
            self.is_dead = True
            raise Killed
        if self.kills and self.random.random() < 0.06:
            self.fuse = self.random.randint(0, 2)

    async def deed(self) -> None:
        """Let a user or a program publish something to the session."""
        session, kind = self.session, self.random.choice(_DEEDS)
        self.story.append(kind)
        match kind:
            case "say":
                await self.say()
            case "follow":
                await commands.follow_up(session, self._word())
            case "steer":
                await commands.steer(session, self._word(), by=CANARY)
            case "steer now":
                await commands.steer(session, self._word(), when="now", by=CANARY)
            case "abort":
                await commands.abort(session, reason=CANARY, by=CANARY)
            case "abort turn":
                await commands.abort(session, when="turn", reason=CANARY)
            case "abort loop":
                await commands.abort(session, loop_id=f"{session.id}.main.1", reason=CANARY)
            case "pause":
                await commands.pause(session, reason=CANARY, by=CANARY)
            case "resume":
                await commands.resume(session, by=CANARY)
            case "handoff":
                await commands.handoff(session, to=CANARY, reason=CANARY)
            case "compact":
                await commands.request_compaction(session, by=CANARY)
            case "sing":
                await session.publish(ExtensionMessage.of("control.sing", {"text": CANARY}))
            case _:
                await self._answer_a_call(is_approved=kind == "approve")

    async def work(self, agent: Agent) -> None:
        """Run workers until nothing is left to do, however often one is killed.

        Raises:
            Stuck: work was always left.
        """
        for _ in range(MOST_ROUNDS):
            self.workers += 1
            self.is_dead, self.fuse = False, -1
            lease = await self.session.acquire_lease("worker", 60)  # fences the previous lease of this owner
            assert lease is not None
            warm = nullcontext() if self._warm is None else self._warm.held(self.session.id)
            try:
                with warm as held:
                    return await self._work(agent, MortalRun(self, lease, held))
            except BaseException:
                if not self.is_dead:
                    raise
        raise Stuck(self.story[-40:])

    async def _work(self, agent: Agent, run: Run) -> None:
        for _ in range(MOST_ROUNDS):
            if not (await run.refresh()).loop_state.has_work:
                return
            try:
                await agent(run)
            except TryAgain:
                self.story.append("put off")
        raise Stuck(self.story[-40:])

    async def _answer_a_call(self, *, is_approved: bool) -> None:
        loop = (await project(self.session, STATUS)).state.loop
        if loop is None or not loop.calls_waiting:
            return
        call = self.random.choice([*loop.calls_waiting.values()])
        if is_approved:
            await commands.approve(self.session, call.turn_id, call.tool_call_id, by=CANARY)
        else:
            await commands.deny(self.session, call.turn_id, call.tool_call_id, reason=CANARY)

    def _word(self) -> UserMessage:
        self.words += 1
        return UserMessage.text(f"word {self.words}")


class MortalRun(Run):
    """A run whose worker dies when its life decides so; what the worker does afterwards has no effect."""

    def __init__(self, life: Life, lease: Lease, warm: CachedSession | None = None) -> None:
        super().__init__(cast("Session", _Mortal(life)), lease, warm, bounds=life.bounds)


class _Mortal:
    def __init__(self, life: Life) -> None:
        self._life = life

    def __getattr__(self, name: str) -> object:
        if self._life.is_dead:
            raise Killed
        return getattr(self._life.session, name)

    async def publish(
        self,
        *messages: Publishable,
        key: str | None = None,
        expected: int | None = None,
        epoch: int | None = None,
        wake: bool | None = None,
        seconds: float = 20.0,
    ) -> Receipt:
        life = self._life
        if life.is_dead:
            raise Killed
        life.appends += 1
        if life.appends > MOST_APPENDS:
            raise Stuck(life.story[-40:])
        is_last = life.fuse == 0
        life.fuse -= 1
        if is_last and life.random.random() < 0.5:
            life.is_dead = True
            raise Killed
        receipt = await life.session.publish(
            *messages, key=key, expected=expected, epoch=epoch, wake=wake, seconds=seconds
        )
        if is_last:
            life.is_dead = True
            raise Killed
        return receipt
