"""Proof that stored logs are whole. Nothing here writes.

verify_session   one session: positions, entries, head, producers, keys, checkpoints, projections
verify_all       every session, then what is of no session
replay           projections folded anew, compared with what is stored
"""

from lanebus.handlers.verify.namespace import verify_all
from lanebus.handlers.verify.problem import Problem, ProblemKind, Report
from lanebus.handlers.verify.replay_check import PROJECTION_NAMES, Replayed, differs, replay
from lanebus.handlers.verify.session import verify_session

__all__ = (
    "PROJECTION_NAMES",
    "Problem",
    "ProblemKind",
    "Replayed",
    "Report",
    "differs",
    "replay",
    "verify_all",
    "verify_session",
)
