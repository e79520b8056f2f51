"""Where a run is in the log: the entries that a client has to read to show it from its beginning. Pure."""

from typing import NamedTuple

from lanebus.handlers.projections.loops import find_loop
from lanebus.handlers.projections.turns_state import Loop, TurnsState

__all__ = ("RunPlace", "open_run", "run_at", "run_of_loop", "run_of_message")


class RunPlace(NamedTuple):
    """The beginning of a run."""

    first: int
    """position from which to read"""
    loop_id: str | None
    """the run's first loop; None if no loop has begun. Entries before its first turn may belong to an earlier run"""


def run_of_message(turns: TurnsState, position: int) -> RunPlace:
    """Return the run that answers a user's message: the one that has read it, otherwise the open one or the next one.

    Args:
        turns: state of `TURNS`, which includes the message.
        position: position of the message.
    """
    for turn in reversed(turns.turns):
        if position in turn.prompts and turn.loop_id is not None:
            return _place(turns, turn.loop_id)
    loop_id = _open_loop(turns)
    return RunPlace(position, None) if loop_id is None else _place(turns, loop_id)


def run_of_loop(turns: TurnsState, loop_id: str) -> RunPlace | None:
    """Return the run that a loop belongs to; None if there is no such loop."""
    return None if find_loop(turns, loop_id) is None else _place(turns, loop_id)


def open_run(turns: TurnsState) -> RunPlace | None:
    """Return the run that is under way or waits for a person, or that a worker will begin; None if there is none."""
    loop_id = _open_loop(turns)
    if loop_id is not None:
        return _place(turns, loop_id)
    return RunPlace(min(turns.waiting), None) if turns.waiting else None


def run_at(turns: TurnsState, position: int) -> RunPlace | None:
    """Return the run that a position belongs to, whether or not it has ended; None if no turn began before it."""
    for turn in reversed(turns.turns):
        known = (*turn.prompts, *turn.results, *(() if turn.message is None else (turn.message,)))
        if turn.loop_id is None or not known or min(known) > position:
            continue
        loop = find_loop(turns, turn.loop_id)
        if loop is not None and not loop.is_beside:
            return _place(turns, turn.loop_id)
    return None


def _open_loop(turns: TurnsState) -> str | None:
    own = [loop for name in turns.running if (loop := find_loop(turns, name)) is not None and not loop.is_beside]
    if own:
        return own[-1].loop_id
    last = next((loop for loop in reversed(turns.loops) if not loop.is_beside), None)
    return last.loop_id if last is not None and _goes_on(last) else None


def _goes_on(loop: Loop) -> bool:
    return loop.stop_reason == "contextCompacted"  # the next loop belongs to the same run


def _place(turns: TurnsState, loop_id: str) -> RunPlace:
    loop, seen = find_loop(turns, loop_id), {loop_id}
    while loop is not None and loop.parent is not None and loop.parent not in seen:
        before = find_loop(turns, loop.parent)
        if before is None or not _goes_on(before):
            break
        seen.add(before.loop_id)
        loop_id, loop = before.loop_id, before
    return RunPlace(_first(turns, loop_id), loop_id)


def _first(turns: TurnsState, loop_id: str) -> int:
    """Return the first prompt of a loop; if none is recorded, the position after the turn before the loop."""
    known = turns.turns
    at = next((at for at, turn in enumerate(known) if turn.loop_id == loop_id), len(known))
    if at < len(known) and known[at].prompts:
        return min(known[at].prompts)
    if at == 0:
        return 1
    last = known[at - 1]
    return max((*last.prompts, *last.results, last.message or 0)) + 1
