"""When a session's context is told shorter by its worker, and how much of it stays. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

from lanebus.bus.messages.context_entry import Compaction, Prune
from lanebus.bus.messages.message import AssistantMessage
from lanebus.handlers.agent.clock import SYSTEM_CLOCK, Clock
from lanebus.handlers.agent.decide.loop_state import LoopState, SessionSnapshot
from lanebus.handlers.agent.models.failure import failure_of
from lanebus.handlers.agent.models.model import SILENCE_SECONDS, Model
from lanebus.handlers.context.budget import first_to_keep
from lanebus.handlers.context.fold import Context
from lanebus.handlers.context.tokens import BY_BYTES, TokenEstimator, context_tokens

__all__ = ("CompactionPolicy", "find_cut", "wants_compaction", "window_of")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When to compact, what to keep, and who writes the summary."""

    window: int | None = None
    """most tokens that the model takes; None: what the model says of itself. Where nobody knows, only a provider that
    finds a request too long, or a command, leads to a compaction"""
    reserve: int = 8_192
    """tokens that are left for the answer, at most half of the window. Source: seed 000, pi"""
    keep_recent: int = 16_384
    """no more than about so many tokens at the end stay as they are, and never more than half of what there is; but
    always what no model has answered"""
    model: Model | None = None
    """who writes the summary; None: the one that the agent asks"""
    max_tokens: int = 4_096
    """most tokens of the summary"""
    instructions: str | None = None
    """what a summary has to keep besides the usual"""
    attempts: int = 3
    """tries for one compaction; after them the loop goes on without, as long as its requests are taken"""
    pause: float = 2.0
    """seconds before the second try; it doubles"""
    drain_seconds: float = 2.0
    """how long a summary that a command has cut is listened to for what it costs"""
    silence_seconds: float | None = SILENCE_SECONDS
    """how long the model may say nothing; then the try has failed. None waits for ever"""
    clock: Clock = SYSTEM_CLOCK
    """tells the time; tests pass their own"""
    estimator: TokenEstimator = BY_BYTES

    @property
    def limit(self) -> int | None:
        """A larger context is compacted; None where the window is not known."""
        return None if self.window is None else self.window - min(self.reserve, self.window // 2)

    def of(self, model: Model) -> "CompactionPolicy":
        """This policy for an agent that asks `model`: its window where none is set, and it where none is to write."""
        return replace(self, window=self.window or window_of(model), model=self.model or model)


def window_of(model: Model) -> int | None:
    """Most tokens that a model takes, if it says so."""
    window = cast("object", getattr(model, "context_window", None))
    return window if isinstance(window, int) else None


def wants_compaction(snapshot: SessionSnapshot, policy: CompactionPolicy) -> bool:
    """Whether to compact before the model is asked again: the context has grown into the reserve, or the last request
    was too long for its provider.

    Not while calls are open, not twice without an answer between, and not after a person has undone the last one, as
    long as the provider takes the requests.

    Args:
        policy: one that knows the model's window, see `CompactionPolicy.of`.
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
    """Position of the first entry that stays; None where nothing before it would be left to tell.

    What no model has answered stays, and so does an answer that is gone on with.
    """
    said = context.messages[1:] if _is_compacted(context) else context.messages
    tokens = min(policy.keep_recent, sum(map(policy.estimator.message, said)) // 2)
    if policy.limit is not None:
        tokens = min(tokens, policy.limit // 2)
    kept_back = [*state.prompts, *state.deferred]
    if state.answer is not None and not state.answer.message.is_failed:
        kept_back.append(state.answer.position)
    kept = first_to_keep(context, max(tokens, 1), policy.estimator, is_most=True, up_to=min(kept_back, default=None))
    for stood in context.path:
        if kept is None or stood.position == kept:
            return None
        if not isinstance(stood.message, Compaction) and not _is_failed(stood.message):
            return kept
    return None


def _is_full(context: Context, policy: CompactionPolicy) -> bool:
    return policy.limit is not None and context_tokens(context, policy.estimator) > policy.limit


def _is_refused(context: Context, policy: CompactionPolicy) -> bool:
    """The last thing that a provider said is that the request was too long."""
    last = next(_answers(context), None)
    if last is None:
        return False
    failure = failure_of(last[1])
    return (failure is not None and failure.is_overflow) or last[1].is_context_overflow(window=policy.window)


def _is_fresh(context: Context) -> bool:
    """The context was compacted, and no model has answered since: once more would not make it shorter."""
    if not _is_compacted(context):
        return False
    last = next((position for position, answer in _answers(context) if not answer.is_failed), 0)
    return last < context.path[0].position


def _is_compacted(context: Context) -> bool:
    return bool(context.path) and isinstance(context.path[0].message, Compaction)


def _is_undone(context: Context) -> bool:
    """The newest compaction that there was is left out."""
    pruned: set[int] = set()
    for at in range(len(context.entries) - 1, -1, -1):
        match context.entries[at].message:
            case Prune(pruned=positions):
                pruned.update(positions)
            case Compaction():
                return context.entries[at].position in pruned
            case _:
                pass
    return False


def _answers(context: Context) -> Iterator[tuple[int, AssistantMessage]]:
    """Answers with their positions, the newest first."""
    for at in range(len(context.path) - 1, -1, -1):
        message = context.path[at].message
        if isinstance(message, AssistantMessage):
            yield context.path[at].position, message


def _is_failed(message: object) -> bool:
    return isinstance(message, AssistantMessage) and message.is_failed
