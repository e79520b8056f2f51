"""Keys that the agent sets in the private metadata of messages. The prefix keeps these keys apart from imported
metadata."""

CUT = "lanebus.cut"
"""metadata key that marks an answer that was cut because its worker stopped or the user steered. The loop stays open,
and its next turn answers the same messages"""

AGAIN = "lanebus.again"
"""metadata key that marks an answer whose model failed transiently. The loop stays open, and its next turn calls the
model again"""

BY = "lanebus.by"
"""metadata key of a user message that came over HTTP. Its value is the name of the principal that sent it"""

CWD = "lanebus.cwd"
"""metadata key of a user message that came from an editor. Its value is the absolute path of the project's folder"""

FOLLOW_UP = "lanebus.followUp"
"""metadata key that marks a user message that waits until the running loop has ended"""

HANDOFF = "lanebus.handoff"
"""key in a tool result's metadata. Its value is the reason why the tool hands the session to a person"""

IMPORTED_CALL = "lanebus.importedCall"
"""metadata key that marks a tool result which closes an imported call. Its value is the position of the answer with the
call"""

CHILD_LOOP = "lanebus.childLoop"
"""key in a tool result's metadata. Its value is the id of the sub-agent's loop that produced the result"""

OUTCOME = "lanebus.outcome"
"""key in the metadata of a tool result before it is appended. Its value is the `ToolOutcome` for the call's
`ToolEnded`. The key is removed when the result is appended"""

REDRIVEN = "lanebus.redriven"
"""metadata key that marks the empty answer after a redrive. It makes the messages of the failed run unread again"""

WARNING = "lanebus.warning"
"""key in the metadata of a guard's warning, which is a note to the model. Its value is the positions of the user
messages that the guard checked"""
