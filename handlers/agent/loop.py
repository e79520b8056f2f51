"""The loop: a model call with its tools, turn after turn, until the model has answered.

Every step starts from the log and ends in one append that carries the lease's epoch and a key made from the turn's id.
So a loop that died anywhere is continued by running it again: what is recorded is reused, nothing is added twice, and
what was only being spoken is recorded as far as it was shown.
"""

import logging
from collections.abc import Sequence
from contextlib import aclosing

import anyio
from pydantic import JsonValue

from bus.envelope import Cursor
from bus.errors import BusError, Fenced, MessageTooLarge, SessionClosed, SessionErased
from bus.media.resolve import resolve_media
from bus.messages.events import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    MessageStarted,
    TurnStarted,
    parse_event,
)
from bus.messages.extension import ExtensionMessage
from bus.messages.lanes import Lane
from bus.messages.message import SystemMessage, UserMessage
from bus.messages.reading import Publishable
from bus.messages.turn import TurnId
from handlers.agent.draft import Draft
from handlers.agent.errors import DuplicateTool
from handlers.agent.forked import going_on, is_own
from handlers.agent.lost import LOST, record_lost
from handlers.agent.model import DEFAULT_MAX_TOKENS, Model, ModelRequest
from handlers.agent.preview import Preview, open_preview
from handlers.agent.recording import answer_id, record_answer
from handlers.agent.run import Run
from handlers.agent.standing import Answer, Standing, last_loop, loop_usage, read_standing, wanted_calls
from handlers.agent.tool import Tool
from handlers.agent.toolbox import run_tools
from handlers.agent.unread import with_prompts_last
from handlers.agent.verdict import waits_for_person
from handlers.context.fold import Context
from handlers.providers.answer import Piece

__all__ = ("AgentLoop",)

LAST_WORDS_SECONDS = 5.0
"""how long a cancelled loop takes to record what was said so far"""

_STOPPED = "the worker was stopped"

_log = logging.getLogger(__name__)


class AgentLoop:
    """An agent that asks a model and runs its tools. Holds nothing of any session, so one serves them all."""

    def __init__(
        self,
        model: Model,
        tools: Sequence[Tool] = (),
        *,
        system: str | None = None,
        name: str = "agent",
        config: str = "main",
        max_turns: int = 20,
        max_tokens: int = DEFAULT_MAX_TOKENS,
    ) -> None:
        """
        Args:
            system: instructions, put into sessions that have none.
            name: what events call the agent.
            config: the middle of the loops' ids, `<session>.<config>.<N>`.
            max_turns: model calls of one loop.
            max_tokens: most tokens of one answer.

        Raises:
            DuplicateTool: two tools have the same name.
        """
        self.model, self.tools = model, {tool.name: tool for tool in tools}
        if len(self.tools) != len(tools):
            names = [tool.name for tool in tools]
            raise DuplicateTool(next(each for each in names if names.count(each) > 1))
        self.system, self.name, self.config = system, name, config
        self.max_turns, self.max_tokens = max_turns, max_tokens

    async def __call__(self, run: Run) -> None:
        """Answer what is unanswered in the session, in one loop, or go on with one that is not over.

        A lost lease ends it quietly, as somebody else goes on. Cancelled while the model speaks, it records what was
        said so far as an aborted message; the loop stays open, and whoever runs it next begins a new turn of it.

        Raises:
            BusError: the log cannot be read or refuses.
        """
        try:
            await record_lost(run)
            is_over = False
            while not is_over:
                is_over = await self._step(run)
        except Fenced as error:
            _log.info("session %s: the loop goes on elsewhere: %s", run.session.id, error)

    async def _step(self, run: Run) -> bool:
        """One step from where the log stands; gives whether the loop is over."""
        context = await run.context.refresh()
        standing = read_standing(context)
        if not standing.has_work:
            return True
        if self.system and not context.system:
            await run.publish(SystemMessage.text(self.system), key=f"agent.system.{context.position}")
            return False
        answer = standing.answer
        if answer is None:
            return await self._speak(run, context, standing, self._new_turn(run, context))
        if not is_own(answer, run.session.id):
            own = going_on(answer, run.session.id, self._new_turn(run, context))
            if not own.is_begun and not answer.open_calls:
                return await self._speak(run, context, standing, own.answer.turn_id, parent=answer.turn_id.loop_id)
            if not own.is_begun:
                await self._take_up(run, own.answer, parent=answer.turn_id.loop_id)
            answer = own.answer
        if answer.open_calls:
            view = await run.refresh()
            if waits_for_person(answer, view.status):
                return True
            await run_tools(run, self.tools, answer, view)
            return read_standing((await run.refresh()).context).answer is None
        if answer.turn_id.turn_index + 1 >= self.max_turns:
            await self._stop(run, context, answer)
            return True
        turn_id = TurnId(loop_id=answer.turn_id.loop_id, turn_index=answer.turn_id.turn_index + 1)
        return await self._speak(run, context, standing, turn_id)

    def _new_turn(self, run: Run, context: Context) -> TurnId:
        """The first one of the session's next loop."""
        prefix = f"{run.session.id}.{self.config}."
        return TurnId(loop_id=f"{prefix}{last_loop(context, prefix) + 1}", turn_index=0)

    # --- one answer -----------------------------------------------------------------------------------------------

    async def _speak(
        self, run: Run, context: Context, standing: Standing, turn_id: TurnId, *, parent: str | None = None
    ) -> bool:
        """Let the model answer, and record it; gives whether the loop is over.

        Args:
            parent: the loop of another session that a new one goes on from.
        """
        message_id = answer_id(run, turn_id)
        media = await resolve_media(context.messages, run.session.media)
        await self._start_turn(run, standing, turn_id, message_id, parent=parent)
        specs = [tool.spec for tool in self.tools.values()]
        request = ModelRequest(with_prompts_last(context, standing.prompts), specs, self.max_tokens, media)
        draft = Draft(self.model)
        try:
            async with open_preview(run.session, message_id, turn_id, epoch=run.lease.epoch) as preview:
                with run.showing(preview):
                    fault = await self._listen(request, draft, preview)
            message = draft.whole or draft.cut("error", fault or "the model ended without an answer")
            try:
                receipt = await record_answer(run, context, turn_id, message)
            except MessageTooLarge as error:
                message = draft.without_content(str(error))
                receipt = await record_answer(run, context, turn_id, message)
        except (SessionClosed, SessionErased) as error:  # nothing can be recorded any more
            await Preview(run.session, message_id, turn_id, epoch=run.lease.epoch).cut(str(error))
            raise
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(LAST_WORDS_SECONDS, shield=True):
                if draft.is_empty:  # the turn leaves no answer, and is begun again as it is
                    await Preview(run.session, message_id, turn_id, epoch=run.lease.epoch).cut(_STOPPED)
                else:
                    await self._last_words(run, context, turn_id, draft)
            raise
        # A repeat means that the log holds another answer than ours: the next step starts from what it holds.
        return not receipt.is_duplicate and not wanted_calls(message)

    async def _listen(self, request: ModelRequest, draft: Draft, preview: Preview) -> str | None:
        """Take in the model's answer; gives what went wrong, if something did."""
        try:
            async with aclosing(self.model.stream(request)) as events:
                async for event in events:
                    draft.add(event)
                    if isinstance(event, Piece):
                        preview.add(event)
        except Exception as error:  # noqa: BLE001  # whatever an adapter raises is recorded as a failed answer
            _log.warning("the model %s failed", self.model.name, exc_info=True)
            return f"{type(error).__name__}: {error}"
        return None

    async def _last_words(self, run: Run, context: Context, turn_id: TurnId, draft: Draft) -> None:
        """Record what was said until now. If the answer itself landed already, its key makes this add nothing."""
        try:
            message = draft.whole or draft.cut("aborted", _STOPPED)
            await record_answer(run, context, turn_id, message, is_cut=draft.whole is None)
        except BusError as error:
            _log.info("session %s: what was said until now is lost: %s", run.session.id, error)

    # --- appends --------------------------------------------------------------------------------------------------

    async def _start_turn(
        self, run: Run, standing: Standing, turn_id: TurnId, message_id: str, *, parent: str | None
    ) -> None:
        """Say that a turn begins. Where it began before and was cut, close what was shown of it and begin again."""
        answer = standing.answer
        results = () if answer is None else tuple(position for position, _ in answer.results)
        turn = TurnStarted(
            turn_id=turn_id,
            trigger="user" if standing.prompts and not results else "continuation",
            prompts=(*results, *standing.prompts),
        )
        speaking = MessageStarted(turn_id=turn_id, message_id=message_id)
        events: list[Publishable] = [turn.as_extension(), speaking.as_extension()]
        if answer is None or parent is not None:
            events.insert(0, self._started(turn_id.loop_id, parent).as_extension())
        receipt = await run.publish(*events, key=f"{turn_id}.started")
        if not receipt.is_duplicate:
            return
        known: set[int] = set()
        async for envelope in run.session.read(lanes={Lane.EXTENSION}, after=Cursor(receipt.positions[0] - 1)):
            event = parse_event(envelope.message) if isinstance(envelope.message, ExtensionMessage) else None
            if isinstance(event, MessageStarted) and event.turn_id == turn_id and event.message_id != message_id:
                await Preview(run.session, event.message_id, turn_id, epoch=run.lease.epoch).cut(LOST)
            elif isinstance(event, TurnStarted) and event.turn_id == turn_id:
                known.update(event.prompts)
        again = [speaking.as_extension()]
        if not known.issuperset(turn.prompts):  # somebody has spoken since
            again.insert(0, turn.as_extension())
        await run.publish(*again, key=f"{turn_id}.started.{run.lease.epoch}")

    async def _take_up(self, run: Run, answer: Answer, *, parent: str) -> None:
        """Say that a loop of this session begins with the tools of an answer from before the fork."""
        turn_id = answer.turn_id
        events: list[AgentEvent] = [
            self._started(turn_id.loop_id, parent),
            TurnStarted(turn_id=turn_id, trigger="branch", prompts=(answer.position,)),
        ]
        await run.publish(*(event.as_extension() for event in events), key=f"{turn_id}.started")

    def _started(self, loop_id: str, parent: str | None = None) -> AgentStarted:
        prefix, _, number = loop_id.rpartition(".")
        is_first = number == "1"
        config: dict[str, JsonValue] = {
            "provider": self.model.provider,
            "model": self.model.name,
            "tools": [*self.tools],
            "maxTurns": self.max_turns,
            "maxTokens": self.max_tokens,
        }
        return AgentStarted(
            loop_id=loop_id,
            agent=self.name,
            parent_loop_id=parent or (None if is_first else f"{prefix}.{int(number) - 1}"),
            continuation="branch" if parent else "initial" if is_first else "default",
            config=config,
        )

    async def _stop(self, run: Run, context: Context, answer: Answer) -> None:
        """End a loop that has had its turns. Source of the note: seed 001."""
        turn_id = answer.turn_id
        note = UserMessage.text(f"[Agent stopped: turn limit of {self.max_turns} reached]").with_turn_id(turn_id)
        ended = AgentEnded(
            loop_id=turn_id.loop_id,
            stop_reason="maxTurns",
            turns=turn_id.turn_index + 1,
            usage=loop_usage(context, turn_id.loop_id),
        )
        await run.publish(note, ended.as_extension(), key=f"{turn_id.loop_id}.stopped")
