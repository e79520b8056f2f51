"""The return values of tools, and their conversion to result messages."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, get_args

from pydantic import JsonValue, TypeAdapter
from pydantic_core import to_jsonable_python

from lanebus.bus.errors import InvalidArgument, InvalidContent, require_instance
from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.content import Block, TextBlock, ToolCallBlock
from lanebus.bus.messages.events import ToolOutcome
from lanebus.bus.messages.llm import now_ms
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.whole_text import whole_json
from lanebus.handlers.agent.metadata_keys import CHILD_LOOP, HANDOFF, OUTCOME

__all__ = ("ToolReply", "failed", "result_of", "split_outcome", "unknown")


@dataclass(frozen=True, slots=True)
class ToolReply:
    """A tool result that can also be an error, end the loop, or hand the session to a person."""

    content: str | Sequence[Block | str] = ""
    """the result for the model"""
    structured: JsonValue = None
    """the result as JSON, for programs"""
    is_error: bool = False
    """whether the call failed"""
    terminate: bool = False
    """whether to end the loop without another model call. The loop ends only if all results of the turn have
    `terminate` set"""
    terminate_message: str | None = None
    """text for this result in the final message of a loop that `terminate` ends; None uses the content"""
    handoff: str | None = None
    """reason for which the session is handed to a person at the end of the turn; None means no handoff"""
    child_loop_id: str | None = None
    """id of the sub-agent's loop that produced the result, if there is one"""


_ANY = TypeAdapter(object)
_RESULT = "return a text, blocks, a ToolReply, or a value that JSON can hold, with finite numbers"


def failed(call: ToolCallBlock, text: str, outcome: ToolOutcome = "failed") -> ToolResultMessage:
    """Return an error result. The model reads `text`; `outcome` is recorded in the call's `ToolEnded`."""
    result = ToolResultMessage.of(call, text, is_error=True)
    return result if outcome == "failed" else result.model_copy(update={"metadata": {OUTCOME: outcome}})


def unknown(call: ToolCallBlock, cause: str) -> ToolResultMessage:
    """Return the result of a call that was started and whose end is not known.

    Args:
        cause: what ended the wait for the result, such as "its worker was lost before a result came".
    """
    text = (
        f"Unknown outcome: {call.name} was started, but {cause}. It may have done all, part or nothing of its work, and"
        " was not run again. Find out what it did before you call it again."
    )
    return failed(call, text, "unknown")


def split_outcome(result: ToolResultMessage) -> tuple[ToolResultMessage, ToolOutcome]:
    """Return a copy of the result without `OUTCOME` in the copy's metadata, and the outcome of the call."""
    metadata = dict(result.metadata or {})
    given = metadata.pop(OUTCOME, None)
    outcome = next((each for each in get_args(ToolOutcome) if each == given), None)
    if outcome is None:
        outcome = "failed" if result.is_error else "completed"
    stripped = result if given is None else result.model_copy(update={"metadata": metadata or None})
    return stripped, cast("ToolOutcome", outcome)


def result_of(call: ToolCallBlock, output: object) -> ToolResultMessage:
    """Convert what a tool's function returned to a result message.

    Raises:
        InvalidArgument: the value cannot be written as JSON, for example because it is NaN.
    """
    try:
        return _result_of(call, output if isinstance(output, ToolReply) else _reply(output))
    except InvalidArgument:
        raise
    except (InvalidContent, ValueError, RecursionError) as error:  # a value that is nested too deep, or in itself
        raise InvalidArgument("result", output, f"{_RESULT} ({error})") from None


def _result_of(call: ToolCallBlock, reply: ToolReply) -> ToolResultMessage:
    require_instance("content", reply.content, (str, Sequence), "pass a text, or a list of blocks and texts")
    parts = (reply.content,) if isinstance(reply.content, str) else reply.content
    content = tuple(TextBlock(text=part) if isinstance(part, str) else part for part in parts if part != "")
    metadata: dict[str, JsonValue] = {}
    if reply.handoff is not None:
        metadata[HANDOFF] = reply.handoff
    if reply.child_loop_id is not None:
        metadata[CHILD_LOOP] = reply.child_loop_id
    return ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=content,
        structured=reply.structured,
        is_error=reply.is_error,
        terminate=reply.terminate or None,
        terminate_message=reply.terminate_message,
        metadata=metadata or None,
        timestamp=now_ms(),
    )


def _reply(output: object) -> ToolReply:
    given = output  # not narrowed by the checks below
    if output is None:
        return ToolReply()
    if isinstance(output, str):
        return ToolReply(output)
    if _is_block(output):
        return ToolReply((cast("Block", output),))
    if isinstance(output, list | tuple) and output:
        items = cast("Sequence[object]", output)
        if any(_is_block(item) for item in items) and all(_is_block(item) or isinstance(item, str) for item in items):
            return ToolReply(cast("Sequence[Block | str]", items))
    structured = _jsonable(given)
    return ToolReply(json.dumps(structured, ensure_ascii=False), structured=structured)


def _jsonable(output: object) -> JsonValue:
    try:
        return cast("JsonValue", to_jsonable_python(output))
    except UnicodeEncodeError:  # of a key: pydantic writes other text as it is
        plain: object = _ANY.dump_python(output)
        return cast("JsonValue", to_jsonable_python(whole_json(plain)))


def _is_block(value: object) -> bool:
    return isinstance(value, Frozen) and hasattr(value, "type")
