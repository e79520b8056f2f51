"""Prepare blocks for a request: the steps that are the same for all providers."""

from collections.abc import Callable, Iterable

from pydantic import JsonValue

from lanebus.bus.messages.content import Block, ErrorBlock, TextBlock, ToolCallBlock, ToolResultBlock
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.common.wire_ids import WireNames

__all__ = ("NO_OUTPUT", "arguments_of", "called", "copied", "flat", "is_failed", "joined", "name_of", "rendered_blocks")

NO_OUTPUT = "(no output)"
"""Text of a failed tool's empty result. Some APIs refuse an error without text, and models overlook it."""


def arguments_of(call: ToolCallBlock, losses: list[str]) -> Json:
    """Return a copy of the arguments as the JSON object that APIs require. A change is appended to `losses`."""
    arguments: JsonValue = call.arguments
    if call.arguments_raw and not arguments:
        arguments = call.arguments_raw
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        losses.append(f"arguments of tool call {call.id!r} are no object, sent as {{'value': …}}")
        return {"value": copied(arguments)}
    return {key: copied(value) for key, value in arguments.items()}


def called(call: ToolCallBlock, names: WireNames, losses: list[str]) -> str:
    """Return the tool's name on the wire. If it differs from the tool's own name, append a loss."""
    name = names.of(call.name)
    if name != call.name:
        losses.append(f"tool name {call.name!r} sent as {name!r}")
    return name


def copied(value: JsonValue) -> JsonValue:
    """Return a deep copy, so that a caller that changes the request does not change the message."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def flat(content: Iterable[Block]) -> Iterable[Block]:
    """Yield the blocks, with each nested result replaced by its content. No API accepts results inside results."""
    for block in content:
        if isinstance(block, ToolResultBlock):
            yield from flat(block.content)
        else:
            yield block


def is_failed(message: ToolResultMessage) -> bool:
    """Return whether the tool failed: `is_error` is True or `status` is "failed"."""
    return message.is_error or message.status == "failed"


def joined(content: Iterable[Block]) -> str:
    """Return all text of a result, without separators."""
    return "".join(block.text for block in flat(content) if isinstance(block, TextBlock))


def rendered_blocks(
    content: Iterable[Block],
    render: Callable[[Block], Json | str | None],
    *,
    taken: tuple[type[Block], ...],
    reason: str,
    losses: list[str],
) -> list[Json]:
    """Render the blocks that the API accepts at one place of a request. Each block that is left out is a loss.

    Args:
        content: the blocks.
        render: returns the block's JSON, the reason as text if the block cannot be sent, or None if the block is empty.
        taken: the classes of blocks that the API accepts at the place.
        reason: why blocks of other classes cannot be sent.
        losses: list to which each loss is appended.
    """
    found: list[Json] = []
    for block in content:
        rendered = render(block) if isinstance(block, taken) else reason
        if isinstance(rendered, dict):
            found.append(rendered)
        elif rendered:
            losses.append(f"{name_of(block)} left out: {rendered}")
    return found


def name_of(block: Block) -> str:
    """Return the name of a block for warnings."""
    return f"error {block.message!r}" if isinstance(block, ErrorBlock) else block.type
