"""Summaries reach every provider; entries that only steer the context reach none."""

import json

import pytest

from lanebus.bus.messages import TurnId, TurnRange
from lanebus.handlers.context import branch_message
from lanebus.handlers.context.fold import compaction_message
from lanebus.handlers.providers import PROVIDERS
from lanebus.messages import BranchSummary, CompactedSection, Compaction, CompactionBlock, Label, LoopCompaction, Prune
from tests.support.log.entries import asks, context_of

__all__ = ()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_summary_is_in_every_provider_s_request(provider: str) -> None:
    compaction, summary = Compaction(summary="the past", tokens_before=77777), BranchSummary(summary="elsewhere")
    told = (compaction_message(compaction), branch_message(summary))
    turns = TurnRange(start_turn=0, end_turn=0)
    block = CompactionBlock(
        keep_compacted=CompactedSection(range=turns, messages=(asks("in short"),)), created_at="2026-03-01T10:00:00Z"
    )
    context = context_of(
        compaction,  # 1
        summary,  # 2
        asks("long").with_turn_id(TurnId(loop_id="s.main.1", turn_index=0)),  # 3
        asks("pruned"),  # 4
        LoopCompaction(loop_id="s.main.1", block=block),
        Prune(pruned=(4,), memo="was pruned"),
        Label(target=3, label="a name"),
        asks("next"),
    )
    body = json.dumps(PROVIDERS[provider].to_request(context, model="m").body)
    texts = (
        *(message.text_content() for message in told if message is not None),
        *("in short", "[Pruned context summary: was pruned]", "next"),
    )
    places = [body.find(json.dumps(text)[1:-1]) for text in texts]
    assert len(texts) == 5
    assert -1 not in places
    assert places == sorted(places)
    assert not any(text in body for text in ("long", "77777", "a name"))
