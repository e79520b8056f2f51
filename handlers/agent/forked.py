"""A loop that was open where its session was forked goes on in the fork as a loop of the fork's own. Pure.

The parent goes on with its loop under its ids, and pays for what it has asked. So the fork begins a loop that names the
parent's as the one it goes on from: its first turn runs the tools that are still open, or speaks.
"""

from typing import NamedTuple

from bus.messages.turn import TurnId
from handlers.agent.standing import Answer

__all__ = ("GoingOn", "going_on", "is_own")


class GoingOn(NamedTuple):
    """How another session's open answer is gone on with."""

    answer: Answer
    """the same, in a turn of this session, and without its usage, which the other one has counted"""
    is_begun: bool
    """a result of that turn is in the log"""


def is_own(answer: Answer, session: str) -> bool:
    """Whether the session's own loop gave the answer."""
    return answer.turn_id.session == session


def going_on(answer: Answer, session: str, new: TurnId) -> GoingOn:
    """The answer as one of this session's turns: the one that results of it already name, else `new`."""
    begun = (
        result.turn_id
        for _, result in answer.results
        if result.turn_id is not None and result.turn_id.session == session
    )
    turn_id = next(begun, None)
    own = answer._replace(turn_id=turn_id or new, message=answer.message.model_copy(update={"usage": None}))
    return GoingOn(own, turn_id is not None)
