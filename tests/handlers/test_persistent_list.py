"""A persistent list behaves as the tuple of its items would, and is stored in chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus.bus.messages import Frozen
from lanebus.handlers.context import PersistentList


class _State(Frozen):
    numbers: PersistentList[int] = PersistentList()


def test_a_persistent_list_equals_the_tuple_of_its_items() -> None:
    plain: tuple[int, ...] = ()
    grown: PersistentList[int] = PersistentList()
    for number in range(700):
        plain, grown = (*plain, number), grown.appended(number)
        assert (grown[-1], grown[0]) == (number, 0)
    assert PersistentList(plain[:100]).appended(*plain[100:]) == grown
    for index in (0, 63, 64, 127, 128, 500, 699):
        plain = (*plain[:index], -index, *plain[index + 1 :])
        grown = grown.replaced(index, -index)
    assert tuple(grown) == plain
    assert tuple(reversed(grown)) == plain[::-1]
    assert (grown[3], grown[-1], grown[120:140], len(grown)) == (plain[3], plain[-1], plain[120:140], 700)
    assert grown == PersistentList(plain)
    assert grown.appended(1) != grown
    with pytest.raises(IndexError):
        grown[700]
    with pytest.raises(IndexError):
        grown.replaced(700, 0)


def test_a_longer_list_leaves_the_shorter_one_as_it_was() -> None:
    short = PersistentList(range(200))
    one, other = short.appended(1), short.appended(2)
    assert (len(short), one[200], other[200]) == (200, 1, 2)
    assert short.replaced(0, 9)[0] == 9
    assert short[0] == 0


@given(st.integers(0, 200))
def test_a_stored_list_is_chunks_of_64_and_reads_back_the_same(count: int) -> None:
    state = _State(numbers=PersistentList(range(count)))
    chunks = [list(range(count))[at : at + 64] for at in range(0, count, 64)]
    assert state.to_json() == f'{{"numbers":{chunks}}}'.replace(" ", "")
    assert _State.model_validate_json(state.to_json()) == state


class _Item(Frozen):
    id: str
    value: int = 0


@given(st.lists(st.tuples(st.sampled_from(("append", "replace", "rename", "back", "look")), st.integers(0, 9))))
def test_places_are_those_that_a_search_finds_whatever_other_lists_grew_from_the_same_one(
    steps: list[tuple[str, int]],
) -> None:
    """Lists that begin alike share one index. Each step grows, changes or shortens one of several versions."""
    versions: list[PersistentList[_Item]] = [PersistentList()]
    for number, (step, choice) in enumerate(steps):
        items = versions[choice % len(versions)]
        match step:
            case "append":
                items = items.appended(_Item(id=f"c{choice % 3}", value=number))
            case "replace" if items:
                items = items.replaced(choice % len(items), _Item(id=items[choice % len(items)].id, value=number))
            case "rename" if items:
                items = items.replaced(choice % len(items), _Item(id=f"c{number % 3}", value=number))
            case "back":
                items = items.beginning(choice)
            case _:
                items.places("id", "c0")
        versions.append(items)
        for each in versions:
            for id in ("c0", "c1", "c2", "c3"):
                assert each.places("id", id) == tuple(at for at, item in enumerate(each) if item.id == id)
