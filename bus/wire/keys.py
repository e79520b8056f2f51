"""The name of every key. `ns` is the namespace, `b` the bucket, whose braces are the cluster's hash tag.

| key | type | holds | goes |
|---|---|---|---|
| ns:config | hash | buckets, schema | never |
| ns:{b}:s:<sid>:llm, :ext | stream | a lane; ids <position>-0 | with its session |
| ns:{b}:s:<sid>:live | stream | live deltas; ids <position>-<k> | capped, expires |
| ns:{b}:s:<sid>:head | hash | see below | never: erased, it is a tombstone |
| ns:{b}:s:<sid>:keys | hash | caller's key -> first position, count, incarnation | with its session |
| ns:{b}:s:<sid>:p:<name>@<v> | hash | a projection: state, position, incarnation | by drop_projection |
| ns:{b}:s:<sid>:checkpoints | hash | who needs entries -> the position it is done with | with its session |
| ns:{b}:s:<sid>:archive | sorted set | archived segment's name -> the position it ends at | with its session |
| ns:{b}:sessions | hash | session -> created, milliseconds; `:bytes` -> JSON of them all | with its session |
| ns:{b}:forged | stream | what others wrote into a lane: set aside, never read as a message | capped |
| ns:{b}:index | stream | change notices for followers, one an append; hints, may be lost | trimmed |
| ns:{b}:order | sorted set | session -> order number of its newest wake-up, see below | member with its session |
| ns:{b}:woken | hash | session -> position of its newest waking entry; three more, see below | with its session |
| ns:{b}:wakeups | stream | wake-ups for workers; hints, may be lost or deleted | trimmed |
| ns:{b}:groups | hash | group -> how far it is, see below | by `Bus.remove_group` |
| ns:{b}:open:<group> | hash | session -> its open work, see scripts/work.lua | done with, or with its session |
| ns:{b}:due:<group> | sorted set | session whose open work nobody has -> when it is due, milliseconds | taken |
| ns:{b}:dead:<group> | stream | dead letters, see scripts/group_dead.lua | capped |
| ns:{b}:live | stream | the index of live deltas: one pointer a preview | trimmed, expires |
| ns:group:{<group>}:consumers | hash | consumer -> its signs of life, see scripts/group_beat.lua | silent for a day |
| ns:media:<sha256> | string | large media by their content, of all sessions | by erase, if asked |

The head: position, bytes, created, updated; state ("closed", "erased", else open); trimmed, trimmed_llm, trimmed_ext:
the highest position that was trimmed away, of both lanes and of each; trim: what the last step of a trim gave; archived
and archive: the position that the archive goes up to and `<number> <name>` of its last segment; owner, epoch,
lease_until, lease_ms, wanted, rests_until, rest_ms: see scripts/lease.lua; `g:<group>`: the position up to which a
group found nothing left to do; run, incarnation, incarnations: the server's replication id as it last wrote, the token
of its incarnation, `<position it began behind>_<random>`, and those of the newest ones; trimmed_by: the token of the
entry at `trimmed`; of a fork parent
and fork: whose beginning it shares, and the cursor of the last entry that it shares; live, live_by: see
scripts/preview.lua; and `p:<producer>` with a producer's term, its last number and what that append gave, of a bounded
number of `producers`, and the `floor` under those who begin, see scripts/producers.lua. One hash, as every append reads
and writes all of it.

Of an erased session the head is left, with its state alone.

Work is a state. Each waking append gives its session the next order number of the bucket: a counter, `:last` of the
woken hash, that begins a new block of 2^32 numbers whenever another server process (`:run`) goes on, so that no number
is given twice even if the log lost its end. A group is at "<mark> <start>" in the groups hash: of every session up to
the mark it has done the work, or has it in its open hash; what stands behind the mark it has not looked at. `start` is
the number it began behind. `<group>:dropped` counts dead letters that made room, `<group>:clock` is the highest clock,
milliseconds, that work was put off at. A session waits for a group if its number is behind the mark, or if its open
work is with nobody and due. `:hinted` of the woken hash, beside `:last` and `:run`, is the time, milliseconds, of the
newest wake-up that was given without an append. The position in the woken hash may be followed by a space and the name
of a queue.

The checkpoints: `p:<name>@<v>` of a projection, `r:<name>` of a reader that asked to be waited for, `f:<session>` of a
fork that shares the entries. Nothing behind the lowest is trimmed without force.
"""

import re
from binascii import crc_hqx

from lanebus.bus.errors import InvalidName, InvalidNamespace, InvalidSessionId
from lanebus.bus.messages.lanes import Lane

__all__ = (
    "ALL_BYTES",
    "BUCKETS",
    "Keys",
    "bucket_of",
    "check_consumer",
    "check_group",
    "check_namespace",
    "check_session_id",
)

BUCKETS = 64
"""How many buckets a new namespace gets; it never changes afterwards."""

ALL_BYTES = ":bytes"
"""The field of a bucket's sessions hash that counts the bytes of all of them; no session id has a colon."""

_GROUP, _CONSUMER = re.compile(r"[A-Za-z0-9_.-]{1,64}"), re.compile(r"[!-~]{1,128}")
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_STREAM = {Lane.LLM: "llm", Lane.EXTENSION: "ext"}


def check_session_id(session: str) -> str:
    """The session id, if it is one.

    Raises:
        InvalidSessionId: it does not match `[A-Za-z0-9_-]{1,64}`.
    """
    if _SESSION_ID.fullmatch(session) is None:
        raise InvalidSessionId(session)
    return session


def check_namespace(namespace: str) -> str:
    """The namespace, if it is one. Braces would be the cluster's hash tag, and `*` a pattern.

    Raises:
        InvalidNamespace: it does not match `[A-Za-z0-9_.:-]{1,64}`.
    """
    if _NAMESPACE.fullmatch(namespace) is None:
        raise InvalidNamespace(namespace)
    return namespace


def check_group(group: str) -> str:
    """The name of a consumer group, if it is one.

    Raises:
        InvalidName: it does not match `[A-Za-z0-9_.-]{1,64}`.
    """
    if _GROUP.fullmatch(group) is None:
        raise InvalidName(group)
    return group


def check_consumer(name: str) -> str:
    """The name of a consumer, if it is one.

    Raises:
        InvalidName: it is not 1 to 128 printable ASCII characters without a space.
    """
    if _CONSUMER.fullmatch(name) is None:
        raise InvalidName(name, "[!-~]{1,128}")
    return name


def bucket_of(session: str, buckets: int) -> int:
    """The bucket of a session. Source: CRC-16/XMODEM, the cluster specification's key hash."""
    return crc_hqx(session.encode("ascii"), 0) % buckets


class Keys:
    """Names the keys of one namespace."""

    def __init__(self, namespace: str = "lanebus", buckets: int = BUCKETS) -> None:
        """
        Raises:
            InvalidNamespace: it does not match `[A-Za-z0-9_.:-]{1,64}`.
        """
        self.namespace, self.buckets = check_namespace(namespace), buckets
        self.config = f"{namespace}:config"
        self._appending: dict[str, tuple[str, ...]] = {}

    def bucket(self, session: str) -> int:
        """The bucket of a session."""
        return bucket_of(session, self.buckets)

    def lane(self, session: str, lane: Lane) -> str:
        """The stream of one lane."""
        return f"{self._session(session)}:{_STREAM[lane]}"

    def rebuilt(self, session: str, lane: Lane) -> str:
        """A lane while it is built anew without what somebody else wrote into it."""
        return f"{self.lane(session, lane)}:rebuilt"

    def live(self, session: str) -> str:
        """The stream of live deltas."""
        return f"{self._session(session)}:live"

    def head(self, session: str) -> str:
        return f"{self._session(session)}:head"

    def projection(self, session: str, name: str, version: int) -> str:
        return f"{self._session(session)}:p:{name}@{version}"

    def checkpoints(self, session: str) -> str:
        """Who still needs entries of a session."""
        return f"{self._session(session)}:checkpoints"

    def archive(self, session: str) -> str:
        """The archived segments of a session."""
        return f"{self._session(session)}:archive"

    def caller_keys(self, session: str) -> str:
        """The callers' own names of publishes."""
        return f"{self._session(session)}:keys"

    def media(self, sha256: str) -> str:
        """Media by their content; in no bucket, as sessions share them."""
        return f"{self.namespace}:media:{sha256}"

    def index(self, bucket: int) -> str:
        return f"{self.namespace}:{{{bucket}}}:index"

    def live_index(self, bucket: int) -> str:
        return f"{self.namespace}:{{{bucket}}}:live"

    def sessions(self, bucket: int) -> str:
        return f"{self.namespace}:{{{bucket}}}:sessions"

    def forged(self, bucket: int) -> str:
        return f"{self.namespace}:{{{bucket}}}:forged"

    def order(self, bucket: int) -> str:
        """The sessions that ever woke a worker, by the order number of their newest wake-up."""
        return f"{self.namespace}:{{{bucket}}}:order"

    def woken(self, bucket: int) -> str:
        """The position of each session's newest waking entry."""
        return f"{self.namespace}:{{{bucket}}}:woken"

    def wake_ups(self, bucket: int) -> str:
        """The stream of wake-ups."""
        return f"{self.namespace}:{{{bucket}}}:wakeups"

    def groups(self, bucket: int) -> str:
        """How far each consumer group is with a bucket's work."""
        return f"{self.namespace}:{{{bucket}}}:groups"

    def open(self, bucket: int, group: str) -> str:
        """The open work of a group: with a consumer, put off, or left by one."""
        return f"{self.namespace}:{{{bucket}}}:open:{group}"

    def due(self, bucket: int, group: str) -> str:
        """When open work is due that no consumer has."""
        return f"{self.namespace}:{{{bucket}}}:due:{group}"

    def dead(self, bucket: int, group: str) -> str:
        """The dead letters of a group."""
        return f"{self.namespace}:{{{bucket}}}:dead:{group}"

    def consumers(self, group: str) -> str:
        """What each consumer of a group says of itself; in no bucket, as it works on all of them."""
        return f"{self.namespace}:group:{{{group}}}:consumers"

    def work(self, bucket: int) -> tuple[str, str, str]:
        """The keys of a bucket's work that all groups share: order, positions, wake-ups."""
        return self.order(bucket), self.woken(bucket), self.wake_ups(bucket)

    def group_work(self, bucket: int, group: str) -> tuple[str, ...]:
        """The keys of a bucket's work as a group sees it: those that all share, then groups, open, due."""
        return (*self.work(bucket), self.groups(bucket), self.open(bucket, group), self.due(bucket, group))

    def appending(self, session: str) -> tuple[str, ...]:
        """The keys every append touches: index, sessions, head, caller's keys, LLM lane, extension lane."""
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
