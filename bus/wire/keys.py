"""The names of all keys. `ns` is the namespace. `b` is the bucket, whose braces are the hash tag of a cluster.

| key | type | members | deleted |
|---|---|---|---|
| ns:config | hash | of the whole namespace, see below | never |
| ns:{b}:s:<sid>:llm, :ext | stream | a lane's entries, ids <position>-0 | with the session |
| ns:{b}:s:<sid>:live | stream | live deltas, ids <position>-<k> | after their message ended; expires |
| ns:{b}:s:<sid>:head | hash | see below | never: an erased session keeps it as a tombstone |
| ns:{b}:s:<sid>:keys | hash | publish key, see `ReservedKey` -> first position, count, incarnation | with the session |
| ns:{b}:s:<sid>:p:<name>@<v> | hash | a projection: state, position, incarnation, proof | by `drop_projection` |
| ns:{b}:s:<sid>:checkpoints | hash | holder of entries, see below -> its position | with the session |
| ns:{b}:s:<sid>:archive | sorted set | name of an archived segment -> its last position | with the session |
| ns:{b}:sessions | hash | session -> its time of creation and its agent, see below | member with its session |
| ns:{b}:forged | stream | quarantine: entries of foreign clients, moved out of a lane | capped |
| ns:{b}:index | stream | change notices for followers, one for each append and fork; may be lost | capped |
| ns:{b}:order:<agent> | sorted set | session -> order number of its last wake-up, see below | member with session |
| ns:{b}:woken | hash | session -> position of its newest waking entry, see below | member with its session |
| ns:{b}:wakeups | stream | wake-ups for workers; may be lost or deleted | capped |
| ns:{b}:groups | hash | agent and consumer group -> its progress, see below | by `Bus.remove_group` |
| ns:{b}:open:<agent>:<group> | hash | session -> its open work, see below | when done; with its session |
| ns:{b}:due:<agent>:<group> | sorted set | session whose open work has no consumer -> when due, ms | when fetched |
| ns:{b}:dead:<group> | stream | dead letters, see below | capped |
| ns:{b}:live | stream | index of live deltas: one entry for each `preview` | capped; expires |
| ns:group:{<group>}:consumers | hash | consumer -> its heartbeat, see below | after a day of silence |
| ns:media:<sha256> | string | media by content, shared by all sessions | by erase, on request |
| ns:media:sizes | hash | SHA-256 of stored media -> bytes; `:bytes` is their sum | with the media |

The config has `buckets` and `schema`, and `agent`: the default agent, absent for "agent". Its other fields show whether
the log was emptied or went back, see `bus/log/namespace.py`:

- `generation`: a random text, written once with the namespace. `accepted`: the generation that a person has accepted in
  place of an earlier one.
- `looks`: how often workers and servers of the page have looked at this hash; `looked`: when the last one did, in
  milliseconds.
- `lost`: "<kind> <seen> <found> <seen at> <found at>", a loss that a process has found and no person has accepted.
  `seen` and `found` are numbers of looks, the times are in milliseconds.

The head is a single hash, because every append reads and writes most of its fields:

- `position`, `bytes`: the last position, and the JSON of all messages. `created`, `updated`: times of the first and the
  last append, milliseconds. `state`: "closed" or "erased"; absent while the session is open. The head of an erased
  session has no other field.
- `run`: the server's replication id at the last append. `incarnation`: the token of the present incarnation,
  `<position before its first entry>_<random>`. `incarnations`: the tokens of the newest incarnations. `ends`:
  `<position>.<proof>` of the last entries of the last three appends, see proofs.lua; absent in heads of an earlier
  version.
- `last_llm`, `last_ext`: the position of the last entry that was appended to each lane; absent if there is none.
  `lost`: `<LLM> <extension>`, in each lane the position up to which all entries are missing, because another client
  deleted the stream; 0 if none did.
- `trimmed`, `trimmed_llm`, `trimmed_ext`: the highest trimmed position, over both lanes and in each lane. `trimmed_by`:
  the token of the entry at `trimmed`, `trimmed_proof`: its proof. `trim`: the result of the last step of a trim.
- `archived`: the last archived position. `archive`: `<number> <name>` of the last segment.
- `parent`, `fork`: for a fork, the parent's id, and the cursor of the last shared entry.
- `owner`, `epoch`, `lease_until`, `lease_ms`: the lease's owner, its number, its end and its length, milliseconds.
  `wanted`: another owner waits for the lease. `rests_until`, `rest_ms`: when the next attempt at the session is due.
- `agent`: the name of the agent that the session belongs to; its first append sets it. `assigned`: the last entry that
  handed the session over to another agent, `<position>+1+<incarnation>`.
- `g:<group>`: the position up to which a consumer group found nothing left to do.
- `p:<producer>`: a producer's term and its last two answers, `<term> <answer>|<previous answer>`. `producers`: the
  number of these fields. `floor`: the highest term of a deleted field.
- `live`: `<highest id> <bytes>` of the live deltas. `live_by`: `<producer> <number>` of the last two producers.

The sessions hash has "<created> <agent>" for each session, created in milliseconds. `:bytes` is the bytes of JSON of
all sessions of the bucket, and `:agents` a JSON object with the number of each agent's sessions.

Work is a state, and wake-ups are only hints. Each waking append gives its session the next order number of the bucket.
The session is in the order of its own agent only; a handover moves it to another order. If a recorder did the work of
an agent that no group serves, the session leaves the order and the woken hash until its next waking append. Consumers
read the orders of the agents that they serve. A session waits for a consumer group if its order number is above the
mark, or if its open work has no consumer and is due.

- The woken hash has three more fields. `:last` is the last order number, and `:run` the replication id under which that
  number was given. After another server process takes over, a new block of 2^32 numbers begins. So no number is given
  twice, even if the log lost its end. `:hinted` is the time of the newest wake-up without an append, milliseconds.
  Readers ignore any text after a position.
- The groups hash has "<mark> <start>" in the field `<agent>:<group>`. The group has handled all numbers up to `mark` in
  the order of the agent: their work is done, or is in the open hash of agent and group. `start` is the mark with which
  the group began. `<agent>:<group>:clock` is the latest time of the clock, in ms, at which a retry was scheduled.
  `:dropped:<group>` counts the dead letters that were deleted to make room.
- A member of an open hash is "<consumer> <order> <position> <attempt> <delay> <flags> <error>": the consumer that has
  the work, or nothing; the wake-up's order number and position; how often the work was assigned; the last delay of a
  retry, ms; "r" after a nack, "d" if the work is done; the reason of the last nack.
- A dead letter has the fields s session, z position, n attempts, r reason, t milliseconds, w consumer, b first bytes of
  the faulty entry, l its full size.
- A heartbeat is "<count> <time> <period> <sessions> <agents>": the number of heartbeats, the last heartbeat's time, the
  period of silence after which the consumer counts as dead, ms, its number of sessions, and its agents.

Holders in the checkpoints: `p:<name>@<v>` is a projection, `r:<name>` a reader with a checkpoint, `f:<session>` a fork
that shares entries. Without force, a trim keeps all entries after the lowest position of any holder, unless they are
archived. `p:lanebus.<name>@<v>` holds no trim back: it is a cache, which is made again of what the trim leaves.
"""

import re
from binascii import crc_hqx
from collections.abc import Sequence
from typing import NamedTuple

from lanebus.bus.errors import InvalidName, InvalidNamespace, InvalidSessionId, require_text
from lanebus.bus.messages.base import Lane

ALL_AGENTS = ":agents"
"""The field of a bucket's sessions hash that holds the number of sessions of each agent, as JSON."""

BUCKETS = 64
"""Number of buckets of a new namespace. The number never changes afterwards."""

ALL_BYTES = ":bytes"
"""The field of a bucket's sessions hash that counts the bytes of all sessions. No session id contains a colon."""

DEFAULT_NAMESPACE = "lanebus"
"""The namespace of a bus that names none."""

DEFAULT_AGENT = "agent"
"""The agent of sessions that were published to without the name of an agent, if the namespace has no other default."""

_GROUP, _CONSUMER = re.compile(r"[A-Za-z0-9_.-]{1,64}"), re.compile(r"[!-~]{1,128}")
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_STREAM = {Lane.LLM: "llm", Lane.EXTENSION: "ext"}


def check_session_id(session: str, argument: str = "session_id") -> str:
    """Return the session id if it is valid.

    Args:
        session: the session id.
        argument: the caller's name for the argument, for the error.

    Raises:
        InvalidSessionId: `session` does not match `[A-Za-z0-9_-]{1,64}`.
    """
    require_text(argument, session)
    if _SESSION_ID.fullmatch(session) is None:
        raise InvalidSessionId(session)
    return session


def is_session_id(name: bytes) -> bool:
    """Return whether a stored name is a valid session id. A foreign client may have written any name."""
    return _SESSION_ID.fullmatch(name.decode(errors="replace")) is not None


def is_name(name: str) -> bool:
    """Return whether a stored name is a valid name of an agent or a consumer group."""
    return _GROUP.fullmatch(name) is not None


def check_namespace(namespace: str) -> str:
    """Return the namespace if it is valid.

    Braces are not allowed, because they mark the cluster's hash tag. `*` is not allowed, because it is a pattern.

    Raises:
        InvalidNamespace: `namespace` does not match `[A-Za-z0-9_.:-]{1,64}`.
    """
    require_text("namespace", namespace)
    if _NAMESPACE.fullmatch(namespace) is None:
        raise InvalidNamespace(namespace)
    return namespace


def check_group(group: str) -> str:
    """Return the name of a consumer group if it is valid.

    Raises:
        InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
    """
    require_text("group", group)
    if _GROUP.fullmatch(group) is None:
        raise InvalidName(group)
    return group


def check_agent(name: str, argument: str = "agent") -> str:
    """Return the name of an agent if it is valid.

    Args:
        name: the name.
        argument: the caller's name for the argument, for the error.

    Raises:
        InvalidName: `name` does not match `[A-Za-z0-9_.-]{1,64}`.
    """
    require_text(argument, name)
    if _GROUP.fullmatch(name) is None:
        raise InvalidName(name)
    return name


def check_consumer(name: str) -> str:
    """Return the name of a consumer if it is valid.

    Raises:
        InvalidName: `name` is not 1 to 128 printable ASCII characters without a space.
    """
    require_text("name", name)
    if _CONSUMER.fullmatch(name) is None:
        raise InvalidName(name, "[!-~]{1,128}")
    return name


def bucket_of(session: str, buckets: int) -> int:
    """Return the bucket of a session. Source: CRC-16/XMODEM, the key hash of the cluster specification."""
    return crc_hqx(session.encode("ascii"), 0) % buckets


class AgentBucket(NamedTuple):
    """The sessions of one agent in one bucket: the unit in which work is fetched."""

    bucket: int
    agent: str


class Keys:
    """Builds the names of all keys of one namespace. The module's docstring describes what each key holds."""

    def __init__(self, namespace: str = DEFAULT_NAMESPACE, buckets: int = BUCKETS) -> None:
        """
        Args:
            namespace: the prefix of all keys.
            buckets: the number of buckets of the namespace.

        Raises:
            InvalidNamespace: `namespace` does not match `[A-Za-z0-9_.:-]{1,64}`.
        """
        self.namespace, self.buckets = check_namespace(namespace), buckets
        self.config = f"{namespace}:config"
        self._appending: dict[str, tuple[str, ...]] = {}

    def bucket(self, session: str) -> int:
        """Return the bucket of a session."""
        return bucket_of(session, self.buckets)

    def lane(self, session: str, lane: Lane) -> str:
        """Return the key of a lane's stream."""
        return f"{self._session(session)}:{_STREAM[lane]}"

    def rebuilt(self, stream: str) -> str:
        """Return the key in which a script rebuilds a stream, before it renames the key to that of the stream."""
        return f"{stream}:rebuilt"

    def live(self, session: str) -> str:
        """Return the key of the stream of a session's live deltas."""
        return f"{self._session(session)}:live"

    def head(self, session: str) -> str:
        """Return the key of the hash with a session's head."""
        return f"{self._session(session)}:head"

    def heads(self, sessions: Sequence[str]) -> list[str]:
        """Return the keys of the heads of sessions of one bucket. The bucket is computed once."""
        if not sessions:
            return []
        before = self._session(sessions[0]).removesuffix(sessions[0])
        return [f"{before}{session}:head" for session in sessions]

    def projection(self, session: str, name: str, version: int) -> str:
        """Return the key of the hash with a stored projection."""
        return f"{self._session(session)}:p:{name}@{version}"

    def checkpoints(self, session: str) -> str:
        """Return the key of the hash of checkpoints: each holder of a session's entries, with its position."""
        return f"{self._session(session)}:checkpoints"

    def archive(self, session: str) -> str:
        """Return the key of the sorted set with the names of a session's archived segments."""
        return f"{self._session(session)}:archive"

    def caller_keys(self, session: str) -> str:
        """Return the key of the hash of publish keys, the `key` arguments of `Session.publish`."""
        return f"{self._session(session)}:keys"

    def media(self, sha256: str) -> str:
        """Return the key of stored media. The key is in no bucket, because sessions share media."""
        return f"{self.namespace}:media:{sha256}"

    def media_sizes(self) -> str:
        """Return the key of the hash with the sizes of all stored media, in any store."""
        return f"{self.namespace}:media:sizes"

    def index(self, bucket: int) -> str:
        """Return the key of a bucket's stream of change notices."""
        return f"{self.namespace}:{{{bucket}}}:index"

    def live_index(self, bucket: int) -> str:
        """Return the key of a bucket's stream of change notices for live deltas."""
        return f"{self.namespace}:{{{bucket}}}:live"

    def sessions(self, bucket: int) -> str:
        """Return the key of the hash of a bucket's sessions."""
        return f"{self.namespace}:{{{bucket}}}:sessions"

    def forged(self, bucket: int) -> str:
        """Return the key of a bucket's quarantine, a stream of entries that foreign clients wrote."""
        return f"{self.namespace}:{{{bucket}}}:forged"

    def order(self, bucket: int, agent: str) -> str:
        """Return the key of the sorted set of an agent's sessions that ever woke a worker. The score is a session's
        last wake-up number."""
        return f"{self.namespace}:{{{bucket}}}:order:{agent}"

    def woken(self, bucket: int) -> str:
        """Return the key of the hash with the position of each session's newest waking entry."""
        return f"{self.namespace}:{{{bucket}}}:woken"

    def wake_ups(self, bucket: int) -> str:
        """Return the key of a bucket's stream of wake-ups."""
        return f"{self.namespace}:{{{bucket}}}:wakeups"

    def groups(self, bucket: int) -> str:
        """Return the key of the hash with each consumer group's progress in a bucket."""
        return f"{self.namespace}:{{{bucket}}}:groups"

    def open(self, bucket: int, agent: str, group: str) -> str:
        """Return the key of the hash of a group's open work for an agent: work that a consumer has, and
        work that waits for a consumer."""
        return f"{self.namespace}:{{{bucket}}}:open:{agent}:{group}"

    def due(self, bucket: int, agent: str, group: str) -> str:
        """Return the key of a sorted set: the sessions whose open work has no consumer, by the time the work is due."""
        return f"{self.namespace}:{{{bucket}}}:due:{agent}:{group}"

    def dead(self, bucket: int, group: str) -> str:
        """Return the key of the stream of a group's dead letters in a bucket."""
        return f"{self.namespace}:{{{bucket}}}:dead:{group}"

    def consumers(self, group: str) -> str:
        """Return the key of the hash of a group's consumers. The key is in no bucket: consumers work on all buckets."""
        return f"{self.namespace}:group:{{{group}}}:consumers"

    def work(self, bucket: int, agent: str) -> tuple[str, str, str]:
        """Return the keys of an agent's work in a bucket, which all groups share: order, woken, wake-ups."""
        return self.order(bucket, agent), self.woken(bucket), self.wake_ups(bucket)

    def group_work(self, bucket: int, agent: str, group: str) -> tuple[str, ...]:
        """Return the keys of a group's work for an agent in a bucket: those of `work`, then groups, open, due."""
        own = (self.open(bucket, agent, group), self.due(bucket, agent, group))
        return (*self.work(bucket, agent), self.groups(bucket), *own)

    def appending(self, session: str) -> tuple[str, ...]:
        """Return the keys that an append uses: `index`, `sessions`, `head`, `caller_keys`, LLM lane, extension lane."""
        names = self._appending.get(session)
        if names is None:
            bucket, stem = self.bucket(session), self._session(session)
            names = (
                *(self.index(bucket), self.sessions(bucket)),
                *(f"{stem}:{part}" for part in ("head", "keys", *_STREAM.values())),
            )
            if len(self._appending) >= 10_000:
                self._appending.clear()
            self._appending[session] = names
        return names

    def _session(self, session: str) -> str:
        return f"{self.namespace}:{{{self.bucket(session)}}}:s:{session}"
