"""The bounds, periods and limits of a worker and of its runs, each with its default. Times are in seconds.

Tests pass tiny ones: what only holds at large bounds is a fault.
"""

from dataclasses import dataclass, field

from lanebus.bus.publishing.limits import MESSAGE_LIMIT_BYTES

__all__ = ("DEFAULT_RUN_BOUNDS", "DEFAULT_WORKER_BOUNDS", "ModelBounds", "PreviewBounds", "RunBounds", "WorkerBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBounds:
    """The bounds of a model's adapter."""

    read_ahead: int = 64
    """pieces of an answer that are read before they are taken; then the connection waits"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewBounds:
    """The bounds of what is shown of a message while a model speaks."""

    pause: float = 0.05
    """pieces that come within this time go out together"""
    flush_characters: int = 2_000
    """so many characters do not wait for the pause"""
    delta_characters: int = 16_000
    """most text of one delta"""
    shown_characters: int = MESSAGE_LIMIT_BYTES
    """most text that is shown of one message; a longer one cannot be recorded whole either"""
    end: float = 2.0
    """how long the end of a message waits for the last pieces to be sent"""
    answer: float = 86_400.0
    """how long a server that does not answer is waited for, while the model speaks"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBounds:
    """The bounds of one run of an agent."""

    publish: float = 60.0
    """how long an append waits for a server; an answer has cost money, so longer than other messages do"""
    tries: int = 1_000
    """attempts to append at the end of a log that others append to meanwhile"""
    listen: float = 0.02
    """after which work is watched for commands and for its time at all; what is done sooner does not pay for that"""
    listen_again: float = 0.25
    """after which a server that could not be asked for commands is asked again; the work goes on meanwhile"""
    last_words: float = 5.0
    """how long a cancelled step takes to record what there is"""
    clean_up: float = 2.0
    """how long a model or a tool that is cancelled may clean up; then it is left behind"""
    drain_tokens: int = 1_000
    """how many tokens more a model that was cut may speak, about: they cost money"""
    settle: float = 2.0
    """how long a run that has nothing else to do asks what cut calls took"""
    settle_tries: int = 3
    """how often one process asks for one answer"""
    settle_entries: int = 500
    """entries of the LLM lane: what was cut longer ago is not asked for any more"""
    settle_remembered: int = 4_096
    """answers whose tries are counted; older ones may be asked for again"""
    child_pause: float = 1.0
    """between two tries to reach a sub-agent's server"""
    preview: PreviewBounds = field(default_factory=PreviewBounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBounds:
    """The bounds of one worker."""

    warm_sessions: int = 4_096
    """most sessions that stay in memory between their turns; those being worked on do not count"""
    warm_entries: int = 400_000
    """most entries of the LLM lane that stay in memory between turns, over all sessions"""
    store_every: int = 500
    """Positions between two stored states of a session. A cold start reads at most so much of the extension lane. A
    stored state also keeps what is behind it from being trimmed, so a short session has none."""
    pause: float = 0.25
    """first pause before a session is tried again that another worker holds or that could not be read; it doubles"""
    longest_pause: float = 60.0
    nack: float = 3.0
    """most time to hand an unfinished session to another worker"""
    ignored: int = 3
    """An agent that ran so often without answering the oldest command answers none."""
    deaths: int = 10
    """A session that was given so often without an outcome kills its workers: it becomes a dead letter."""
    beats: int = 3
    """signs of life within one heartbeat, each given as much time"""
    run: RunBounds = field(default_factory=RunBounds)


DEFAULT_RUN_BOUNDS = RunBounds()
DEFAULT_WORKER_BOUNDS = WorkerBounds()
