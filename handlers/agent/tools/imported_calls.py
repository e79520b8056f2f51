"""Close the open tool calls of imported answers. These calls are not run: an import must not make a worker act.

Where the calls were made, they may have run: most formats record no starts. So their outcome is unknown.
"""

from pydantic import JsonValue

from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.wire.reserved_key import ReservedKey
from lanebus.handlers.agent.decide.imported_answer import ImportedAnswer
from lanebus.handlers.agent.metadata_keys import IMPORTED_CALL
from lanebus.handlers.agent.run import Run

__all__ = ("NOT_RUN", "close_imported")

NOT_RUN = (
    "Unknown outcome: this call was imported without a result, and was not run here. It may have done all, part or"
    " nothing of its work before. Find out what it did before you call it again."
)
"""text of the result that the model reads"""


async def close_imported(run: Run, answer: ImportedAnswer) -> None:
    """Append a result that says that the call was not run, for each open call of an imported answer.

    Raises:
        Fenced: the lease was lost.
        BusError: as for `Session.publish`.
    """
    metadata: dict[str, JsonValue] = {IMPORTED_CALL: answer.position}
    results = (ToolResultMessage.of(call, NOT_RUN, is_error=True) for call in answer.open_calls)
    # After a leaf move, the context may lack these results, so that the same calls are closed again.
    key = ReservedKey(f"imported.{answer.position}.{run.snapshot.context.position}")
    await run.publish(*(each.model_copy(update={"metadata": metadata}) for each in results), key=key)
