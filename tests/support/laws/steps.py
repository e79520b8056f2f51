"""A random walk over the steps of a machine: seeded, steered to what was met least, and told in full if it fails.

    rules = Rules["Machine"]()

    class Machine:
        @rules.add(every=3, name=chosen("a", "b"))
        def read(self, name: str) -> None: ...

A machine is made anew for each walk. Every walk draws from `SEED` and its own number alone.
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
"""The share of the steps that go to the rule that was taken least, so that every rule is taken in a few walks."""


class Walker(Protocol):
    """A machine."""

    def finish(self) -> None:
        """Check what can only be checked at the end of a walk that went well."""
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
    """steps of one walk from one of this kind to the next, at least"""
    is_possible: Callable[[M], bool]
    draws: dict[str, Draw[object]]


def _always(_: object) -> bool:
    return True


class Rules(Generic[M]):
    """The kinds of steps of one machine, in the order in which they are defined."""

    def __init__(self) -> None:
        self.all: list[Rule[M]] = []

    def add(self, *, every: int = 1, when: Callable[[M], bool] = _always, **draws: Draw[object]) -> Callable[[Do], Do]:
        """Make a method of the machine a step that is given what the draws return."""

        def added(do: Do) -> Do:
            self.all.append(Rule(do.__name__, do, every, when, draws))
            return do

        return added


class Unmet(Exception):
    """The walks met too little to say that the laws hold."""


@dataclass
class Counted:
    """What all walks did together."""

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
    """Take a number of steps. An error of a step has all steps so far as its note."""
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
