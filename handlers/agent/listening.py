"""A model's answer is taken in, shown as it comes, and cut where somebody interrupts it."""

import logging
from contextlib import aclosing

import anyio

from handlers.agent.draft import Draft
from handlers.agent.model import Model, ModelRequest
from handlers.agent.preview import Preview
from handlers.providers.answer import Piece

__all__ = ("Listener",)

OVERHEAR_SECONDS = 2.0
"""how long a model that was cut is listened to for what its answer costs"""

_log = logging.getLogger(__name__)


class Listener:
    """Takes in one answer. `fault` says what went wrong, if something did."""

    def __init__(self, model: Model, request: ModelRequest, draft: Draft) -> None:
        self._model, self._request, self._draft = model, request, draft
        self._scope = anyio.CancelScope()
        self._is_cut = False
        self.fault: str | None = None

    async def run(self, preview: Preview) -> None:
        """Listen until the model has said its last word, or until `cut`. Whatever an adapter raises is a fault."""
        with self._scope:
            try:
                await self._listen(preview)
            except Exception as error:  # noqa: BLE001  # whatever an adapter raises is recorded as a failed answer
                _log.warning("the model %s failed", self._model.name, exc_info=True)
                self.fault = f"{type(error).__name__}: {error}"

    def cut(self) -> None:
        """Show and keep nothing more of what is said. The provider's count of it is waited for a moment."""
        self._is_cut = True
        self._scope.deadline = anyio.current_time() + OVERHEAR_SECONDS

    async def _listen(self, preview: Preview) -> None:
        async with aclosing(self._model.stream(self._request)) as events:
            async for event in events:
                if self._is_cut:
                    self._draft.overhear(event)
                    if self._draft.is_counted:
                        return
                else:
                    self._draft.add(event)
                    if isinstance(event, Piece):
                        preview.add(event)
