"""How the loops of a session hang together, and what each of them took. Pure questions to the turns' state."""

from lanebus.bus.messages.usage import Usage
from lanebus.handlers.projections.turns_state import Loop, Turn, TurnsState

__all__ = (
    "chain_to",
    "children",
    "find_loop",
    "loop_messages",
    "loop_turns",
    "loop_usage",
    "roots",
    "siblings",
    "total_usage",
    "usages",
)


def find_loop(state: TurnsState, loop_id: str) -> Loop | None:
    """The loop of that id."""
    place = state.loop_places.get(loop_id)
    return None if place is None else state.loop_chunks[place]


def children(state: TurnsState, loop_id: str) -> tuple[str, ...]:
    """The loops that go on from this one, or are tools of it, in the order they began."""
    return tuple(loop.loop_id for loop in state.loops if loop.parent == loop_id)


def roots(state: TurnsState) -> tuple[str, ...]:
    """The loops that go on from none, or from one of another session."""
    return tuple(loop.loop_id for loop in state.loops if loop.parent is None or loop.parent not in state.loop_places)


def chain_to(state: TurnsState, loop_id: str) -> tuple[str, ...]:
    """The loops from the first one to this, each going on from the one before; empty where it is not known.

    Ids come from others, so parents may run in a circle: then the chain begins where it would close.
    """
    chain: dict[str, None] = {}
    loop = find_loop(state, loop_id)
    while loop is not None and loop.loop_id not in chain:
        chain[loop.loop_id] = None
        loop = None if loop.parent is None else find_loop(state, loop.parent)
    return tuple(reversed(chain))


def siblings(state: TurnsState, loop_id: str) -> tuple[str, ...]:
    """The loops that ran side by side with this one, itself among them; empty where it ran alone."""
    loop = find_loop(state, loop_id)
    return () if loop is None else tuple(name for name in loop.group if name in state.loop_places)


def loop_turns(state: TurnsState, loop_id: str) -> tuple[Turn, ...]:
    """The turns of a loop, in the order they began."""
    return tuple(turn for turn in state.turns if turn.loop_id == loop_id)


def loop_messages(state: TurnsState, loop_id: str) -> tuple[int, ...]:
    """Positions of what a loop was told and has said; it has them too if it never ended."""
    found: set[int] = set()
    for turn in loop_turns(state, loop_id):
        found.update(turn.prompts, turn.results, () if turn.message is None else (turn.message,))
    return tuple(sorted(found))


def loop_usage(state: TurnsState, loop_id: str) -> Usage:
    """What a loop took: the sum over its turns. What its end repeats counts only where no turn says anything."""
    return usages(state).get(loop_id, Usage())


def total_usage(state: TurnsState) -> Usage:
    """What the session took: all its loops, and the turns of imported history. What chose among parallel loops is not
    in it."""
    total = Usage()
    for usage in usages(state).values():
        total = total.combine(usage)
    return total


def usages(state: TurnsState) -> dict[str | None, Usage]:
    """What each loop took, by its id; under None, what imported history did."""
    found: dict[str | None, Usage] = {}
    for turn in state.turns:
        if turn.usage is not None:
            found[turn.loop_id] = found.get(turn.loop_id, Usage()).combine(turn.usage)
    for loop in state.loops:
        if loop.said_usage is not None:
            found.setdefault(loop.loop_id, loop.said_usage)
    return found
