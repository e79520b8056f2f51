"""When to compact a session's context, and how much of the context is kept. Pure functions."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

from lanebus.bus.errors import require_count, require_seconds, require_text
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.context_entry import Compaction, Prune
from lanebus.handlers.agent.clock import SYSTEM_CLOCK, Clock, require_clock
from lanebus.handlers.agent.decide.loop_state import LoopState, SessionSnapshot
from lanebus.handlers.agent.models.failure import failure_of
from lanebus.handlers.agent.models.model import SILENCE_SECONDS, Model
from lanebus.handlers.agent.set_up import check_model
from lanebus.handlers.context.budget import first_to_keep
from lanebus.handlers.context.fold import Context
from lanebus.handlers.context.tokens import BY_BYTES, TokenEstimator, context_tokens, require_estimator

__all__ = ("CompactionPolicy", "find_cut", "wants_compaction", "window_of")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When to compact, what to keep, and which model writes the summary.

    Raises:
        InvalidArgument: a field has a wrong type, or a number is out of range.
        ModelRefused: `model` is no model.
    """

    window: int | None = None
    """the model's context window in tokens; None uses the model's own value. If the model's value is unknown too, only
    a refused request or a command leads to a compaction"""
    reserve: int = 8_192
    """tokens of the window that stay free for the answer, at most half of the window. Source: pi and the `coding-agent`
    system"""
    keep_recent: int = 16_384
    """about how many tokens at the end of the context are kept, at most half of the context. Unanswered messages are
    always kept"""
    model: Model | None = None
    """the model that writes the summary; None means the agent's model"""
    max_tokens: int = 4_096
    """maximum number of tokens of the summary"""
    instructions: str | None = None
    """what a summary has to keep, in addition to the built-in instructions"""
    attempts: int = 3
    """attempts at one compaction. After the last one fails, the loop continues without a summary, as long as the
    provider accepts its requests"""
    pause: float = 2.0
    """seconds before the second attempt; the pause doubles after each attempt"""
    drain_seconds: float = 2.0
    """longest time to keep reading an interrupted summary for its usage, which comes last"""
    silence_seconds: float | None = SILENCE_SECONDS
    """longest time between two events of the model, 300 by default; after a longer silence, the attempt fails. None
    waits forever"""
    clock: Clock = SYSTEM_CLOCK
    """source of time; tests pass another clock"""
    estimator: TokenEstimator = BY_BYTES
    """estimates tokens; by default from the number of bytes"""

    def __post_init__(self) -> None:
        """Check the fields. Raises InvalidArgument, as the class says."""
        require_count("window", self.window, least=1, is_optional=True)
        for name, least in (("reserve", 0), ("keep_recent", 0), ("max_tokens", 1), ("attempts", 1)):
            require_count(name, getattr(self, name), least=least)
        if self.model is not None:
            check_model(self.model)
        require_text("instructions", self.instructions, is_optional=True)
        require_seconds("pause", self.pause)
        require_seconds("drain_seconds", self.drain_seconds)
        require_seconds("silence_seconds", self.silence_seconds, is_optional=True)
        require_clock(self.clock)
        require_estimator(self.estimator)

    @property
    def limit(self) -> int | None:
        """Number of tokens above which a context is compacted; None if the window is unknown."""
        return None if self.window is None else self.window - min(self.reserve, self.window // 2)

    def of(self, model: Model) -> "CompactionPolicy":
        """Return a copy of this policy in which `window` and `model` are set. Values that are set already do not
        change.

        Args:
            model: the agent's model. It replaces None in `model`. Its context window, if known, replaces None in
                `window`.
        """
        return replace(self, window=self.window or window_of(model), model=self.model or model)


def window_of(model: Model) -> int | None:
    """Return a model's context window in tokens; None if it does not report one."""
    window = cast("object", getattr(model, "context_window", None))
    return window if isinstance(window, int) else None


def wants_compaction(snapshot: SessionSnapshot, policy: CompactionPolicy) -> bool:
    """Return whether to compact before the next model call: the context uses the reserve, or the last request was too
    long for the provider.

    Return False while tool calls are open, and while no model has answered since the last compaction. If a person has
    undone the last compaction, return True only if the provider refuses requests.

    Args:
        policy: a policy that was completed by `CompactionPolicy.of`.
    """
    context = snapshot.context
    if snapshot.status.compactions_failed >= policy.attempts:
        return False
    is_refused = _is_refused(context, policy)
    if not is_refused and not _is_full(context, policy):
        return False
    if _is_fresh(context) or (not is_refused and _is_undone(context)):
        return False
    state = snapshot.loop_state
    if state.answer is not None and state.answer.open_calls:
        return False
    return find_cut(context, state, policy) is not None


def find_cut(context: Context, state: LoopState, policy: CompactionPolicy) -> int | None:
    """Return the position of the first entry to keep; None if there is nothing to summarize.

    Unanswered messages are kept, and so is an answer that the loop continues.
    """
    messages = context.messages[1:] if _is_compacted(context) else context.messages
    tokens = min(policy.keep_recent, sum(map(policy.estimator.message, messages)) // 2)
    if policy.limit is not None:
        tokens = min(tokens, policy.limit // 2)
    kept_back = [*state.prompts, *state.deferred]
    if state.answer is not None and not state.answer.message.is_failed:
        kept_back.append(state.answer.position)
    kept = first_to_keep(context, max(tokens, 1), policy.estimator, is_most=True, up_to=min(kept_back, default=None))
    for envelope in context.path:
        if kept is None or envelope.position == kept:
            return None
        if not isinstance(envelope.message, Compaction) and not _is_failed(envelope.message):
            return kept
    return None


def _is_full(context: Context, policy: CompactionPolicy) -> bool:
    return policy.limit is not None and context_tokens(context, policy.estimator) > policy.limit


def _is_refused(context: Context, policy: CompactionPolicy) -> bool:
    """Whether the provider refused the session's last request as too long. Imported answers were no requests of it."""
    own = (each.message for each in reversed(context.path) if not each.is_imported)
    last = next((message for message in own if isinstance(message, AssistantMessage)), None)
    if last is None:
        return False
    failure = failure_of(last)
    return (failure is not None and failure.is_overflow) or last.is_context_overflow(window=policy.window)


def _is_fresh(context: Context) -> bool:
    """Whether no model has answered since the last compaction: another compaction would not shorten the context."""
    if not _is_compacted(context):
        return False
    last = next((position for position, answer in _answers(context) if not answer.is_failed), 0)
    return last < context.path[0].position


def _is_compacted(context: Context) -> bool:
    return bool(context.path) and isinstance(context.path[0].message, Compaction)


def _is_undone(context: Context) -> bool:
    """Whether the newest compaction was undone."""
    pruned: set[int] = set()
    for envelope in reversed(context.entries):
        match envelope.message:
            case Prune(pruned=positions):
                pruned.update(positions)
            case Compaction():
                return envelope.position in pruned
            case _:
                pass
    return False


def _answers(context: Context) -> Iterator[tuple[int, AssistantMessage]]:
    """Yield answers with their positions, the newest first."""
    for envelope in reversed(context.path):
        if isinstance(envelope.message, AssistantMessage):
            yield envelope.position, envelope.message


def _is_failed(message: object) -> bool:
    return isinstance(message, AssistantMessage) and message.is_failed
