"""Random walks: the kinds of steps of a machine, and random arguments for them.

Not Hypothesis: its swarm testing leaves out whole kinds of steps for an example, so rare outcomes took five times as
many steps, and a seed's draws depended on its version and on the loaded modules.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Generic, Protocol, TypeVar

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


Do = TypeVar("Do", bound=Callable[..., None])

STEERED = 0.1
"""share of the steps that go to the rarest rule, so that a few walks take every rule"""


class Walker(Protocol):
    """A machine."""

    def finish(self) -> None:
        """Check what can only be checked at the end of a successful walk."""
        ...

    def leave(self) -> None:
        """Free what the machine holds, also after a failure."""
        ...


M = TypeVar("M", bound=Walker)


@dataclass(frozen=True)
class Rule(Generic[M]):
    """A kind of step."""

    name: str
    do: Callable[..., None]
    every: int
    """least number of steps between two steps of this kind in one walk"""
    is_possible: Callable[[M], bool]
    draws: dict[str, Draw[object]]


def _always(_: object) -> bool:
    return True


class Rules(Generic[M]):
    """The kinds of steps of one machine, in the order of their definition."""

    def __init__(self) -> None:
        self.all: list[Rule[M]] = []

    def add(self, *, every: int = 1, when: Callable[[M], bool] = _always, **draws: Draw[object]) -> Callable[[Do], Do]:
        """Make a method of the machine a step. It is called with what the draws return."""

        def added(do: Do) -> Do:
            self.all.append(Rule(do.__name__, do, every, when, draws))
            return do

        return added


class Unmet(Exception):
    """The walks met too few rules or outcomes to prove the laws."""


@dataclass
class Counted:
    """The counts of all walks together."""

    rules: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    walks: int = 0

    @property
    def steps(self) -> int:
        return self.rules.total()

    def missing(self, rules: Rules[M], outcomes: Collection[str], least: int) -> list[str]:
        """Return the rules and outcomes that were met fewer than `least` times."""
        return [
            *(rule.name for rule in rules.all if self.rules[rule.name] < least),
            *(outcome for outcome in sorted(outcomes) if self.outcomes[outcome] < least),
        ]


def walk(machine: M, rules: Rules[M], counted: Counted, random: Random, steps: int) -> None:
    """Take a number of steps. If a step raises, a note on its error lists all steps so far."""
    counted.walks += 1
    story: list[str] = []
    taken: dict[str, int] = {}
    try:
        for number in range(steps):
            possible = [
                rule
                for rule in rules.all
                if number - taken.get(rule.name, -rule.every) >= rule.every and rule.is_possible(machine)
            ]
            rule = _chosen(possible, counted, random)
            values = {name: draw(random) for name, draw in rule.draws.items()}
            story.append(f"{rule.name}({', '.join(f'{name}={value!r}' for name, value in values.items())})")
            taken[rule.name] = number
            counted.rules[rule.name] += 1
            rule.do(machine, **values)
        machine.finish()
    except BaseException as error:
        error.add_note("\n".join([f"The steps of walk {counted.walks}:", *story]))
        raise
    finally:
        machine.leave()


def _chosen(possible: Sequence[Rule[M]], counted: Counted, random: Random) -> Rule[M]:
    if random.random() < STEERED:
        return min(possible, key=lambda rule: counted.rules[rule.name])
    return random.choices(possible, [1 / rule.every for rule in possible])[0]
