"""Each error text names the fault and then its remedy."""

from pathlib import Path

import pytest

from lanebus.bus.errors import (
    ArchiveDamaged,
    BusError,
    Closed,
    Conflict,
    CursorTrimmed,
    EntriesMissing,
    EraseRefused,
    Fenced,
    GroupInUse,
    HeadMissing,
    InvalidMediaKey,
    KeyReserved,
    KeyTooLong,
    LoginRefused,
    LogRolledBack,
    MediaDamaged,
    MediaMissing,
    MediaTooLarge,
    MessageTooLarge,
    NoArchive,
    NoKinds,
    NoLanes,
    NoMediaStore,
    NoSuchPosition,
    OutcomeUnknown,
    OverLimit,
    PreviewFull,
    Refused,
    RewriteUnfinished,
    ServerInUse,
    SessionClosed,
    SessionErased,
    SessionExists,
    TrimRefused,
    UnknownVersion,
)

_REMEDIES: list[tuple[BusError, str]] = [
    (NoLanes(), "give at least one"),
    (NoKinds(), "give at least one"),
    (UnknownVersion(3, 2), "install a newer lanebus"),
    (MessageTooLarge(9, 8), "shorten it, or move large content to the media store"),
    (KeyReserved("lanebus:k", "lanebus:"), "use a key that does not begin with 'lanebus:'"),
    (KeyTooLong(9, 8), "use its SHA-256"),
    (MediaTooLarge(9, 8), "use smaller ones"),
    (MediaMissing("k"), "another media store"),
    (MediaDamaged("a", "b"), "put them again"),
    (InvalidMediaKey("x"), "use a SHA-256"),
    (NoMediaStore("k"), "give the one that holds it"),
    (NoArchive("s"), "Bus.open(archive=…)"),
    (Conflict("s", 1, 2), "read on and decide anew"),
    (Fenced("s", 1, 2), "stop"),
    (SessionClosed("s"), "reopen it"),
    (SessionErased("s"), "use another session id"),
    (SessionExists("s", None, 0), "choose another id"),
    (NoSuchPosition("s", 9, 3), "name one from 1 to its last, 3"),
    (OverLimit("s", "session", 9, 8), "raise the limit"),
    (PreviewFull("s", 9, 8), "publish the whole messages"),
    (LogRolledBack("s", 9, 8), "read again after position 8, or publish the lost messages again"),
    (LogRolledBack("s", 9, 0), "up to position 9: check that the cursor is of this session"),
    (GroupInUse("g", ("a", "b")), "stop them, or remove the group by force"),
    (CursorTrimmed("s", "1", 3), "begin there"),
    (HeadMissing("s", 3), "restore the server's data from a backup"),
    (EntriesMissing("s", "1", 3), "restore the server's data from a backup"),
    (TrimRefused("s", 9, {"r:a": 3}), "trim less"),
    (EraseRefused("s", ("f",)), "erase these first"),
    (ArchiveDamaged("s", "1-2-x", "missing"), "restore it from a backup"),
    (Closed("bus"), "open another"),
    (OutcomeUnknown("s", 1.0), "publish again with the same key"),
    (OutcomeUnknown("s", 1.0, is_forgotten=True), "publish again with the same key"),
    (Refused("OOM"), "raise maxmemory"),
    (LoginRefused(), "correct it there"),
    (RewriteUnfinished("it failed"), "erase the session again with rewrite"),
    (ServerInUse(Path("/d"), (7,)), "end the processes that use it"),
]


@pytest.mark.parametrize(("error", "remedy"), _REMEDIES, ids=lambda each: type(each).__name__)
def test_an_error_text_is_short_and_contains_the_remedy(error: BusError, remedy: str) -> None:
    assert remedy in str(error)
    assert len(str(error)) < 200
