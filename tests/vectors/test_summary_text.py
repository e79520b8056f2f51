"""What stands in a request where something was summarized, and what a command of the user reads like."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import (
    AssistantMessage,
    BranchSummary,
    Compaction,
    LlmMessage,
    Prune,
    Publishable,
    TextBlock,
    ToolCallBlock,
    UserMessage,
)
from lanebus.handlers.context import BY_BYTES
from lanebus.handlers.context.loop_compaction import one_line_each
from lanebus.handlers.formats import PI
from lanebus.handlers.formats.in_memory import ListedTranscript
from lanebus.handlers.formats.pi import pi
from lanebus.providers import to_anthropic
from tests.support.log.entries import asks, context_of
from tests.support.vectors.cases import Case, Object, cases

__all__ = ()

COUNT = 3


def _only(*messages: Publishable) -> LlmMessage:
    (message,) = context_of(*messages).messages
    return message


def _imported(message: dict[str, JsonValue], *, custom_to_llm: bool = False) -> LlmMessage:
    line: JsonValue = {"type": "message", "timestamp": "2025-12-09T00:53:29.825Z", "message": message}
    transcript = ListedTranscript([line], pi(custom_to_llm=True) if custom_to_llm else PI)
    assert transcript.bad == ()
    said = transcript.entries[0].message
    assert isinstance(said, LlmMessage)
    return said


def _text_of(name: str) -> str | None:
    match name:
        case "prun memo":
            return _only(asks("a"), Prune(pruned=(1,), memo="{memo}")).text_content()
        case "prun silent":
            assert list(context_of(asks("a"), Prune(pruned=(1,))).messages) == []
            return None
        case "N tool uses":
            calls = AssistantMessage(content=tuple(ToolCallBlock(id=str(at), name="x") for at in range(COUNT)))
            (line,) = one_line_each([calls], 1000, BY_BYTES)
            return line.text_content().removeprefix("[Summary] ")
        case "dropped N":
            (line,) = one_line_each([asks("a"), AssistantMessage.text("b"), asks("c")], 0, BY_BYTES)
            return line.text_content()
        case _:
            pytest.fail("no such text")


def _wire_texts(context: list[list[str]]) -> list[str]:
    """The texts that reach the provider: its turns alternate, so what stands side by side is one turn's blocks."""
    entries = [Compaction(summary=text) if kind == "compaction_summary" else asks(text) for kind, text in context]
    body = to_anthropic(context_of(*entries), model="m").body
    turns = cast("list[dict[str, list[dict[str, str]]]]", body["messages"])
    return [block["text"] for turn in turns for block in turn["content"]]


@cases("summary_text")
def test_what_is_told_in_place_of_history_has_the_text_that_its_system_gave_it(case: Case) -> None:
    given, expect = case.given, case.expect
    match given:
        case {"compaction_summary": str(text)}:
            _compare(_only(Compaction(summary=text)), expect)
        case {"branch_summary": str(text)}:
            _compare(_only(BranchSummary(summary=text)), expect)
        case {"custom": _}:
            message = _imported({**cast("dict[str, JsonValue]", given["custom"]), "role": "custom"}, custom_to_llm=True)
            assert isinstance(message, UserMessage)
            assert expect["role"] == message.role
            body = to_anthropic(context_of(message), model="m").body
            assert body["messages"] == [expect]
        case {"command": str(), "output": str(), "exitCode": int()}:
            facts = cast("dict[str, JsonValue]", given)
            assert _imported({**facts, "role": "bashExecution"}).text_content() == expect["text"]
        case {"cases": _}:
            found = [_text_of(name) for name in cast("list[str]", given["cases"])]
            wanted = [text and text.replace("{N}", str(COUNT)) for text in cast("list[str | None]", expect["texts"])]
            assert found == wanted
        case {"context": _, "provider": "anthropic"}:
            context = cast("list[list[str]]", given["context"])
            texts = _wire_texts(context)
            assert len(texts) == expect["required_by_seed_wire_messages"]
            assert all(text in wire for (_, text), wire in zip(context, texts, strict=True))
        case _:
            pytest.fail("no such case")


def _compare(message: LlmMessage, expect: Object) -> None:
    assert isinstance(message, UserMessage)
    assert (message.role, message.content) == (expect["role"], (TextBlock(text=str(expect["text"])),))
