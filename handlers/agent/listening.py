"""A model's answer is taken in, shown as it comes, and cut where somebody interrupts it."""

import logging

from handlers.agent.deadline import Deadline, Late
from handlers.agent.draft import Draft
from handlers.agent.draining import DRAIN_SECONDS, listening
from handlers.agent.interrupt import Interrupt, until_interrupted
from handlers.agent.model import Model, ModelRequest
from handlers.agent.preview import Preview
from handlers.agent.run import Run
from handlers.providers.answer import ModelEvent, Piece

__all__ = ("Listener",)

_log = logging.getLogger(__name__)


class Listener:
    """Takes in one answer. `fault` says what went wrong, if something did."""

    def __init__(
        self,
        model: Model,
        request: ModelRequest,
        draft: Draft,
        *,
        drain_seconds: float = DRAIN_SECONDS,
        deadline: Deadline | None = None,
    ) -> None:
        """
        Args:
            drain_seconds: how long a model that is cut is listened to for what its answer costs.
            deadline: each event of the model is a sign of life.
        """
        self._model, self._request, self._draft = model, request, draft
        self._drain_seconds, self._deadline = drain_seconds, deadline
        self.fault: str | None = None

    async def run(self, run: Run, preview: Preview | None = None) -> Interrupt | Late | None:
        """Listen until the model has said its last word, or until a command that cannot wait or the deadline cuts it:
        then the provider's count of what was said is waited for a moment. Whatever an adapter raises is a fault."""

        def show(event: ModelEvent) -> None:
            if self._deadline is not None:
                self._deadline.heard()
            if preview is not None and isinstance(event, Piece):
                preview.add(event)

        try:
            events = self._model.stream(self._request)
        except Exception as error:  # noqa: BLE001  # as below: an adapter may be no generator
            self._note(error)
            return None
        async with listening(events, self._draft, show, clean_up_seconds=run.bounds.clean_up) as speech:

            async def hear() -> None:
                try:
                    await speech.wait()
                except Exception as error:  # noqa: BLE001  # whatever an adapter raises is recorded as a failed answer
                    self._note(error)

            interrupt = await until_interrupted(run, hear, self._deadline)
            if interrupt is not None:
                await speech.drain(seconds=self._drain_seconds, tokens=run.bounds.drain_tokens)
        return interrupt

    def _note(self, error: Exception) -> None:
        _log.warning("the model %s failed", self._model.name, exc_info=error)
        self.fault = f"{type(error).__name__}: {error}"
