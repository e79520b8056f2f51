"""When a context is too large, and how loops are told shorter."""

from typing import cast

import pytest

from lanebus.bus.messages import (
    AssistantMessage,
    CompactionBlock,
    LlmMessage,
    LoopCompaction,
    TextBlock,
    TurnId,
    TurnRange,
    UserMessage,
)
from lanebus.context import HeadroomTrigger, ReserveTrigger
from lanebus.handlers.context import BY_BYTES
from lanebus.handlers.context.loop_compaction import BlockSettings, block_of, blocks_of, turns_of
from tests.support.log.entries import context_of
from tests.support.vectors.cases import Case, Object, cases

__all__ = ()

LOOP = "test.model.1"


def _turns(count: int, *, loop: str = LOOP, each: int = 2) -> list[LlmMessage]:
    messages: list[LlmMessage] = []
    for turn in range(count):
        stamp = TurnId(loop_id=loop, turn_index=turn)
        for at in range(each):
            text = (TextBlock(text=f"what was said in turn {turn}"),)
            messages.append(
                UserMessage(content=text, turn_id=stamp)
                if at % 2 == 0
                else AssistantMessage(content=text, turn_id=stamp)
            )
    return messages


def _bounds(of: TurnRange | None) -> list[int] | None:
    return [of.start_turn, of.end_turn] if of else None


def _compare_block(block: CompactionBlock, expect: Object) -> None:
    found = {
        "keep_first": _bounds(block.keep_first),
        "keep_compacted": _bounds(block.keep_compacted.range if block.keep_compacted else None),
        "keep_recent": _bounds(block.keep_recent.range if block.keep_recent else None),
    }
    for name, wanted in expect.items():
        assert found[name] is not None if wanted == "present" else found[name] == wanted


def _settings(given: Object) -> BlockSettings:
    defaults = BlockSettings()
    return BlockSettings(
        keep_first=cast("int", given.get("keep_first", defaults.keep_first)),
        keep_recent=cast("int", given.get("keep_recent", defaults.keep_recent)),
    )


def _reserve_fires(case: Object) -> bool:
    trigger = ReserveTrigger(
        window=cast("int", case["window"]), reserve=cast("int", case["reserve"]), is_enabled=case["enabled"] is True
    )
    return trigger.fires(cast("int", case["tokens"]))


def _blocks(given: Object) -> dict[str, bool]:
    """Which of three loops gets a block."""
    names = [LOOP, "test.model.2", "test.model.3"]
    loops = {name: _turns(4, loop=name) for name in names}
    if given["scope"] == "TokenBudget":
        assert given["budget"] == "tokens(loop2)+10"
        window = sum(map(BY_BYTES.message, loops[names[1]])) + 10
        settings = BlockSettings(scope="tokens", window_tokens=window)
    else:
        settings = BlockSettings(scope=cast("dict[str, int]", given["scope"])["FixedCount"])
    assert given["current"] == names[-1]
    found = blocks_of(loops, settings)
    return {name: name in found for name in names}


@cases("compaction")
def test_a_compaction_comes_when_it_must_and_keeps_what_it_says(case: Case) -> None:
    given, expect = case.given, case.expect
    match given:
        case {"cases": _}:
            assert [_reserve_fires(one) for one in cast("list[Object]", given["cases"])] == expect["should_compact"]
        case {"turn_indexes": [None, None]}:
            assert len(turns_of([UserMessage.text("a"), UserMessage.text("b")])) == expect["turn_count"]
        case {"turns": int(turns), "latest_loop": bool(is_latest)}:
            _compare_block(block_of(_turns(turns), _settings(given), is_latest=is_latest), expect)
        case {"turns": int(turns), "messages_per_turn": int(each), "block": None}:
            assert len(context_of(*_turns(turns, each=each)).messages) == expect["context_len"]
        case {"turns": int(turns), "messages_per_turn": int(each)}:
            said = _turns(turns, each=each)
            block = block_of(said, _settings(given), is_latest=True)
            length = len(context_of(*said, LoopCompaction(loop_id=LOOP, block=block)).messages)
            assert cast("int", expect["context_len_gt"]) < length < cast("int", expect["context_len_lt"])
        case {"max_tokens": int(window), "system_tokens": int(system), "current_tokens": _}:
            trigger = HeadroomTrigger(
                window=window,
                system=system,
                full=cast("float", given["compact_at_pct"]),
                least_free=cast("float", given["threshold"]),
            )
            assert [trigger.fires(count) for count in cast("list[int]", given["current_tokens"])] == expect["fires"]
        case {"scope": _}:
            wanted = expect["has_block"]
            found = _blocks(given)
            assert found == (
                wanted if isinstance(wanted, dict) else dict(zip(found, cast("list[bool]", wanted), strict=True))
            )
        case _:
            pytest.fail("no such case")
