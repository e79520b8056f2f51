"""Ask providers for the actual usage of cut model calls, and record this usage."""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice

import anyio

from lanebus.bus.error_text import describe_error
from lanebus.bus.errors import BusError, Fenced
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.events import UsageSettled
from lanebus.bus.messages.usage import Usage
from lanebus.bus.wire.envelope import Envelope
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.bounds import RunBounds
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.models.model import Model, Settling
from lanebus.handlers.agent.run import Run

__all__ = ("UsageReconciler", "reconcilable", "reconcile")

_log = logging.getLogger(__name__)


def reconcilable(model: Model, envelope: Envelope) -> AssistantMessage | None:
    """Return the answer in an entry if its usage is an estimate and `model` can ask the provider for the actual usage.

    Return None for other entries, and for imported answers.

    A fork contains its parent's answers; only the parent asks for their usage.
    """
    message = envelope.message
    is_open = (
        isinstance(model, Settling)
        and isinstance(message, AssistantMessage)
        and message.usage is not None
        and bool(message.usage.estimated)
        and not envelope.is_imported
        and message.turn_id is not None
        and message.turn_id.session == envelope.session
        and (message.provider, message.model) == (model.provider, model.name)
    )
    return message if is_open and isinstance(message, AssistantMessage) else None


async def reconcile(run: Run, model: Model, envelope: Envelope) -> bool:
    """Ask the provider for the usage of a recorded answer, and record it. Return whether it is recorded now.

    Repeated and concurrent calls record the usage once. The recorded answer does not change.

    Args:
        model: the model that was called.
        envelope: the answer's entry, which must be in the run's own session.

    Raises:
        Fenced: the lease was lost.
        BusError: as for `Session.publish`.
    """
    message = reconcilable(model, envelope)
    if message is None or message.turn_id is None or envelope.session != run.session.id:
        return False
    usage = await model.settle(message) if isinstance(model, Settling) else None
    if usage is None:
        _log.debug("session %s: the usage of entry %d is not available", envelope.session, envelope.position)
        return False
    own = Usage().combine(usage)  # without the provider's raw object
    event = UsageSettled(turn_id=message.turn_id, message=envelope.position, usage=own)
    await run.publish(event.as_extension(), key=ReservedKey(f"{envelope.position}.settled"))
    return True


class UsageReconciler:
    """After each run, asks the provider for the usage of the session's cut calls, until it is reported."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._tries: OrderedDict[tuple[str, int], int] = OrderedDict()
        """number of requests by this process, by session and position of the answer"""

    async def reconcile_open(self, run: Run) -> None:
        """Ask the provider for the usage of every answer in the session whose usage is an estimate.

        Stop after `RunBounds.usage_seconds`, or when the session is woken. The call can be cancelled.

        Errors other than a lost lease are only logged: the next run asks again.

        Raises:
            Fenced: the lease was lost.
        """
        if not isinstance(self._model, Settling):
            return
        try:
            found = self._open(await run.refresh(), run.bounds)
            if found:
                with anyio.move_on_after(run.bounds.usage_seconds):
                    await self._until_woken(run, found)
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001  # the turn is complete in any case
            _log.info("session %s: the usage of a cut call is not known yet: %s", run.session.id, describe_error(error))

    def _open(self, snapshot: SessionSnapshot, bounds: RunBounds) -> list[Envelope]:
        """Return the answers whose usage is to be requested, the newest first."""
        entries, session = snapshot.context.entries, snapshot.context.session
        return [
            envelope
            for envelope in islice(reversed(entries), bounds.usage_entries)
            if reconcilable(self._model, envelope)
            and envelope.position not in snapshot.status.settled
            and self._tries.get((session, envelope.position), 0) < bounds.usage_attempts
        ]

    async def _until_woken(self, run: Run, found: Sequence[Envelope]) -> None:
        failures: list[Exception] = []

        async def reconcile_all(scope: anyio.CancelScope) -> None:
            try:
                for envelope in found:
                    self._count(envelope, run.bounds.usage_answers)
                    await reconcile(run, self._model, envelope)
            except Exception as error:  # noqa: BLE001  # raised below: a group would wrap it
                failures.append(error)
            scope.cancel()

        async def watch(scope: anyio.CancelScope) -> None:
            try:
                await run.wait_for_wake_up()
            except BusError as error:
                failures.append(error)
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, tasks.cancel_scope)
            tasks.start_soon(reconcile_all, tasks.cancel_scope)
        if failures:
            raise failures[0]

    def _count(self, envelope: Envelope, remembered: int) -> None:
        key = envelope.session, envelope.position
        self._tries[key] = self._tries.pop(key, 0) + 1
        while len(self._tries) > remembered:
            self._tries.popitem(last=False)
