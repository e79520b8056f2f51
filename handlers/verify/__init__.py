"""Verify that stored logs are complete and consistent. Nothing here writes.

verify_session   check one session: positions, entries, head, producers, publish keys, checkpoints, projections
verify_all       check every session, then the keys that belong to no session
replay           fold projections from the log, and compare them with the stored states

Start with `session.py`; `entries.py` checks its entries, and has the report.
"""

from lanebus.handlers.verify.entries import Problem, ProblemKind, Report
from lanebus.handlers.verify.namespace import verify_all
from lanebus.handlers.verify.session import (
    PROJECTION_NAMES,
    BeginFold,
    Replayed,
    differs,
    fold_of,
    replay,
    verify_session,
)

__all__ = (
    "PROJECTION_NAMES",
    "BeginFold",
    "Problem",
    "ProblemKind",
    "Replayed",
    "Report",
    "differs",
    "fold_of",
    "replay",
    "verify_all",
    "verify_session",
)
