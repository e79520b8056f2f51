"""A random walk over the steps of a machine: seeded, steered to the rarest steps, and reported in full on failure.

    rules = Rules["Machine"]()

    class Machine:
        @rules.add(every=3, name=chosen("a", "b"))
        def read(self, name: str) -> None: ...

Each walk has a new machine, and draws only from `SEED` and its own number.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Generic, Protocol, TypeVar

from tests.support.laws.draws import Draw

__all__ = ("Counted", "Rule", "Rules", "Unmet", "Walker", "walk")

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
