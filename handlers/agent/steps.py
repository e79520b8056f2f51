"""What to do next in a session: one step, decided from the log alone. Pure.

A step is one append, or a few that are each of use by themselves, and every append has a key made from what it is
about. So a step that died on its way is decided upon again by whoever comes next, and run twice it adds nothing.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from bus.messages.context_entry import Position
from bus.messages.control import Abort, Compact
from bus.messages.turn import TurnId
from handlers.agent.interrupt import find_interrupt, is_aborted
from handlers.agent.judging import waits_for_turn
from handlers.agent.limits import Reached
from handlers.agent.open_answer import Answer
from handlers.agent.run import View
from handlers.agent.settings import LoopSettings
from handlers.agent.standing import Standing, read_standing
from handlers.agent.status import Command
from handlers.agent.turn_numbers import loop_usage, new_loop, next_turn

__all__ = (
    "ABORTED",
    "SKIPPED",
    "Beginning",
    "CloseCalls",
    "CompactContext",
    "Instruct",
    "Obey",
    "Rest",
    "RunTools",
    "Speak",
    "Step",
    "Stop",
    "TakeUp",
    "loop_seconds",
    "next_step",
)

ABORTED = "Aborted by the user"
SKIPPED = "Skipped due to queued user message."
"""Source: seed 001"""


class Beginning(NamedTuple):
    """How a new loop begins."""

    parent: str | None
    """the loop that it goes on from, or that was before it"""
    continuation: Literal["initial", "default", "branch", "compaction"]


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be done, or only a person can go on."""


@dataclass(frozen=True, slots=True)
class Obey:
    """Answer the oldest command, in one append with what it does."""

    command: Command


@dataclass(frozen=True, slots=True)
class Instruct:
    """Put the instructions into a session that has none."""

    text: str


@dataclass(frozen=True, slots=True)
class TakeUp:
    """Begin a loop with the open calls of another one."""

    answer: Answer
    """in the new loop's first turn"""
    begins: Beginning


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run the calls that are open, as far as they may run."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class CloseCalls:
    """Answer the open calls with an error, so that the turn is over."""

    answer: Answer
    text: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End a loop that has reached a limit."""

    turn_id: TurnId
    """its last one"""
    reached: Reached
    seen: int
    """up to where all is done with"""
    held: tuple[int, ...] = ()
    """but for these"""


@dataclass(frozen=True, slots=True)
class CompactContext:
    """Tell the context shorter before it is asked with."""

    turn_id: TurnId
    """the next one of the open loop; of the loop that would begin, if none is open"""
    is_open: bool
    """a loop is open: it ends here, and the next one goes on"""
    command: Command | None = None
    """who asked for it, if somebody did"""


@dataclass(frozen=True, slots=True)
class Speak:
    """Ask the model."""

    turn_id: TurnId
    begins: Beginning | None
    """of a loop that begins with this turn"""
    trigger: Literal["user", "subAgent", "continuation", "branch"]
    results: tuple[Position, ...]
    prompts: tuple[Position, ...]
    fresh: tuple[Position, ...]
    """those of the prompts that no model was shown yet"""
    held: tuple[Position, ...]
    """what the model is not shown yet"""


Step = Rest | Obey | Instruct | TakeUp | RunTools | CloseCalls | Stop | CompactContext | Speak


def next_step(view: View, settings: LoopSettings, now: float) -> Step:
    """What a worker that holds the session does next.

    Args:
        now: seconds UTC; infinity once a call was cut by the time limit. The server's clock tells when a loop began,
            and a later entry than this moves it on.
    """
    standing = read_standing(*view)
    if not standing.has_work:
        return Rest()
    if standing.commands:
        return _before_command(view, standing, settings)
    return _go_on(view, standing, settings, now)


# --- commands -----------------------------------------------------------------------------------------------------


def _before_command(view: View, standing: Standing, settings: LoopSettings) -> Step:
    """Obey the oldest command, unless a turn has to be ended first."""
    command, answer = standing.commands[0], standing.answer
    if standing.loop_id is not None and answer is not None and answer.open_calls:
        hurried = find_interrupt(standing)
        if hurried is not None:
            return CloseCalls(answer, ABORTED if isinstance(hurried.control, Abort) else SKIPPED)
        if waits_for_turn(command.control, standing):
            if not standing.is_waiting:
                return RunTools(answer)
            if isinstance(command.control, Abort):  # the turn cannot end by itself
                return CloseCalls(answer, ABORTED)
    # What an abort behind it would end at once is not begun: it would be begun again for ever.
    if isinstance(command.control, Compact) and settings.compaction is not None and not is_aborted(standing):
        return _compact(view, standing, settings, command)
    return Obey(command)


def _compact(view: View, standing: Standing, settings: LoopSettings, command: Command | None) -> CompactContext:
    return CompactContext(_next_turn(view, standing, settings), standing.loop_id is not None, command)


# --- the loop -----------------------------------------------------------------------------------------------------


def _go_on(view: View, standing: Standing, settings: LoopSettings, now: float) -> Step:
    """The next step of the loop that is open, or of the one that begins."""
    answer = standing.answer
    if settings.system and not view.context.system:
        return Instruct(settings.system)
    if answer is not None and answer.open_calls:
        if standing.loop_id is None:
            return TakeUp(answer.taken_up(_next_turn(view, standing, settings)), _beginning(view, standing, settings))
        return CloseCalls(answer, SKIPPED) if standing.is_waiting else RunTools(answer)
    if standing.loop_id is not None:
        reached = _reached(view, standing.loop_id, settings, now)
        if reached is not None:
            return _stop(view, standing, standing.loop_id, reached)
    if settings.compaction is not None and settings.compaction.wants(view):
        return _compact(view, standing, settings, None)
    return _speak(view, standing, settings)


def _next_turn(view: View, standing: Standing, settings: LoopSettings) -> TurnId:
    context, status = view
    if standing.loop_id is not None:
        return next_turn(context, standing.loop_id, status.loop)
    return TurnId(loop_id=new_loop(context, status, settings.config), turn_index=0)


def _beginning(view: View, standing: Standing, settings: LoopSettings) -> Beginning:
    loop, answer = view.status.loop, standing.answer
    if loop is not None and loop.is_stopped:
        return Beginning(loop.loop_id, "compaction" if loop.ended == "contextCompacted" else "default")
    if answer is not None:  # of the session that this one was forked from, or of a loop that was gone back to
        return Beginning(answer.turn_id.loop_id, "branch")
    prefix, _, number = new_loop(view.context, view.status, settings.config).rpartition(".")
    return Beginning(None, "initial") if number == "1" else Beginning(f"{prefix}.{int(number) - 1}", "default")


def _speak(view: View, standing: Standing, settings: LoopSettings) -> Speak:
    begins = _beginning(view, standing, settings) if standing.loop_id is None else None
    results = () if standing.answer is None else tuple(position for position, _ in standing.answer.results)
    is_first = begins is not None and view.status.loop is None
    by_user: Literal["user", "subAgent"] = "subAgent" if is_first and view.status.link is not None else "user"
    return Speak(
        turn_id=_next_turn(view, standing, settings),
        begins=begins,
        trigger=by_user if standing.prompts and not results else "continuation",
        results=results,
        prompts=standing.prompts,
        fresh=tuple(position for position in standing.prompts if position > standing.shown),
        held=standing.held,
    )


def _reached(view: View, loop_id: str, settings: LoopSettings, now: float) -> Reached | None:
    context = view.context
    return settings.limits.reached(
        turns=next_turn(context, loop_id, view.status.loop).turn_index,
        usage=loop_usage(context, loop_id),
        seconds=loop_seconds(view, now),
    )


def loop_seconds(view: View, now: float) -> float:
    """How long the newest loop has taken; 0 if there is none.

    Args:
        now: seconds UTC.
    """
    context, loop = view.context, view.status.loop
    newest = context.entries[-1].time if context.entries else now
    # A clock that is behind the server's does not make a loop younger than its newest entry.
    return max(now, newest) - loop.started if loop is not None else 0.0


def _stop(view: View, standing: Standing, loop_id: str, reached: Reached) -> Stop:
    """What a model was shown is done with. Where none was asked in this loop, all that it was to answer is."""
    turn_id = next_turn(view.context, loop_id, view.status.loop)
    if turn_id.turn_index == 0:
        return Stop(turn_id, reached, view.context.position, standing.held)
    last = turn_id.model_copy(update={"turn_index": turn_id.turn_index - 1})
    return Stop(last, reached, standing.shown, standing.held)
