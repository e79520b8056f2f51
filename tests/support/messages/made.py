"""Strategies for values that are made by their Python names, and for the parts that messages share."""

from decimal import Decimal
from typing import TypeVar

from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.messages import Cost, MediaRef, NodeTag, TurnId, Usage

__all__ = ("amounts", "inline", "made", "tags", "turns", "u64", "usages", "values", "words")

T = TypeVar("T")

words = st.text(max_size=12)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)


def made(cls: type[T], **fields: st.SearchStrategy[object]) -> st.SearchStrategy[T]:
    """Draw values of a class by their Python names; `st.builds` would also ask for the JSON names."""
    return st.fixed_dictionaries(fields).map(lambda found: cls(**found))


_leaves: st.SearchStrategy[JsonValue] = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), words
)
values: st.SearchStrategy[JsonValue] = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)
inline = st.binary(min_size=1, max_size=40).map(MediaRef.from_bytes)
amounts = st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=Decimal(0), max_value=Decimal(10**9))
usages = made(
    Usage,
    **dict.fromkeys(("input", "output", "reasoning", "cache_read", "cache_write", "total_tokens"), u64),
    image_tokens=st.none() | u32,
    cost=st.none() | made(Cost, input=amounts, total=amounts, source=st.none() | words),
    raw=values,
)
turns = made(TurnId, loop_id=words, turn_index=u32)
tags = made(
    NodeTag,
    kind=st.sampled_from(["lesson", "finding", "outcome", "checkpoint"]),
    text=words,
    created_at_turn=u32,
    abandoned_node_ids=st.lists(u64, max_size=2).map(tuple),
)
