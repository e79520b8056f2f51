"""The context at a leaf of a session file, read as an import reads it, in both spellings of such files."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus import Bus
from lanebus.bus.messages import BranchSummary, Compaction, LlmMessage
from lanebus.context import Context, build_context
from lanebus.handlers.context import branch_message
from lanebus.handlers.context.fold import compaction_message
from lanebus.handlers.formats import PI, import_transcript
from lanebus.handlers.formats.coding_agent.transcript import CODING_AGENT_FORMAT
from lanebus.handlers.formats.in_memory import ListedTranscript
from lanebus.handlers.formats.transcript import Format
from tests.support.vectors.cases import Case, Object, cases

__all__ = ()

Line = dict[str, JsonValue]

CONTRADICTED = {
    "pi.ctx.unknown_leaf": "A leaf that is not there is an error: whoever names it would get another branch unseen.",
}

_PI_NAMES = {
    "parent_id": "parentId",
    "first_kept_entry_id": "firstKeptEntryId",
    "tokens_before": "tokensBefore",
    "from_id": "fromId",
    "target_id": "targetId",
    "model_id": "modelId",
    "provider_id": "provider",
    "thinking_level": "thinkingLevel",
}
_SAID = {"role", "text", "provider", "model"}


def _as_pi(entry: Line) -> Line:
    line: Line = {_PI_NAMES.get(key, key): item for key, item in entry.items() if key not in _SAID}
    line["timestamp"] = "2025-12-09T00:53:29.825Z"
    if entry["type"] == "message":
        said: Line = {key: entry[key] for key in ("role", "provider", "model") if key in entry}
        line["message"] = {**said, "content": [{"type": "text", "text": entry["text"]}]}
    elif "provider" in entry:
        line["provider"] = entry["provider"]
    return line


def _as_000(entry: Line) -> Line:
    line: Line = {
        "provider_id" if key == "provider" else key: item
        for key, item in entry.items()
        if key not in _SAID or (key == "provider" and entry["type"] != "message")
    }
    line["timestamp"] = 1765241609.825
    if entry["type"] == "message":
        line["message"] = {"role": entry["role"], "contents": [{"type": "text", "content": entry["text"]}]}
    return line


_FORMS: tuple[tuple[Format, Line, Callable[[Line], Line]], ...] = (
    (PI, {"type": "session", "id": "x", "timestamp": "2025-12-09T00:53:29.825Z", "version": 3}, _as_pi),
    (CODING_AGENT_FORMAT, {"type": "session", "id": "x", "timestamp": 1765241609.8, "version": 3, "cwd": "."}, _as_000),
)


def _kinds(context: Context) -> list[list[str]]:
    """Kind and text of what the model reads, in its order."""
    kinds: list[list[str]] = []
    read: list[str] = []
    for stood in context.path:
        match stood.message:
            case Compaction() as compaction:
                kinds.append(["compaction_summary", compaction.summary])
                told = compaction_message(compaction)
                read += [told.text_content()] if told else []
            case BranchSummary() as summary:
                if (told := branch_message(summary)) is not None:
                    kinds.append(["branch_summary", summary.summary])
                    read.append(told.text_content())
            case LlmMessage() as message:
                kinds.append([str(getattr(message, "role", "")), message.text_content()])
                read.append(message.text_content())
            case _:
                pytest.fail("nothing else stands in such a path")
    assert [message.text_content() for message in context.messages] == read
    return kinds


def _compare(context: Context, expect: Object, form: Format) -> None:
    compared = 0
    model = {"provider": context.provider, "model_id": context.model}
    for name, wanted in expect.items():
        match name:
            case "messages" | "pi":
                assert _kinds(context) == wanted
            case "message_count":
                assert len(context.messages) == wanted
            case "thinking_level":
                # A level that was never set is the model's own, which such files call "off".
                assert (context.thinking_level or "off") == wanted
            case "model" if wanted is None:
                assert (context.provider, context.model) == (None, None)
            case "model":
                assert {"model_id": context.model, "provider_id": context.provider} == wanted
            case "pi_model":
                # Messages of seed 000 do not say which model they are of, so that only its changes are known.
                if form is PI:
                    assert model == wanted
                else:
                    assert model == expect["operator_use_model"]
            case _:
                continue
        compared += 1
    assert compared


@cases("session_context", contradicted=CONTRADICTED)
async def test_the_context_at_a_leaf_is_what_its_branch_says(case: Case, tmp_path: Path) -> None:
    entries = cast("list[Line]", case.given["entries"])
    leaf = case.given["leaf_id"]
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        for form, header, spelled in _FORMS:
            lines: list[JsonValue] = [header, *map(spelled, entries)]
            transcript = ListedTranscript(lines, form, session=f"listed-{form.name}")
            assert transcript.bad == ()
            at = transcript.leaf(leaf if isinstance(leaf, str) else None)
            context = await build_context(transcript, leaf=at)
            _compare(context, case.expect, form)

            session = bus.session(f"imported-{form.name}")
            report = await import_transcript(
                session, io.BytesIO(b"\n".join(json.dumps(line).encode() for line in lines))
            )
            assert (report.format, report.bad) == (form.name, ())
            imported = await build_context(session, leaf=at)
            assert list(imported.messages) == list(context.messages)
            _compare(imported, case.expect, form)
