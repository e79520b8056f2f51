"""A chunked sequence behaves as the flat one would."""

from hypothesis import given
from hypothesis import strategies as st

from lanebus.handlers.projections.vector import CHUNK, Vector, at, items, pushed, replaced, size

__all__ = ()


@given(st.integers(0, 3 * CHUNK), st.integers(0, 3 * CHUNK - 1))
def test_items_are_where_a_list_would_have_them(count: int, place: int) -> None:
    vector: Vector[int] = ()
    for number in range(count):
        vector = pushed(vector, number)
    plain = list(range(count))
    if place < count:
        plain[place] = -1
        vector = replaced(vector, place, -1)
        assert at(vector, place) == -1

    assert list(items(vector)) == plain
    assert size(vector) == count
    assert all(len(chunk) == CHUNK for chunk in vector[:-1])
