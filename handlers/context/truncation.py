"""Cut long tool outputs in the middle. Pure; the text is from the `two-lane-agent` system."""

from lanebus.bus.messages.content import Block, TextBlock
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage

__all__ = ("head_and_tail", "truncated")


def head_and_tail(text: str, most_lines: int) -> str:
    """Return the text. If it has more than `most_lines` lines, replace the lines in the middle by a note."""
    lines = text.splitlines()
    if len(lines) <= most_lines:
        return text
    head, tail = lines[: most_lines // 2], lines[len(lines) - (most_lines - most_lines // 2) :]
    cut = len(lines) - most_lines
    return "\n".join(head) + f"\n\n[... {cut} lines truncated ...]\n\n" + "\n".join(tail)


def truncated(message: LlmMessage, most_lines: int) -> LlmMessage:
    """Return a tool result with its long texts cut by `head_and_tail`, and any other message unchanged.

    If a text is cut, `structured` is None in the result.
    """
    if not isinstance(message, ToolResultMessage):
        return message
    content = tuple(_cut_block(block, most_lines) for block in message.content)
    if content == message.content:
        return message
    # The structured result is dropped, because it would still hold the whole output.
    return message.model_copy(update={"content": content, "structured": None})


def _cut_block(block: Block, most_lines: int) -> Block:
    if not isinstance(block, TextBlock):
        return block
    text = head_and_tail(block.text, most_lines)
    return block if text == block.text else block.model_copy(update={"text": text})
