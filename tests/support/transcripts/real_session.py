"""A recorded coding-agent session of 1,002 entries, as a log of its LLM lane."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from lanebus.bus.messages import Compaction, LlmLaneMessage, ModelChange, ThinkingLevelChange, read_llm
from lanebus.bus.wire import Envelope
from tests.support.log.entries import entry

__all__ = ("real_log",)
Object = dict[str, object]


def real_log(seed_data: Path) -> Iterator[Envelope]:
    """Return each line after the header, at the position of its number; its compactions use the same numbers."""
    with (seed_data / "data" / "pi-session.jsonl").open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number:
                yield entry(number, _read(json.loads(line)))


def _read(line: Object) -> LlmLaneMessage:
    match line["type"]:
        case "model_change":
            return ModelChange(provider=str(line["provider"]), model=str(line["modelId"]))
        case "thinking_level_change":
            return ThinkingLevelChange(level=str(line["thinkingLevel"]))
        case "compaction":
            return Compaction(summary=str(line["summary"]), first_kept=cast("int", line["firstKeptEntryIndex"]))
        case _:
            return _read_message(cast("Object", line["message"]))


def _read_message(message: Object) -> LlmLaneMessage:
    if message["role"] == "bashExecution":
        text = f"Ran `{message['command']}`\n```\n{message['output']}\n```"
        return read_llm(json.dumps({"role": "user", "content": text}))
    kept = {"role", "content", "toolCallId", "toolName", "isError", "stopReason", "model", "provider", "timestamp"}
    plain = {key: value for key, value in message.items() if key in kept}
    if isinstance(blocks := plain["content"], list):
        plain["content"] = [
            {key: value for key, value in block.items() if key != "partialJson"}
            for block in cast("list[Object]", blocks)
        ]
    return read_llm(json.dumps(plain))
