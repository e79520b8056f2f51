"""Notices that a follower receives between envelopes: its progress, and the state of the session."""

from typing import Literal, NamedTuple

from lanebus.bus.wire.envelope import Cursor

__all__ = ("CLOSED", "REOPENED", "Notice", "NoticeKind")

CLOSED, REOPENED = "session.closed", "session.reopened"
"""The kinds of the extension messages that are appended when a session is closed or reopened."""

NoticeKind = Literal["caughtUp", "fellBehind", "scanned", "closed", "reopened"]


class Notice(NamedTuple):
    """A notice to a follower. If a new follower starts after `cursor`, it repeats nothing and loses nothing.

    caughtUp     the follower has received all entries that existed when it started, or when it fell behind
    fellBehind   the follower's buffer was full; the next entries are read from the log again, so nothing is lost
    scanned      the follower's selection matches no further entry up to the cursor
    closed       the session is closed, and the follower has received all entries of the session
    reopened     the session accepts messages again
    """

    kind: NoticeKind
    cursor: Cursor
