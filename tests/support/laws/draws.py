"""Random arguments of a step: a draw takes a source of randomness and returns a value.

Not Hypothesis: its swarm testing leaves out whole kinds of steps for an example, so rare outcomes took five times as
many steps, and a seed's draws depended on its version and on the loaded modules.
"""

from collections.abc import Callable
from random import Random
from typing import TypeVar

__all__ = ("Draw", "chosen", "fraction", "lists", "maybe", "pairs", "whole")

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

Draw = Callable[[Random], T]


def chosen(*options: T) -> Draw[T]:
    """Return one of the options; an option that is named twice is twice as likely."""
    return lambda random: random.choice(options)


def whole(first: int, last: int) -> Draw[int]:
    """Return a whole number, both ends included."""
    return lambda random: random.randint(first, last)


def fraction(random: Random) -> float:
    """Return a number from 0 to 1; in a quarter of the cases an end, where bugs sit."""
    return random.choice([0.0, 1.0]) if random.random() < 0.25 else random.random()


def maybe(draw: Draw[T]) -> Draw[T | None]:
    """Return None in half of the cases."""
    return lambda random: draw(random) if random.random() < 0.5 else None


def lists(draw: Draw[T], least: int, most: int) -> Draw[list[T]]:
    """Return a list of `least` to `most` values."""
    return lambda random: [draw(random) for _ in range(random.randint(least, most))]


def pairs(first: Draw[A], second: Draw[B]) -> Draw[tuple[A, B]]:
    """Return one of each."""
    return lambda random: (first(random), second(random))
