"""What a cut call really took, told once it is known."""

import logging
from collections import OrderedDict
from collections.abc import Sequence

import anyio

from bus.envelope import Envelope
from bus.errors import BusError, Fenced
from bus.messages.events import UsageSettled
from bus.messages.message import AssistantMessage
from bus.messages.usage import Usage
from handlers.agent.bounds import RunBounds
from handlers.agent.model import Model, Settling
from handlers.agent.run import Run, View

__all__ = ("Settler", "is_settleable", "settle")

_log = logging.getLogger(__name__)


def is_settleable(model: Model, envelope: Envelope) -> bool:
    """Whether an entry is an answer with an estimated usage, and its model one that can be asked what it took."""
    message = envelope.message
    return (
        isinstance(message, AssistantMessage)
        and message.usage is not None
        and bool(message.usage.estimated)
        and message.turn_id is not None
        and (message.provider, message.model) == (model.provider, model.name)
        and isinstance(model, Settling)
    )


async def settle(run: Run, model: Model, envelope: Envelope) -> bool:
    """Ask what the call took that an answer in the log came of, and tell it in the log; gives whether it is told now.

    It may be repeated and be done by several at once: it is told once. What the log says of the message stays.

    Args:
        envelope: the answer's entry, of the run's own session.

    Raises:
        Fenced: the lease is lost.
        BusError: as for `Session.publish`.
    """
    message = envelope.message
    if not is_settleable(model, envelope) or envelope.session != run.session.id:
        return False
    if not isinstance(message, AssistantMessage) or message.turn_id is None or not isinstance(model, Settling):
        raise AssertionError
    if message.turn_id.session != run.session.id:  # a fork has its parent's answers, and its parent asks for them
        return False
    usage = await model.settle(message)
    if usage is None:
        _log.debug("session %s: what entry %d took is not to be learnt", envelope.session, envelope.position)
        return False
    own = Usage().combine(usage)  # which leaves the provider's own object out
    event = UsageSettled(turn_id=message.turn_id, message=envelope.position, usage=own)
    await run.publish(event.as_extension(), key=f"{envelope.position}.settled")
    return True


class Settler:
    """Asks what the cut calls of a session took, whenever it has been worked on, until that is known."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._tries: OrderedDict[tuple[str, int], int] = OrderedDict()
        """session and position → how often it was asked here"""

    async def settle_open(self, run: Run) -> None:
        """Ask for what is open, for a while, and as long as nobody speaks. May be cancelled at any point. Whatever goes
        wrong but for a lost lease goes no further: it is asked for again when the session is next worked on.

        Raises:
            Fenced: the lease is lost.
        """
        if not isinstance(self._model, Settling):
            return
        try:
            found = self._open(await run.refresh(), run.bounds)
            if found:
                with anyio.move_on_after(run.bounds.settle):
                    await self._settle_unless_rung(run, found)
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001  # of the log, or of the model: the turn is over and has its answer
            _log.info("session %s: what a cut call took is not known yet: %s", run.session.id, error)

    def _open(self, view: View, bounds: RunBounds) -> list[Envelope]:
        """The answers to ask for, the newest first."""
        entries, session = view.context.entries, view.context.session
        found: list[Envelope] = []
        for index in range(len(entries) - 1, max(len(entries) - 1 - bounds.settle_entries, -1), -1):
            envelope = entries[index]
            message = envelope.message
            if (
                isinstance(message, AssistantMessage)
                and message.turn_id is not None
                and message.turn_id.session == session
                and is_settleable(self._model, envelope)
                and envelope.position not in view.status.settled
                and self._tries.get((session, envelope.position), 0) < bounds.settle_tries
            ):
                found.append(envelope)
        return found

    async def _settle_unless_rung(self, run: Run, found: Sequence[Envelope]) -> None:
        failures: list[Exception] = []

        async def settle_all(scope: anyio.CancelScope) -> None:
            try:
                for envelope in found:
                    self._count(envelope, run.bounds.settle_remembered)
                    await settle(run, self._model, envelope)
            except Exception as error:  # noqa: BLE001  # raised below: out of the group it would come in another
                failures.append(error)
            scope.cancel()

        async def listen(scope: anyio.CancelScope) -> None:
            try:
                await run.wait_rung()
            except BusError as error:
                failures.append(error)
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, tasks.cancel_scope)
            tasks.start_soon(settle_all, tasks.cancel_scope)
        if failures:
            raise failures[0]

    def _count(self, envelope: Envelope, remembered: int) -> None:
        key = envelope.session, envelope.position
        self._tries[key] = self._tries.pop(key, 0) + 1
        while len(self._tries) > remembered:
            self._tries.popitem(last=False)
