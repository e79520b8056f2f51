"""The bounds, periods and limits of a worker and of its runs, each with its default. Times are in seconds.

Correctness must not depend on large values: tests pass tiny ones.
"""

from dataclasses import dataclass, field

from lanebus.bus.errors import check_bounds
from lanebus.bus.wire import MESSAGE_LIMIT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBounds:
    """The limits of a model's adapter."""

    read_ahead: int = 64
    """maximum number of pieces of an answer that are buffered; while the buffer is full, the connection is not read"""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewBounds:
    """The limits and periods of a message's live preview."""

    pause_seconds: float = 0.05
    """pieces that arrive within this time are sent together"""
    flush_characters: int = 2_000
    """number of unsent characters at which pieces are sent before `pause_seconds` has passed"""
    delta_characters: int = 16_000
    """maximum number of characters of one delta"""
    shown_characters: int = MESSAGE_LIMIT_BYTES
    """maximum number of characters shown of one message, by default the size limit of a recorded message in bytes"""
    end_seconds: float = 2.0
    """longest wait, at the end of a message, until its last pieces are sent"""
    answer_seconds: float = 86_400.0
    """time limit for sending a delta while the model streams, including retries"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("pause_seconds", "end_seconds"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBounds:
    """The limits and periods of one run of an agent."""

    publish_seconds: float = 60.0
    """longest time that an append waits for a server. The default is long: an unrecorded answer wastes its cost"""
    publish_attempts: int = 1_000
    """maximum number of attempts to append at an expected position while other clients append too"""
    watch_after_seconds: float = 0.02
    """delay before a step starts the tasks that watch for commands and the step's deadline; shorter steps start no such
    task"""
    watch_pause_seconds: float = 0.25
    """pause before listening for commands again if the server could not be reached; the step continues meanwhile"""
    partial_answer_seconds: float = 5.0
    """longest time that a cancelled step takes to record its partial answer"""
    clean_up_seconds: float = 2.0
    """longest time that a cancelled model or tool takes to clean up; after that, the model or tool is abandoned"""
    tool_threads: int = 16
    """maximum number of calls of sync tools that run at a time in one session; further calls of the session wait"""
    abandoned_threads: int = 16
    """number of threads of stopped sync tools at which further sync calls of their session are refused"""
    abandoned_in_all: int = 256
    """number of threads of stopped sync tools in one worker at which further sync calls of each session that has such a
    thread are refused"""
    drain_tokens: int = 1_000
    """about how many tokens a model may generate after its answer was cut; the stream is then closed to limit cost"""
    usage_seconds: float = 2.0
    """longest time that a run without other work spends asking providers for the usage of cut calls"""
    usage_attempts: int = 3
    """maximum number of requests for the usage of one answer, per process"""
    usage_entries: int = 500
    """newest entries of the LLM lane that are searched for cut answers"""
    usage_answers: int = 4_096
    """maximum number of answers whose usage requests are counted; then the oldest counts are dropped and begin again"""
    retry_after_seconds: float = 300.0
    """longest wait that a provider may ask for before the model is called again, such as with `retry-after`"""
    child_pause_seconds: float = 1.0
    """pause between two attempts to reach a sub-agent's session"""
    delay_seconds: float = 5.0
    """longest time that `ask` and `answered` take after their time is over, to find out why there is no answer"""
    preview: PreviewBounds = field(default_factory=PreviewBounds)

    def __post_init__(self) -> None:
        check_bounds(
            self,
            zero=(
                "watch_after_seconds",
                "partial_answer_seconds",
                "clean_up_seconds",
                "drain_tokens",
                "usage_seconds",
                "usage_attempts",
                "delay_seconds",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBounds:
    """The limits and periods of one worker."""

    warm_sessions: int = 4_096
    """maximum number of idle sessions in memory; sessions with a running task do not count"""
    warm_bytes: int = 48 * 1_048_576
    """maximum number of bytes of all idle sessions in memory: the JSON of their entries, and 2 kB for each entry of the
    LLM lane. The session that ran last is kept whatever its size"""
    warm_sweep_seconds: float = 60.0
    """pause between two searches for idle sessions that were erased, whose content is then dropped"""
    most_keys: int = 50_000
    """publish keys of a session at which the worker logs a warning; they take about 5 MB of the server's memory"""
    store_every: int = 500
    """Positions between two stored states of a session. A cold start reads at most this many positions of the extension
    lane. A stored state keeps later entries from being trimmed. To allow trimming, a short session stores no state."""
    first_pause_seconds: float = 0.25
    """first pause before retrying a session whose lease another worker has, or that cannot be read. The pause
    doubles each time"""
    longest_pause_seconds: float = 60.0
    """longest pause before retrying a session whose lease another worker has, or that cannot be read"""
    nack_seconds: float = 3.0
    """longest time to return an unfinished session to the group"""
    ignored_commands: int = 3
    """runs in a row that may leave the oldest command unanswered; after these, the worker refuses all commands"""
    lost_attempts: int = 10
    """attempts without an outcome before the session becomes a dead letter: the session probably kills its workers"""
    look_seconds: float = 5.0
    """pause between two looks at whether the log was emptied or went back. The end of an outage ends it"""
    renewals: int = 3
    """renewals within one heartbeat period; the time-out of each is an equal share of the period"""
    run: RunBounds = field(default_factory=RunBounds)

    def __post_init__(self) -> None:
        check_bounds(self, zero=("warm_sessions", "warm_bytes"))


DEFAULT_RUN_BOUNDS = RunBounds()
DEFAULT_WORKER_BOUNDS = WorkerBounds()
