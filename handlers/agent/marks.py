"""What a worker notes in a message's private metadata. The names are ours, as imported messages bring their own."""

from lanebus.handlers.context.read_marks import HELD, SEEN

__all__ = ("AGAIN", "CHILD_LOOP", "CUT", "FOLLOW_UP", "HANDOFF", "HELD", "SEEN", "WARNING")

CUT = "lanebus.cut"
"""in an answer whose worker was stopped, or that was steered away from: the loop is not over, its next turn answers the
same"""

AGAIN = "lanebus.again"
"""in an answer that failed for a while: the loop is not over, its next turn asks again"""

FOLLOW_UP = "lanebus.followUp"
"""in a user's message: it waits until the loop that is running is over"""

HANDOFF = "lanebus.handoff"
"""in a tool's result: the tool hands the session to a person; its reason"""

CHILD_LOOP = "lanebus.childLoop"
"""in a tool's result: the loop that worked for the call"""

WARNING = "lanebus.warning"
"""in a note of the loop's own to the model: what a guard has to say of what the user said"""
