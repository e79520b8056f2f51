"""What a follower is told between the envelopes: where it stands, and whether more can come."""

from typing import Literal, NamedTuple

from lanebus.bus.wire.envelope import Cursor

__all__ = ("CLOSED", "REOPENED", "Notice", "NoticeKind")

CLOSED, REOPENED = "session.closed", "session.reopened"
"""The kinds of the notes that closing and reopening leave in the extension lane."""

NoticeKind = Literal["caughtUp", "fellBehind", "scanned", "closed", "reopened"]


class Notice(NamedTuple):
    """One word to a follower, who may stop there: following again after `cursor` repeats nothing and loses nothing.

    caughtUp     all that was there when following began, or when it fell behind, has been handed over
    fellBehind   its buffer was full; what comes next is read from the log again, so nothing is lost
    scanned      nothing of what stands up to the cursor and was not handed over is wanted
    closed       the session is closed, and has been handed over up to its end
    reopened     it takes messages again
    """

    kind: NoticeKind
    cursor: Cursor
