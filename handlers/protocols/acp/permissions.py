"""The questions to the person in the editor about calls of one session, and the answers as commands."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import anyio
from acp.exceptions import RequestError

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import BusError
from lanebus.handlers.agent.commands import abort, approve, deny
from lanebus.handlers.protocols.acp.permission import permission_request, read_permission
from lanebus.handlers.protocols.run_events import CallStarted, ResultAdded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anyio.abc import TaskGroup
    from pydantic import JsonValue

    from lanebus.bus.session.session import Session
    from lanebus.handlers.protocols.run_events import RunEvent, RunRested, WaitingCall

__all__ = ("BY", "Permissions", "Requester")

BY = "editor"
"""the sender of commands, as the log has it"""

_log = logging.getLogger(__name__)


class Requester(Protocol):
    """Sends requests to the editor."""

    async def request(self, method: str, params: Mapping[str, JsonValue]) -> object:
        """Send a request, and return its result.

        Raises:
            RequestError: the editor answered with an error.
            ConnectionError: the editor has gone.
        """
        ...


class _Question:
    """A question to the person."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.answered: int | None = None
        """position of the command with the answer; 0 if it could not be sent; None while the person decides"""


class Permissions:
    """Asks about each waiting call once, and sends the answer. A call that was answered elsewhere is asked no more."""

    def __init__(self, session: Session, editor: Requester) -> None:
        self._session, self._editor = session, editor
        self._questions: dict[str, _Question] = {}

    def ask(self, rested: RunRested, tasks: TaskGroup) -> None:
        """Ask about the calls that wait. A call that waits again after its answer is asked again: the answer was late,
        or for other arguments.

        Args:
            rested: the rest of an agent that waits.
            tasks: where the questions wait.
        """
        for waiting in rested.waiting:
            known = self._questions.get(waiting.call_id)
            if known is None or (known.answered is not None and known.answered < rested.position):
                question = self._questions[waiting.call_id] = _Question()
                tasks.start_soon(self._ask, waiting, question)

    def note(self, event: RunEvent) -> None:
        """Withdraw the question about a call that runs or has its result."""
        if isinstance(event, CallStarted | ResultAdded):
            question = self._questions.pop(event.call_id, None)
            if question is not None:
                question.scope.cancel()

    def withdraw(self) -> None:
        """Withdraw all questions."""
        for question in self._questions.values():
            question.scope.cancel()
        self._questions.clear()

    async def _ask(self, waiting: WaitingCall, question: _Question) -> None:
        with question.scope:
            try:
                asked = permission_request(self._session.id, waiting)
                result = await self._editor.request("session/request_permission", asked)
                question.answered = await self._send(waiting, result)
            except RequestError as error:
                text = without_secrets(str(error))
                _log.warning("the editor cannot ask for permission, so use `lanebus control approve`: %s", text)
            except ConnectionError:
                pass  # the next editor that loads the session asks
            except BusError as error:
                _log.warning("the answer to a permission was not sent: %s", without_secrets(str(error)))
                question.answered = 0

    async def _send(self, waiting: WaitingCall, result: object) -> int:
        turn, call = waiting.turn_id, waiting.block.id
        match read_permission(result):
            case "allowed":
                sent = await approve(self._session, turn, call, call_hash=waiting.block.call_hash, by=BY)
            case "rejected":
                sent = await deny(self._session, turn, call, by=BY)
            case "cancelled":
                sent = await abort(self._session, loop_id=turn.loop_id, by=BY)
        return sent.position
