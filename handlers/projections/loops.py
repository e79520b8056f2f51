"""The tree of a session's loops, and the usage of each loop. Pure functions of a `TurnsState`."""

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
    """Return the loop with this id; None if there is no such loop."""
    place = state.place(loop_id)
    return None if place is None else state.loop_chunks[place]


def children(state: TurnsState, loop_id: str) -> tuple[str, ...]:
    """Return the ids of the loops that continue `loop_id` or run as its tools, in the order in which they started."""
    return tuple(loop.loop_id for loop in state.loops if loop.parent == loop_id)


def roots(state: TurnsState) -> tuple[str, ...]:
    """Return the ids of the loops that have no parent in this session."""
    return tuple(loop.loop_id for loop in state.loops if loop.parent is None or state.place(loop.parent) is None)


def chain_to(state: TurnsState, loop_id: str) -> tuple[str, ...]:
    """Return the ids of the loops from a root to `loop_id`. Each loop is the parent of the next loop.

    Empty if the state has no loop with this id.

    If the log contains a cycle of parents, the chain has each loop of the cycle once.
    """
    chain: dict[str, None] = {}
    loop = find_loop(state, loop_id)
    while loop is not None and loop.loop_id not in chain:
        chain[loop.loop_id] = None
        loop = None if loop.parent is None else find_loop(state, loop.parent)
    return tuple(reversed(chain))


def siblings(state: TurnsState, loop_id: str) -> tuple[str, ...]:
    """Return the ids of the loops that ran in parallel with `loop_id`, and `loop_id` itself.

    Empty if the loop ran alone or is unknown.
    """
    loop = find_loop(state, loop_id)
    return () if loop is None else tuple(name for name in loop.group if state.place(name) is not None)


def loop_turns(state: TurnsState, loop_id: str) -> tuple[Turn, ...]:
    """Return the turns of a loop, in the order in which they started."""
    return tuple(turn for turn in state.turns if turn.loop_id == loop_id)


def loop_messages(state: TurnsState, loop_id: str) -> tuple[int, ...]:
    """Return the positions of a loop's prompts, answers and tool results, in ascending order.

    The loop need not have ended.
    """
    found: set[int] = set()
    for turn in loop_turns(state, loop_id):
        found.update(turn.prompts, turn.results, () if turn.message is None else (turn.message,))
    return tuple(sorted(found))


def loop_usage(state: TurnsState, loop_id: str) -> Usage:
    """Return the usage of a loop: the sum over its turns, or the usage in its `AgentEnded` if no turn reports any."""
    return usages(state).get(loop_id, Usage())


def total_usage(state: TurnsState) -> Usage:
    """Return the usage of the session: the sum over all loops and over the turns of imported history.

    The usage of the evaluation that selects among parallel loops is not included.
    """
    total = Usage()
    for usage in usages(state).values():
        total = total.combine(usage)
    return total


def usages(state: TurnsState) -> dict[str | None, Usage]:
    """Return the usage of each loop by loop id. The key None has the usage of imported history."""
    found: dict[str | None, Usage] = {}
    for turn in state.turns:
        if turn.usage is not None:
            found[turn.loop_id] = found.get(turn.loop_id, Usage()).combine(turn.usage)
    for loop in state.loops:
        if loop.said_usage is not None:
            found.setdefault(loop.loop_id, loop.said_usage)
    return found
